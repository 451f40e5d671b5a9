"""One config evaluated for one key, and the published answer for a key."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autotune.domain.codec import OmitNone
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.measurement import Measurement
from autotune.domain.outcome import Estimate, Outcome
from autotune.domain.refusals import Refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``number`` counts from 0 within a key; 0 is the default config. ``seconds``: wall clock.
    ``pushed_by``: the name of the token that brought it, empty where it was searched."""

    number: int
    config: Config
    outcome: Outcome
    seconds: float
    created_at: datetime
    pushed_by: str = ""

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of a trial that can win; None for every other outcome."""
        return getattr(self.outcome, "estimate", None) if self.outcome.kind == "estimated" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What stands behind a time: a config (None: plain XLA), its estimate or why it has none.

    For plain XLA ``time_us`` is a lower bound and ``expected_us`` XLA's own estimate: neither is
    to be shown beside other times without saying so.
    """

    config: Config | None
    time_us: float | None
    expected_us: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The published answer for a key.

    ``config`` is the winner's, or the default's with the ``reason`` why nothing beat it.
    ``verification`` says in words how the result was checked. ``method`` is "estimated" or
    "measured"; the ``measurement`` is there too where it was void, or decided nothing.
    ``pushed_by``: the name of the token that brought it, empty where it was searched.
    """

    measurement: OmitNone[Measurement | None] = None
    key: Key
    config: Config
    estimate: Estimate
    default: Evidence
    baseline: Evidence
    is_default: bool
    reason: str
    verified: bool
    verification: str
    trials: int
    method: str
    created_at: datetime
    pushed_by: str = ""

    @property
    def time_us(self) -> float:
        """The time by the record's own method: to be compared with those of the same one only."""
        timed = self.measurement and self.measurement.of(self.config)
        measured_us = timed.median_us if timed and self.method == "measured" else None
        return self.estimate.time_us if measured_us is None else measured_us


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResult:
    """All that a tuning machine knows of a key: its record, its trials, and where the rules leave
    nothing of its space."""

    record: Record
    trials: tuple[Trial, ...] = ()
    refusals: OmitNone[Refusals | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of a push: how many records and trials were new, how many records lost against
    the published one of their key, and the snapshot in force after it."""

    records: int
    trials: int
    lost: int
    snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How often a key that had no record was asked for. ``answer``: what was given instead, one
    of *toolchain*, *nearest*, *default*."""

    number: int
    key: Key
    answer: str
    count: int
    first_at: datetime
    last_at: datetime


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySummary:
    """What has been tried for a key. ``outcomes``: trials by kind; times in microseconds, None
    where there is no estimate."""

    key: Key
    outcomes: tuple[tuple[str, int], ...]
    best_us: float | None
    default_us: float | None
    has_record: bool
    last_at: datetime
