"""The database behind ``domain.store``: SQLite or PostgreSQL. Rows never leave here.

It needs the extra ``store``, which ``search``, ``serve`` and ``postgres`` bring along.
"""

from importlib.util import find_spec

from autotune.domain.errors import StoreError

if not (find_spec("sqlalchemy") and find_spec("alembic")):
    from autotune.compiling.environments.packages import pip_install

    raise StoreError(f"a database needs SQLAlchemy: {pip_install('store')}")

from autotune_db.engine import current, upgrade
from autotune_db.store import SqlStore, open_store

__all__ = ["SqlStore", "current", "open_store", "upgrade"]
