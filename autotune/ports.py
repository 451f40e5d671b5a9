"""What the engine asks of the world. Adapters live elsewhere and are passed in by the CLI."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from autotune.chip import Chip
from autotune.kernelspec import KernelSpec
from autotune.key import Key
from autotune.outcome import Outcome
from autotune.trial import KeySummary, Miss, Record, Trial


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
        """Publish; an earlier record of the same key stays in the history."""

    def record(self, key: Key) -> Record | None:
        """The newest record of exactly this key."""

    def save_miss(self, key: Key) -> None:
        """Count that somebody asked for a key that has no record."""

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        """Keys that were asked for and still have no record, the most wanted first."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Iterable[Record]:
        """Newest record of each key, newest first."""
