"""The database behind ``autotune.ports``: SQLite or PostgreSQL. Rows never leave here."""

from autotune_db.migration import current, upgrade
from autotune_db.store import SqlStore, open_store

__all__ = ["SqlStore", "current", "open_store", "upgrade"]
