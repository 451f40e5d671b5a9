"""What the pages of a service show: never more rows than are asked for."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from autotune.domain.browsing import (
    CheckCount,
    CheckFilter,
    History,
    Improvement,
    KeyFilter,
    KeyMiss,
    KeyOrder,
    NumberedCheck,
    NumberedTrial,
    RunningSearch,
    SameConfig,
    SearchedKey,
    TargetCount,
)
from autotune.domain.chip import Chip
from autotune.domain.config import Config
from autotune.domain.job import Job
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.refusals import Refusals
from autotune.domain.toolchain import Toolchain


class OverviewPages(Protocol):
    """The first page, and the list of misses."""

    def targets(self) -> Sequence[TargetCount]:
        """Where something was searched, and how much."""

    def latest(self, limit: int) -> Sequence[SearchedKey]:
        """The keys whose trials came in last, those with the latest trial first."""

    def missed_keys(self, offset: int, limit: int) -> Sequence[KeyMiss]:
        """Keys that were asked for and have no record, the most wanted first."""

    def open_jobs(self, limit: int) -> Sequence[Job]:
        """Those that wait or run, the newest first."""

    def running(self, since: datetime) -> Sequence[RunningSearch]:
        """Searches that are not over and were heard of since then, the last heard of first."""

    def history(self) -> History:
        """What went wrong when."""


class KeyPages(Protocol):
    """Lists of keys."""

    def places(self, kernel: str | None = None) -> Collection[tuple[Chip, Toolchain]]:
        """All that there are keys of: of all kernels, or of one."""

    def problems(
        self, only: KeyFilter, offset: int, limit: int, order: KeyOrder = KeyOrder.NEWEST
    ) -> Sequence[SearchedKey]:
        """Keys that were searched, published or asked for."""

    def count_problems(self, only: KeyFilter) -> int:
        """How many there are of these."""

    def numbers(self, keys: Collection[Key]) -> Mapping[Key, int]:
        """The numbers of keys that are there."""

    def searched(self, key_id: int) -> SearchedKey | None:
        """One key by its number."""

    def other_toolchains(self, key: Key) -> Sequence[SearchedKey]:
        """The same kernel, problem and chip with any source and toolchain that has trials."""

    def other_chips(self, key: Key) -> Sequence[SearchedKey]:
        """The same kernel and problem on other chips, with any source and toolchain."""

    def same_configs(self, key_ids: Sequence[int], fastest: int) -> Sequence[SameConfig]:
        """For each of some keys the fastest configs and those that failed, and what became of
        the same configs for the others."""


class ProblemPages(Protocol):
    """A problem's page: the trials of one key."""

    def searched(self, key_id: int) -> SearchedKey | None:
        """One key by its number."""

    def refusals(self, key_id: int) -> Refusals | None:
        """Where the rules leave nothing of the space of a key, as its last search found."""

    def trials(
        self, key_id: int, kind: str | None, *, fastest: bool, offset: int, limit: int
    ) -> Sequence[NumberedTrial]:
        """Trials of a key, all or of one kind, by number; or those with a time, ``fastest``
        first, whatever the kind."""

    def fastest_and_others(self, key_id: int, fastest: int, others: int) -> Sequence[NumberedTrial]:
        """At most so many of the fastest trials and of those without a time, by number."""

    def with_config(self, key_id: int, config: Config) -> NumberedTrial | None:
        """The trial of a config."""

    def by_number(self, key_id: int, number: int) -> NumberedTrial | None:
        """The trial with this number within its key."""

    def published(self, key_id: int, limit: int) -> Sequence[tuple[int, Record]]:
        """All that was ever published for a key, with numbers, the newest first."""

    def is_pinned(self, key_id: int) -> bool:
        """Whether somebody chose what is served for a key."""

    def newest(self, key_id: int) -> int:
        """The number, in the whole database, of the newest trial of a key; 0: there is none."""

    def best_so_far(self, key_id: int) -> Sequence[Improvement]:
        """The trials of a key that were faster than all before them."""


class TrialPages(Protocol):
    """A trial's page."""

    def key_of(self, trial_id: int) -> int | None:
        """The number of the key of a trial."""

    def searched(self, key_id: int) -> SearchedKey | None:
        """One key by its number."""

    def trial(self, trial_id: int) -> NumberedTrial | None:
        """One by its number in the whole database."""

    def by_number(self, key_id: int, number: int) -> NumberedTrial | None:
        """The trial with this number within its key."""


class CheckPages(Protocol):
    """The page of an upgrade."""

    def check_counts(self) -> Sequence[CheckCount]:
        """How many checks there are by kernel, chip, toolchains and verdict."""

    def checks(self, only: CheckFilter, before: int | None, limit: int) -> Sequence[NumberedCheck]:
        """The last ones first. ``before``: only those with a lower number."""

    def worst_checks(self, only: CheckFilter, offset: int, limit: int) -> Sequence[NumberedCheck]:
        """The worst verdicts first."""


class Pages(OverviewPages, KeyPages, ProblemPages, TrialPages, CheckPages, Protocol):
    """All pages, for what puts a service together."""
