"""The published answer for a key, the trials that stand behind it, what becomes of it under another
toolchain or chip, and the immutable, numbered sets of records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated

from autotune.domain.codec import ByName, Local, OmitDefault, OmitNone
from autotune.domain.evidence import FULL_PROOF, MeasuredConfig, Measurement, Proof, Standard
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.limits import Bytes, Count, Limit, Share, Text, Time, When, Word, is_time
from autotune.domain.outcome import Estimate, Estimated, Outcome, WrongResult
from autotune.domain.problem import AxisValue, Config
from autotune.domain.rule import ShapeRule


class CheckVerdict(StrEnum):
    """The worst first. *wrong*: of two sources, by the gate. *broken*: it does not compile, and no
    VMEM limit mends that. *needs limit*: it compiles under a higher one. *slower*, *faster*: by
    more than estimates can mistake. *default wins*: the kernel's own default is faster now. *not
    checked*: why is in ``Check.cause``."""

    WRONG = "wrong"
    BROKEN = "broken"
    NEEDS_LIMIT = "needs limit"
    SLOWER = "slower"
    DEFAULT_WINS = "default wins"
    NOT_CHECKED = "not checked"
    FASTER = "faster"
    SAME = "same"

    @property
    def is_usable(self) -> bool:
        """Whether the config may be handed to a model that runs this toolchain."""
        return self not in _UNUSABLE

    @property
    def compiles(self) -> bool:
        """Whether the config is known to compile as it is."""
        return self.is_usable and self is not CheckVerdict.NOT_CHECKED

    @property
    def wants_retuning(self) -> bool:
        """Whether a search could find something better."""
        return self in _TO_RETUNE


_UNUSABLE = CheckVerdict.WRONG, CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT
_TO_RETUNE = (*_UNUSABLE, CheckVerdict.SLOWER, CheckVerdict.DEFAULT_WINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    """The verdict on a record's config under another toolchain, on the record's own chip.
    ``time_us``: None where it has no time there. Of one that does not compile: its ``outcome``, the
    bytes of VMEM that it needs and may have, and a ``detail``. ``finding``: the sentence of an
    older version."""

    toolchain: Toolchain
    verdict: CheckVerdict
    checked_at: When
    time_us: Time | None = None
    finding: Text = ""
    outcome: OmitNone[Outcome | None] = None
    needed_bytes: OmitNone[Bytes | None] = None
    allowed_bytes: OmitNone[Bytes | None] = None
    detail: OmitDefault[Text] = ""


class GateState(StrEnum):
    """What the gate said of a trial; it stands beside each time that is called the best, or a
    tie."""

    VERIFIED = "verified"
    AGREES = "agrees with the default config"
    NOT_VERIFIED = "not verified"
    """The gate was not asked, or could not say."""
    REFUSED = "refused as wrong"


PASSED = {Standard.REFERENCE: GateState.VERIFIED, Standard.DEFAULT: GateState.AGREES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``number`` counts from 0 within a key; 0 is the default config. ``seconds``: wall clock.
    ``pushed_by``: the name of the token that brought it, empty where it was searched."""

    number: Count
    config: Config
    outcome: Outcome
    seconds: Share
    created_at: When
    pushed_by: Word = ""

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of a trial that can win; None for every other outcome."""
        return self.outcome.estimate if isinstance(self.outcome, Estimated) else None

    @property
    def time_us(self) -> float | None:
        return self.estimate.time_us if self.estimate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedConfig:
    """The axes of a config, and its time by a model's estimate."""

    axes: ByName[AxisValue]
    model: Word
    time_us: Time


Times = Mapping[str, float]
"""By the model of the estimate, in microseconds."""


def timed_configs(trials: Iterable[Trial]) -> list[TimedConfig]:
    """The fastest first."""
    timed = [
        TimedConfig(axes=trial.config.axes, model=made.model, time_us=made.time_us)
        for trial in trials
        if (made := trial.estimate)
    ]
    return sorted(timed, key=lambda config: config.time_us)


def times_us(timed: Iterable[TimedConfig], axes: Mapping[str, AxisValue]) -> Times:
    """The least of those with these axes."""
    times: dict[str, float] = {}
    for config in timed:
        if dict(config.axes) == axes:
            times[config.model] = min(config.time_us, times.get(config.model, config.time_us))
    return times


def default_trial(trials: Sequence[Trial]) -> Trial | None:
    """Of the default config; None where it was not tried."""
    return next((trial for trial in trials if trial.number == 0), None)


MOST_CHECKS = 100


class Standing(StrEnum):
    """*proven*: a machine with this database compiled it and ran the gate; *claimed*: whoever
    pushed it says so."""

    PROVEN = "proven"
    CLAIMED = "claimed"


