"""One record under one toolchain on one chip: the cheap questions first, then two compiles."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autotune.candidates import rules
from autotune.candidates.space import default_config, passed_on_of
from autotune.candidates.vmem import vmem_use
from autotune.cost_model.comparison import margin
from autotune.domain.check import Check, Unchecked
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import XlaCost
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.outcome import (
    Crashed,
    Estimated,
    Failure,
    NotEstimated,
    Outcome,
    OutOfVmem,
    TimedOut,
)
from autotune.domain.record import Record
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace
from autotune.domain.trial import Trial
from autotune.ports.compilers import Compilers
from autotune.ports.search import SearchStore
from autotune.publishing.baseline import cycles_us
from autotune.searching.loop import Subject, evaluate

_ROUNDED_BYTES = 5_243  # a message gives used bytes in MiB with two decimals


@dataclass(slots=True, kw_only=True)
class RecordChecker:
    """Checks records of kernels under the toolchain of its compilers. What it compiles is kept as
    trials of the new key, and what is kept is not compiled again."""

    compilers: Compilers
    store: SearchStore
    toolchain: Toolchain

    def check(self, record: Record, ref: KernelRef, chip: ChipInfo) -> Check:
        """Raises ``AutotuneError`` where the compilers or the store cannot be used."""
        spec = self.compilers.describe(ref)
        blank = Check(
            key=record.key,
            config=record.config,
            toolchain=self.toolchain,
            chip=chip.chip,
            verdict=CheckVerdict.NOT_CHECKED,
            checked_at=datetime.now(UTC),
        )
        if spec.fingerprint != record.key.fingerprint:
            return replace(blank, cause=Unchecked.SOURCE_CHANGED, detail=spec.fingerprint)
        self.store.save_kernel(spec)
        subject = Subject(
            ref=ref, spec=spec, problem=record.key.problem, chip=chip, toolchain=self.toolchain
        )
        return _OneCheck(self, subject, record, blank).done()


@dataclass(slots=True)
class _OneCheck:
    checker: RecordChecker
    subject: Subject
    record: Record
    blank: Check
    _kept: list[Trial] = field(default_factory=list)

    def done(self) -> Check:
        chip = self.subject.chip.chip
        choices = self.checker.compilers.choices(self.subject.ref, self.subject.problem, chip)
        own = default_config(choices)
        self._kept = list(self.checker.store.trials(self.subject.key))
        default = self._outcome(self._as_known(own), is_default=True)
        winner = default if self._is_default(own) else self._outcome(self.record.config)
        found = replace(
            self.blank,
            winner=winner,
            default=default,
            before_us=self._before_us(),
            after_us=_us(winner),
            default_us=_us(default),
            xla_us=self._xla_us(),
        )
        if isinstance(winner, OutOfVmem):
            return self._with_limit(found, winner)
        return judged(found, self.record)

    def _xla_us(self) -> float | None:
        """What XLA expects of the plain version."""
        subject = self.subject
        cost = self.checker.compilers.baseline(subject.ref, subject.problem, subject.chip.chip)
        return cycles_us(cost, subject.chip) or None if isinstance(cost, XlaCost) else None

    def _is_default(self, own: Config) -> bool:
        """A record whose default won has the default's blocks under any toolchain."""
        return self.record.config.axes == own.axes and self.record.is_default

    def _as_known(self, own: Config) -> Config:
        """The default as the record's search had it: with the semantics that it found legal."""
        known = self.record.default.config
        return known if known is not None and known.axes == own.axes else own

    def _before_us(self) -> float | None:
        """None where it says nothing of the time here: on another chip it does."""
        return self.record.estimate.time_us

    def _outcome(self, config: Config, *, is_default: bool = False) -> Outcome:
        """What became of a config; kept as a trial."""
        for trial in self._kept:
            if trial.config == config and not isinstance(trial.outcome, (TimedOut, Crashed)):
                return trial.outcome
        outcome = self._refused(config) or evaluate(self.checker.compilers, self.subject, config)
        self._keep(config, outcome, is_default=is_default)
        return outcome

    def _refused(self, config: Config) -> Outcome | None:
        """By trace and rules alone: cheap, and often enough."""
        traces = self._traces(config)
        if not isinstance(traces, list):
            return traces
        broken = rules.violation(traces[0], self.subject.chip)
        return rules.illegal(broken) if broken else None

    def _traces(self, config: Config) -> list[Trace] | Failure:
        subject, chip = self.subject, self.subject.chip
        (found,) = self.checker.compilers.traces(
            subject.ref, subject.problem, [config], orders=False, chip=chip.chip
        )
        return found

    def _keep(self, config: Config, outcome: Outcome, *, is_default: bool) -> None:
        taken = {trial.number for trial in self._kept}
        number = 0 if is_default and 0 not in taken else max({0, *taken}) + 1
        trial = Trial(
            number=number,
            config=config,
            outcome=outcome,
            seconds=0.0,
            created_at=datetime.now(UTC),
        )
        self.checker.store.save_trial(self.subject.key, trial)
        self._kept.append(trial)

    def _least_limit(self, winner: OutOfVmem) -> int:
        """The bytes that the trace needs, where the message means them; else the most that it can
        mean."""
        traces = self._traces(self.record.config)
        if isinstance(traces, list):
            expected = vmem_use(traces[0], self.subject.chip).expected_bytes
            if abs(expected - winner.used_bytes) <= _ROUNDED_BYTES:
                return expected
        return winner.used_bytes + _ROUNDED_BYTES

    def _with_limit(self, found: Check, winner: OutOfVmem) -> Check:
        """Arithmetic says the least limit, one compile shows it."""
        subject, chip = self.subject, self.subject.chip
        passes = passed_on_of(
            self.checker.compilers, subject.ref, subject.problem, self.record.config, chip
        ).limit
        limit = self._least_limit(winner)
        found = replace(found, passes_limit=passes, verdict=CheckVerdict.BROKEN)
        if limit > chip.vmem_capacity_bytes:
            return found
        if not passes:
            return replace(
                found,
                verdict=CheckVerdict.NEEDS_LIMIT,
                least_limit_bytes=limit,
                needed_bytes=winner.used_bytes,
                allowed_bytes=winner.allowed_bytes,
            )
        raised = self._outcome(self.record.config.replace(vmem_limit_bytes=limit))
        if not isinstance(raised, (Estimated, NotEstimated)):
            return replace(found, winner=raised)
        least = raised.estimate.vmem_used_bytes if isinstance(raised, Estimated) else limit
        return replace(
            found,
            verdict=CheckVerdict.NEEDS_LIMIT,
            winner=raised,
            least_limit_bytes=least,
            needed_bytes=winner.used_bytes,
            allowed_bytes=winner.allowed_bytes,
            after_us=_us(raised),
        )


