"""Who wrote what to a database."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """A token by its number and name, and the address that it was used from. Without a token: the
    commands of this machine."""

    name: str = ""
    token: int | None = None
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One write: ``action`` is its kind, ``change`` what is different since, in words."""

    number: int
    created_at: datetime
    author: Author
    action: str
    change: str