class Method(StrEnum):
    """By what kind of times a record won: never to be mixed."""

    ESTIMATED = "estimated"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What stands behind a time: a config (None: plain XLA), its estimate or why it has none.

    For plain XLA ``time_us`` is a lower bound and ``expected_us`` an estimate. The truth is within
    ``expected_error`` of it, as a share (None: XLA's own ``estimated_cycles``, which older versions
    kept). Neither is to be shown beside other times without saying so. A default that was
    not compiled has no time, and what other problems predict of it as ``expected_us``.
    ``failure``: how it failed instead; ``note``: the sentence of an older version.
    """

    config: Config | None
    time_us: Time | None
    expected_us: Time | None = None
    expected_error: OmitDefault[Share | None] = None
    note: Text = ""
    failure: OmitNone[Outcome | None] = None

    @property
    def is_predicted(self) -> bool:
        """Of a default: it was not compiled."""
        return self.time_us is None and self.expected_us is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What chose a config beside the times. ``tied``: how many could not be told from the fastest
    by estimate, the winner among them; 0 where it is not one of them. ``not_measured``: what kept
    a device from deciding. ``tuned_with``: the toolchain of the search, where none was made for
    this one and the config was only checked."""

    tied: Count = 0
    not_measured: Text = ""
    tuned_with: Toolchain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The published answer for a key.

    ``config`` is the winner's, or the default's where nothing beat it; ``decision``: what chose it.
    ``proof``: how the result was checked, and what that is worth. ``reason`` and ``verification``:
    the sentences of an older version. The ``measurement`` is there too where it was void, or
    decided nothing, and the ``method`` an estimate.
    ``pushed_by``: the name of the token that brought it, whose claim its times and its verification
    are; empty where it was searched. ``checked_by``: the worker with this database that compiled it
    again and ran the gate, so that only a measurement is still a claim; empty where none did.
    ``checks``: what is known of it under other toolchains, at most one for each, and at most
    :data:`MOST_CHECKS`.
    ``rule``: what the records of its kernel say of other shapes; one of them carries it.
    ``program``: the hash of the final instruction listing that the estimate was made of, so that
    anybody can compile the key's source and compare; empty in records of older versions.
    """

    measurement: OmitNone[Measurement | None] = None
    key: Key
    config: Config
    estimate: Estimate
    default: Evidence
    baseline: Evidence
    is_default: bool
    reason: Text = ""
    verified: bool
    verification: Text = ""
    trials: Count
    method: Method
    created_at: When
    pushed_by: Word = ""
    checks: OmitDefault[Annotated[tuple[RecordCheck, ...], Limit(longest=MOST_CHECKS)]] = ()
    proof: OmitDefault[Proof] = FULL_PROOF
    checked_by: OmitDefault[Word] = ""
    rule: Local[OmitNone[ShapeRule | None]] = None
    decision: OmitNone[Decision | None] = None
    program: OmitDefault[Word] = ""

    @property
    def standing(self) -> Standing:
        """Whose word it is."""
        return Standing.CLAIMED if self.pushed_by and not self.checked_by else Standing.PROVEN

    def proves(self, config: Config) -> bool:
        """Whether the gate has passed this config with this database: a claim proves nothing."""
        return self.verified and self.standing is Standing.PROVEN and self.config == config

    def check(self, toolchain: Toolchain) -> RecordCheck | None:
        """What is known of its config under another toolchain."""
        return next((check for check in self.checks if check.toolchain == toolchain), None)

    def with_check(self, check: RecordCheck) -> "Record":
        """The same record, with this in the place of what was known of that toolchain. Where there
        are too many the oldest gives way, of what works before what does not."""
        others = tuple(known for known in self.checks if known.toolchain != check.toolchain)
        checks = (*others, check)
        if len(checks) > MOST_CHECKS:
            least = min(
                checks,
                key=lambda known: (not known.verdict.is_usable, known.checked_at, known.toolchain),
            )
            checks = tuple(known for known in checks if known is not least)
        return replace(self, checks=checks)

    @property
    def time_us(self) -> float:
        """The time by the record's own method: to be compared with those of the same one only."""
        timed = self.measurement and self.measurement.of(self.config)
        measured_us = timed.median_us if timed and self.method == Method.MEASURED else None
        return self.estimate.time_us if measured_us is None else measured_us

    @property
    def has_possible_times(self) -> bool:
        """Whether each of its times can be one. Older versions took others, too: such a record is
        kept, but not handed on."""
        times = [
            self.estimate.time_us,
            self.default.time_us,
            self.default.expected_us,
            self.baseline.time_us,
            self.baseline.expected_us,
        ]
        for timed in self.measurement.timed if self.measurement else ():
            times += timed.samples_us
        return all(time_us is None or is_time(time_us) for time_us in times)


