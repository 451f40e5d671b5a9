"""What people look at: trials and keys with their numbers in the database, what was asked for and
is not published, who wrote what, and who may."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from autotune.domain.job import Progress
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Standing, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How often a key that had no record was asked for. ``answer``: what was given instead, one
    of *toolchain*, *rule*, *nearest*, *default*."""

    number: int
    key: Key
    answer: str
    count: int
    first_at: datetime
    last_at: datetime


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCount:
    """How many keys of a kernel have trials, on one chip with one toolchain."""

    kernel: str
    chip: Chip
    toolchain: Toolchain
    searched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedTrial:
    """A trial with its number in the whole database."""

    id: int
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedKey:
    """A key with its number and what its trials came to. ``outcomes``: trials by kind; times in
    microseconds, None where there is no estimate; ``best_verified``: whether a proven record that
    was verified has the best time; ``last_at``: of the newest trial; ``standing``: of what was ever
    published; None for nothing."""

    id: int
    key: Key
    outcomes: tuple[tuple[str, int], ...]
    best_us: float | None
    default_us: float | None
    last_at: datetime | None
    standing: Standing | None
    best_verified: bool = False

    @property
    def has_record(self) -> bool:
        return self.standing is not None

    @property
    def trials(self) -> int:
        return sum(count for _, count in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A trial that was the fastest so far, or the newest one. ``at``: when it was finished."""

    number: int
    at: datetime
    time_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMiss:
    """A miss, and the number of its key."""

    key_id: int
    miss: Miss


class KeySums(NamedTuple):
    """What the trials of a key come to, by its number; None where none has a time."""

    id: int
    best_us: float | None
    default_us: float | None
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilter:
    """Which keys are meant; None: any. ``words``: each stands in the kernel, the problem, the chip,
    the toolchain, or the name of a token that brought a record; ``name=value`` and ``8x128`` are
    dimensions, ``chip:v6e``, ``kernel:splash`` and ``jax:0.12`` names in one place, ``status:``
    published, unpublished, missing or broken. ``has_record``: whether anything was ever
    published."""

    kernel: str | None = None
    words: tuple[str, ...] = ()
    has_record: bool | None = None
    chip: Chip | None = None
    toolchain: Toolchain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFilter:
    """Which checks are meant; None: any. ``made_with`` is the toolchain of the record,
    ``toolchain`` and ``chip`` are those that it was checked on."""

    kernel: str | None = None
    chip: Chip | None = None
    made_with: Toolchain | None = None
    toolchain: Toolchain | None = None
    verdict: CheckVerdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCount:
    """How many checks there are of each kind. ``made_on``: the chip of the records."""

    kernel: str
    made_on: Chip
    chip: Chip
    made_with: Toolchain
    toolchain: Toolchain
    verdict: CheckVerdict
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedCheck:
    """A check with its number, and that of its record's key."""

    number: int
    key_id: int
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class SameConfig:
    """One config, and its trials by the number of the key that they belong to."""

    config: Config
    trials: dict[int, NumberedTrial]


SILENT = timedelta(minutes=5)
"""A search that was not heard of for so long has died: a candidate, or a verification, may take
a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStatus:
    """What the last search of a key said of itself. ``space``: how the raw space became candidates,
    in words. ``over``: it has ended; one that died cannot say so, but is not heard of again."""

    space: str
    progress: Progress
    over: bool
    heard_at: datetime

    def is_alive(self, now: datetime) -> bool:
        return not self.over and now - self.heard_at <= SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSearch:
    """A search that was heard of a moment ago. ``trial_s``: seconds from one trial to the next,
    as the last ones came in; None where there are too few."""

    searched: SearchedKey
    status: SearchStatus
    trial_s: float | None

    @property
    def left_s(self) -> float | None:
        """Until its last trial, at this rate."""
        progress = self.status.progress
        return self.trial_s and self.trial_s * max(0, progress.goal - progress.done)
