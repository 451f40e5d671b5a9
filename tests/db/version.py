"""Which version the tables of a database are of."""

from autotune_db.engine import _version, open_engine
from autotune_db.url import parse_database, translated


def current(url):
    """None where there are none yet. Raises ``StoreError``."""
    database = parse_database(url)
    with translated(database):
        engine = open_engine(database, create=False)
        try:
            with engine.connect() as connection:
                return _version(connection)
        finally:
            engine.dispose()