def gate_state(trial: Trial, record: Record | None) -> GateState:
    """What the gate said of a stored trial. ``record``: what is published for its key."""
    if isinstance(trial.outcome, WrongResult):
        return GateState.REFUSED
    if record is None or not record.proves(trial.config):
        return GateState.NOT_VERIFIED
    return PASSED[record.proof.standard]


def measured_config(record: Record | None, config: Config) -> MeasuredConfig | None:
    """What the run that a record rests on took of a config; None where it was not measured."""
    run = record.measurement if record else None
    timed = run.of(config) if run else None
    return MeasuredConfig(run, timed) if run and timed else None


class Unchecked(StrEnum):
    """Why something was not checked."""

    SOURCE_CHANGED = "source changed"
    NO_KERNEL = "no kernel"
    NO_CHIP = "no chip"
    NO_ESTIMATE = "no estimate"
    NO_ANSWER = "no answer"
    NO_PROBLEM = "no problem"
    OTHER_MODEL = "other model"
    NO_BASELINE = "no baseline"
    NOT_VERIFIED = "not verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The verdict on the config of the record of ``key``, under ``toolchain`` on ``chip``.

    ``winner``, ``default``: what became of both there, None where it was not asked. Times in
    microseconds, ``before_us`` under the record's own toolchain and chip. ``least_limit_bytes``:
    the least ``vmem_limit_bytes`` that is enough where ``needed_bytes`` of VMEM are more than the
    ``allowed_bytes``; ``passes_limit``: whether the kernel hands a
    config's limit to its ``pallas_call``. ``verified``: the gate passed it there, and without
    ``against`` it is published for it. ``cause``: why it was not checked, ``before``: what had
    become of it under the record's own toolchain, where that is the reason. ``pushed_by``: the name
    of the token that brought it.

    ``against``: what another source of the kernel was compared with, empty where both are the same
    source; ``fingerprint``: of that other source, ``is_default``: its default was compared.

    ``asked``: what a command on this machine says for the kernel, its problem and the chip, where
    a name of the catalogue and a shape do not.
    """

    key: Key
    config: Config
    toolchain: Toolchain
    chip: Chip
    verdict: CheckVerdict
    checked_at: When
    winner: Outcome | None = None
    default: Outcome | None = None
    before_us: Time | None = None
    after_us: Time | None = None
    default_us: Time | None = None
    xla_us: Time | None = None
    least_limit_bytes: Bytes | None = None
    needed_bytes: Bytes | None = None
    allowed_bytes: Bytes | None = None
    passes_limit: bool = False
    verified: bool = False
    cause: Unchecked | None = None
    detail: Text = ""
    pushed_by: OmitDefault[Word] = ""
    before_vmem_bytes: Local[OmitNone[int | None]] = None
    vmem_bytes: Local[OmitNone[int | None]] = None
    against: Local[OmitDefault[str]] = ""
    fingerprint: Local[OmitDefault[str]] = ""
    is_default: Local[OmitDefault[bool]] = False
    asked: Local[OmitDefault[str]] = ""
    before: OmitNone[Outcome | None] = None

    @property
    def costs_us(self) -> float:
        """How much longer the config takes there than it did, or than the default does: the most
        that tuning there saves of it. 0 where no time is known; another chip has other times."""
        before_us = self.before_us if self.chip is self.key.chip else None
        known = [us for us in (before_us, self.default_us) if us is not None]
        return max(0.0, self.after_us - min(known)) if known and self.after_us else 0.0

    @property
    def target(self) -> Key:
        """The key that its trials are kept under."""
        source = self.fingerprint or self.key.fingerprint
        return replace(self.key, fingerprint=source, chip=self.chip, toolchain=self.toolchain)

    def unchecked(self, cause: Unchecked, detail: str = "") -> "Check":
        """The same without a verdict, and why."""
        return replace(self, verdict=CheckVerdict.NOT_CHECKED, cause=cause, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable set of records. Numbers grow until the database is restored from a copy, or a
    replica takes over that lags: the next one may have a number that another one had. 0, the empty
    one, is never stored.

    ``note`` says what made it, ``made_by`` with which token, empty for this machine's own work.
    """

    number: int
    created_at: datetime
    note: str = ""
    made_by: str = ""


def snapshot_id(number: int, created_at: datetime | None) -> str:
    """Of this one alone, whatever number others have; empty for the empty one."""
    if created_at is None:
        return ""
    named = f"{number} {created_at.astimezone(UTC).isoformat()}"
    return blake2b(named.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes one snapshot of another: ``records``, newest first, come in, ``removed`` go.
    ``claims``: of which keys something is now claimed and nothing proven, or not any more."""

    records: Sequence[Record] = ()
    removed: Sequence[Key] = ()
    claims: Mapping[Key, bool] = field(default_factory=dict)
