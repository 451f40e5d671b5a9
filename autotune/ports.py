"""What the engine asks of the world. Adapters live elsewhere and are passed in by the CLI."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from autotune.chip import Chip
from autotune.kernelspec import KernelSpec
from autotune.key import Key
from autotune.outcome import Outcome
from autotune.trial import KeySummary, Miss, Record, Snapshot, Trial


class Store(Protocol):
    """Where trials and records are kept. Every method commits before it returns.

    Raises ``StoreError`` when the database cannot be used.
    """

    def save_kernel(self, spec: KernelSpec) -> None:
        """Keep the description of a kernel; the same (name, fingerprint) again changes nothing."""

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        """The description with that fingerprint, or the one saved last."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""

    def save_trial(self, key: Key, trial: Trial) -> bool:
        """Keep a finished trial. False: this (key, config) or (key, number) is there already."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        """Put another outcome in the place of a trial's: a newer model's estimate, or *wrong
        result*."""

    def history(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[KeySummary]:
        """The keys that have trials, the one with the newest trial first."""

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        """One trial by its number in the whole database."""

    def trial_id(self, key: Key, number: int) -> int | None:
        """The database-wide number of a trial."""

    def save_record(self, record: Record) -> None:
        """Publish, which makes a new snapshot; an earlier record of the same key stays in the
        history and in the snapshots that had it."""

    def record(self, key: Key) -> Record | None:
        """The newest record of exactly this key."""

    def latest_snapshot(self) -> int:
        """The number of the newest snapshot; 0, which is empty, before anything is published."""

    def snapshots(self, limit: int = 50) -> Sequence[Snapshot]:
        """The newest first."""

    def snapshot_records(self, number: int, since: int = 0) -> Sequence[Record] | None:
        """The records of a snapshot, one for each key, newest first: for a number always the same
        ones. None for a number that there is not.

        With ``since``, the number of an older snapshot, only those that it does not have: an index
        of it becomes one of the newer by putting these in the place of the same keys.
        """

    def save_miss(self, key: Key, count: int = 1) -> None:
        """Count that somebody asked for a key that has no record, so many times."""

    def save_misses(self, counts: Mapping[Key, int]) -> None:
        """The same for many keys at once, all or none."""

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        """Keys that were asked for and still have no record, the most wanted first."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Iterable[Record]:
        """Newest record of each key, newest first."""
