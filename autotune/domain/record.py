"""The published answer for a key, and what stands behind it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from autotune.domain.codec import Local, OmitDefault, OmitNone
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.limits import Count, Limit, Share, Text, Time, When, Word, is_time
from autotune.domain.measurement import MeasuredConfig, Measurement
from autotune.domain.outcome import Estimate, Outcome, WrongResult
from autotune.domain.record_check import RecordCheck
from autotune.domain.rule import ShapeRule
from autotune.domain.toolchain import Toolchain
from autotune.domain.trial import GateState, Trial
from autotune.domain.verdict import FULL_PROOF, Proof

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

    For plain XLA ``time_us`` is a lower bound and ``expected_us`` an estimate, of which the truth
    is within ``expected_error`` as a share (None: XLA's own ``estimated_cycles``, which older
    versions kept); neither is to be shown beside other times without saying so. A default that was
    not compiled has no time, and what other problems predict of it as ``expected_us``.
    ``failure``: what became of it instead; ``note``: the sentence of an older version.
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
        others = tuple(one for one in self.checks if one.toolchain != check.toolchain)
        checks = (*others, check)
        if len(checks) > MOST_CHECKS:
            least = min(
                checks, key=lambda one: (not one.verdict.is_usable, one.checked_at, one.toolchain)
            )
            checks = tuple(one for one in checks if one is not least)
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
    is_verified = record is not None and record.proves(trial.config)
    return GateState.VERIFIED if is_verified else GateState.NOT_VERIFIED


def measured_config(record: Record | None, config: Config) -> MeasuredConfig | None:
    """What the run that a record rests on took of a config; None where it was not measured."""
    run = record.measurement if record else None
    timed = run.of(config) if run else None
    return MeasuredConfig(run, timed) if run and timed else None
