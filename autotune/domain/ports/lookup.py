"""What those ask who answer lookups."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from autotune.domain.chip import Chip
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.miss import Miss
from autotune.domain.record import Record
from autotune.domain.snapshot import Change, Snapshot


class RecordFinder(Protocol):
    """One record by its key."""

    def record(self, key: Key) -> Record | None:
        """The record of exactly this key in the newest snapshot."""


class MissCounter(Protocol):
    """Where questions without an exact answer are counted."""

    def save_misses(
        self, counts: Mapping[tuple[Key, str], int], *, known_only: bool = False
    ) -> None:
        """Count, all or none, how often a key was asked for and got this other answer instead.

        What nobody asks for any more, and what was asked for the least beyond a bound, is
        forgotten. ``known_only``: only keys of kernels that are described here.
        """


class MissLog(MissCounter, Protocol):
    """What was asked for and is not published."""

    def misses(self, limit: int = 50, after: tuple[int, int] | None = None) -> Sequence[Miss]:
        """Keys that were asked for and still have no record, the most wanted first; ``after``:
        those behind the one with this count and number."""

    def miss(self, number: int) -> Miss | None:
        """One by its number."""


class LookupStore(RecordFinder, Protocol):
    """What ``autotune lookup`` asks."""

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        """The description with that fingerprint, or the one saved last."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        """Those of the newest snapshot, newest first."""


class RuntimeStore(LookupStore, MissCounter, Protocol):
    """What a model asks of a database on its own machine."""


class SnapshotStore(Protocol):
    """What the snapshot cache of a service loads."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        """The newest first, none before anything is published; with ``before`` those with smaller
        numbers."""

    def snapshot_change(self, number: int, since: int) -> Change | None:
        """What makes the snapshot of the other one; all of it where there is no other one, as 0 is
        none. For a number always the same. None for a number that there is not."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""
