"""Immutable, numbered sets of records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from autotune.domain.key import Key
from autotune.domain.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable set of records. Numbers grow until the database is restored from a copy, or a
    replica takes over that lags: the next one may have a number that another one had. 0, the empty
    one, is never stored.

    ``note`` says what made it, ``made_by`` with which token, empty for this machine's own work.
    """

    number: int
    created_at: datetime
    note: str = ""
    made_by: str = ""


def snapshot_id(number: int, created_at: datetime | None) -> str:
    """Of this one alone, whatever number others have; empty for the empty one."""
    if created_at is None:
        return ""
    named = f"{number} {created_at.astimezone(UTC).isoformat()}"
    return blake2b(named.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes one snapshot of another: ``records``, newest first, come in, ``removed`` go."""

    records: Sequence[Record] = ()
    removed: Sequence[Key] = ()