def judged(found: Check, record: Record) -> Check:
    """The verdict on what became of the winner and the default."""
    winner, default = found.winner, found.default
    if isinstance(winner, (TimedOut, Crashed)):
        return replace(found, cause=Unchecked.NO_ANSWER, detail=winner.reason)
    if isinstance(winner, NotEstimated):
        return replace(found, cause=Unchecked.NO_ESTIMATE, detail=winner.reason)
    if not isinstance(winner, Estimated):
        return replace(found, verdict=CheckVerdict.BROKEN)
    if isinstance(default, Estimated) and not record.is_default:
        least = margin(default.estimate, winner.estimate)
        if default.estimate.time_us < winner.estimate.time_us * (1 - least):
            return replace(found, verdict=CheckVerdict.DEFAULT_WINS)
    if found.chip is not found.key.chip:
        return replace(found, verdict=CheckVerdict.SAME)
    before, after = record.estimate, winner.estimate
    least = margin(before, after)
    if after.time_us > before.time_us * (1 + least):
        return replace(found, verdict=CheckVerdict.SLOWER)
    if after.time_us < before.time_us * (1 - least):
        return replace(found, verdict=CheckVerdict.FASTER)
    return replace(found, verdict=CheckVerdict.SAME)


def _us(outcome: Outcome) -> float | None:
    return outcome.estimate.time_us if isinstance(outcome, Estimated) else None
