"""What people ask on the command line about what was tried and published."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from autotune.domain.chip import Chip
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.snapshot import Snapshot
from autotune.domain.trial import KeySummary, Trial


class TrialHistory(Protocol):
    """What was tried."""

    def history(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[KeySummary]:
        """The keys whose trials came in last, those with the latest trial first."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        """One trial by its number in the whole database."""

    def trial_id(self, key: Key, number: int) -> int | None:
        """The database-wide number of a trial."""


class ReleaseStore(Protocol):
    """Which records are in force, and since when."""

    def published(
        self,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[tuple[int, Record]]:
        """All that was ever published, each with its number, newest first; ``before``: those with
        smaller numbers."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        """The newest first; with ``before`` those with smaller numbers."""

    def roll_back(self, number: int, by: str = "") -> int | None:
        """Make a new snapshot with the records of an older one, pins included; its number. What is
        published later goes on from there. None: there is no such snapshot."""

    def pin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record keeps it, whatever is published.
        None: there is no such record."""

    def unpin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record has its newest one again."""

    def prune(self, before: datetime) -> int:
        """Forget the snapshots made before a time, but the newest and what it rests on; how many.
        Records stay."""
