"""What people look at: trials and keys with their numbers in the database."""

from dataclasses import dataclass
from datetime import datetime

from autotune.domain.check import Check
from autotune.domain.chip import Chip
from autotune.domain.config import Config
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune.domain.miss import Miss
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune.domain.trial import Trial


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
    microseconds, None where there is no estimate; ``last_at``: of the newest trial."""

    id: int
    key: Key
    outcomes: tuple[tuple[str, int], ...]
    best_us: float | None
    default_us: float | None
    last_at: datetime | None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilter:
    """Which keys of a kernel are meant; None: any."""

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
    """How many checks there are of each kind."""

    kernel: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStatus:
    """What the last search of a key said of itself. ``space``: how the raw space became candidates,
    in words. ``over``: it has ended; one that died cannot say so, but is not heard of again."""

    space: str
    progress: Progress
    over: bool
    heard_at: datetime
