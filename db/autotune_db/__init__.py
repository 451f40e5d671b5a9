"""The database behind ``domain.store``: SQLite or PostgreSQL. Rows never leave here.

It needs the extra ``store``, which ``search``, ``serve`` and ``postgres`` bring along.
"""

from importlib.util import find_spec

from autotune.domain.errors import StoreError

if not (find_spec("sqlalchemy") and find_spec("alembic")):
    raise StoreError("a database needs SQLAlchemy: pip install '…/pallas-autotune[store]'")

from autotune_db.store import SqlStore, open_store, upgrade

__all__ = ["SqlStore", "open_store", "upgrade"]
