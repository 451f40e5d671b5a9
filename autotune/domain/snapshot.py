"""Immutable, numbered sets of records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autotune.domain.key import Key
from autotune.domain.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable set of records. Numbers only grow; 0, the empty one, is never stored.

    ``note`` says what made it, ``made_by`` with which token, empty for this machine's own work.
    """

    number: int
    created_at: datetime
    note: str = ""
    made_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes one snapshot of another: ``records``, newest first, come in, ``removed`` go."""

    records: Sequence[Record] = ()
    removed: Sequence[Key] = ()
