"""What a search, and the publication after it, keep."""

from collections.abc import Sequence
from typing import Protocol

from autotune.domain.browsing import SearchStatus
from autotune.domain.chip import Chip
from autotune.domain.job import Progress
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.ports.known_configs import KnownConfigs
from autotune.domain.record import Record
from autotune.domain.refusals import Refusals
from autotune.domain.trial import Trial


class SearchStore(Protocol):
    """Where a search keeps its trials, and finds those of earlier runs."""

    def save_kernel(self, spec: KernelSpec) -> None:
        """Keep the description of a kernel that is here, in the place of one that was pushed for
        the same (name, fingerprint)."""

    def save_refusals(self, key: Key, refusals: Refusals) -> None:
        """Keep where the rules leave nothing of the space of a key, in the place of what was kept
        before."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        """Those of the newest snapshot, newest first: what won elsewhere is tried here."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        """Those of other keys of the kernel that were compiled here and have a time: first those
        of the chip and the toolchain of the key, then the newest."""

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        """Keep finished trials, all or none where it is cut short: those before the first of which
        the (key, config) or (key, number) is there already. How many those are."""

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        """Put another outcome in the place of a trial's: a newer model's estimate, or *wrong
        result*."""


class PublishStore(Protocol):
    """Where the decision about a search is kept."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        """As ``SearchStore`` has it: what was verified before."""

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        """As ``SearchStore`` has it: a finalist that gave a wrong result."""

    def save_record(self, record: Record) -> None:
        """Publish, which makes a new snapshot; an earlier record of the same key stays in the
        history and in the snapshots that had it."""


class WorkerStore(SearchStore, PublishStore, KnownConfigs, Protocol):
    """What a worker needs: it searches and publishes."""


class SearchStatuses(Protocol):
    """How far searches are, for those who watch."""

    def report(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        """The last report of a key counts."""

    def progress(self, key: Key) -> Progress:
        """The last report of a key; one of nothing where there is none."""

    def status(self, key_id: int) -> SearchStatus | None:
        """The last report of a key, by its number."""
