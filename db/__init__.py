"""The database behind ``autotune.ports.Store``: SQLite or PostgreSQL. Rows never leave here."""

from db.migration import current, upgrade
from db.store import SqlStore, open_store

__all__ = ["SqlStore", "current", "open_store", "upgrade"]
