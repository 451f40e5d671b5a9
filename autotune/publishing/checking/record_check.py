"""One record under one toolchain on one chip: the cheap questions first, then two compiles.

A pushed record goes through the same, and through the gate, before anybody believes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autotune.declaring.calls.text import call_of
from autotune.domain.comparison import margin
from autotune.domain.compilers import CompileBaseline, Compilers, ListChoices, VerifyConfig, XlaCost
from autotune.domain.evidence import Verdict
from autotune.domain.key import KernelRef, KernelSpec, Key
from autotune.domain.outcome import (
    Crashed,
    Estimated,
    NotEstimated,
    Outcome,
    OutOfVmem,
    TimedOut,
    estimated_us,
)
from autotune.domain.problem import Config
from autotune.domain.record import (
    Check,
    CheckVerdict,
    Decision,
    Evidence,
    Method,
    Record,
    Trial,
    Unchecked,
    default_trial,
)
from autotune.domain.store import CandidateDecision, CandidateState, Rechecked, TrialStore
from autotune.domain.trace import Trace
from autotune.estimating.simulator import MODEL
from autotune.estimating.space import PassedOn, default_config, passed_on_of
from autotune.estimating.vmem import vmem_use
from autotune.publishing.publish import NO_DEFAULT, evidence_of, expected_us, verdict_on
from autotune.searching.one_config import evaluate, keep_trials, refused_early, trace_one
from autotune.searching.subject import Subject, describe_subject


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    """``config`` of ``key``, None for the kernel's own default, whatever that is; ``outcome``: what
    became of it there, None where nothing is known, and ``why``; ``cause``: what a check against
    nothing is left unchecked for. ``is_default``: it is the default. ``default``: the default as
    its search had it, where that is known. ``call``: of a decorated function, such a call in
    words."""

    key: Key
    config: Config | None
    outcome: Outcome | None
    is_default: bool = False
    default: Config | None = None
    why: str = ""
    call: str = ""
    cause: Unchecked = Unchecked.NO_BASELINE

    @property
    def failed(self) -> bool:
        """Whether it could not be used before."""
        return self.outcome is not None and vmem_bytes(self.outcome) is None


def prior_of(record: Record, kernels: Iterable[KernelSpec] = (), asked: str = "") -> PriorConfig:
    """What is published, as its search or its check estimated it. ``kernels``: what is known of
    kernels; ``asked``: as in ``call_of``."""
    return PriorConfig(
        key=record.key,
        config=record.config,
        outcome=Estimated(estimate=record.estimate, program=""),
        is_default=record.is_default,
        default=record.default.config,
        call=call_of(kernels, record.key, asked),
    )


def vmem_bytes(outcome: Outcome | None) -> int | None:
    """What a config that compiles uses of VMEM."""
    if isinstance(outcome, Estimated):
        return outcome.estimate.vmem_used_bytes
    return outcome.vmem_used_bytes if isinstance(outcome, NotEstimated) else None


_ROUNDED_BYTES = 5_243  # a message gives used bytes in MiB with two decimals
_MOST_RAISES = 2  # compiles under a higher limit: what arithmetic says, then what the compiler says


@dataclass(slots=True, kw_only=True)
class RecordChecker:
    """Checks a config of a kernel where its ``subject`` is, against what was ``prior``. What it
    compiles is kept as trials of the subject's key, and what is kept is not compiled again.
    ``blank``: the check with no verdict, by default of the prior's key there. ``xla``: what plain
    XLA takes is asked too, which often compiles for longer than the kernel."""

    compilers: Compilers
    store: TrialStore
    subject: Subject
    prior: PriorConfig
    blank: Check | None = None
    xla: bool = False
    _trials: list[Trial] = field(default_factory=list)
    _default: Config | None = None
    _passed_on: PassedOn | None = None

    def check(self) -> Check:
        """Raises ``AutotuneError`` where the compilers or the store cannot be used."""
        today = default_config(self.compilers.ask(self.subject.question(ListChoices)))
        self._trials = list(self.store.trials(self.subject.key))
        # As the record's search had it: with the semantics that it found legal.
        known = self.prior.default
        self._default = known if known is not None and known.axes == today.axes else today
        config = self.prior.config or today
        blank = self.blank or Check(
            key=self.prior.key,
            config=config,
            toolchain=self.subject.toolchain,
            chip=self.subject.chip.chip,
            verdict=CheckVerdict.NOT_CHECKED,
            checked_at=datetime.now(UTC),
        )
        # Sources are compared config by config.
        default = None if blank.against else self._outcome(self._default)
        winner = (self._is_default(today) and default) or self._outcome(config)
        asked = self.subject.question(CompileBaseline)
        cost = self.compilers.ask(asked) if self.xla else None
        check = replace(
            blank,
            config=config,
            winner=winner,
            default=default,
            before_us=estimated_us(self.prior.outcome),
            after_us=estimated_us(winner),
            default_us=estimated_us(default),
            xla_us=expected_us(cost, self.subject.chip) if isinstance(cost, XlaCost) else None,
            before_vmem_bytes=vmem_bytes(self.prior.outcome),
            vmem_bytes=vmem_bytes(winner),
        )
        if self.prior.failed and vmem_bytes(winner) is None:
            return _without_baseline(check, self.prior)
        if isinstance(winner, OutOfVmem):
            return self._with_limit(check, winner)
        return judged(check, self.prior)

    def _is_default(self, default: Config) -> bool:
        """A record whose default won has the default's blocks under any toolchain."""
        known = self.prior.config
        return self.prior.is_default and known is not None and known.axes == default.axes

    def _outcome(self, config: Config) -> Outcome:
        """What became of a config; kept as a trial. One that was given up on is tried again, and
        what an older model estimated is estimated again."""
        known = next((trial for trial in self._trials if trial.config == config), None)
        if known is not None and not is_stale(known.outcome):
            return known.outcome
        outcome = self._refused(config) or evaluate(self.compilers, self.subject, config)
        if known is None:
            key, default = self.subject.key, self._default
            new = [(config, outcome, 0.0)]
            (trial,) = keep_trials(self.store, key, self._trials, new, default=default)
            return outcome if is_stale(trial.outcome) else trial.outcome
        self.store.replace_outcome(self.subject.key, known.config, outcome)
        self._trials = [replace(t, outcome=outcome) if t is known else t for t in self._trials]
        return outcome

    def _refused(self, config: Config) -> Outcome | None:
        """By trace, rules and arithmetic alone: cheap, and often enough."""
        default, passes = self._default or config, lambda: self._passes(config)
        return refused_early(self.compilers, self.subject, config, default, passes)

    def _passes(self, config: Config) -> PassedOn:
        if self._passed_on is None:
            subject = self.subject
            self._passed_on = passed_on_of(
                self.compilers, subject.ref, subject.problem, config, subject.chip
            )
        return self._passed_on

    def _least_limit(self, config: Config, refused: OutOfVmem) -> int:
        """The bytes that the trace needs, where the compiler was not asked or its message means
        them; else the most that the message can mean."""
        traced = trace_one(self.compilers, self.subject, config)
        if isinstance(traced, Trace):
            expected = vmem_use(traced, self.subject.chip).expected_bytes
            if refused.by_rule:
                return max(refused.used_bytes, expected)
            if abs(expected - refused.used_bytes) <= _ROUNDED_BYTES:
                return expected
        return refused.used_bytes + _ROUNDED_BYTES

    def _with_limit(self, check: Check, refused: OutOfVmem) -> Check:
        """Arithmetic says the least limit, one compile shows it; a second one where the compiler
        needs more than arithmetic says."""
        config, capacity = check.config, self.subject.chip.vmem_capacity_bytes
        limit = self._least_limit(config, refused)
        check = replace(
            check,
            verdict=CheckVerdict.BROKEN,
            passes_limit=self._passes(config).limit,
            needed_bytes=limit if refused.by_rule else refused.used_bytes,
            allowed_bytes=refused.allowed_bytes,
        )
        if not check.passes_limit and limit <= capacity:
            return replace(check, verdict=CheckVerdict.NEEDS_LIMIT, least_limit_bytes=limit)
        raised: Outcome = refused
        for _ in range(_MOST_RAISES if check.passes_limit else 0):
            if not isinstance(raised, OutOfVmem) or limit > capacity:
                break
            raised = self._outcome(config.replace(vmem_limit_bytes=limit))
            if isinstance(raised, OutOfVmem):
                limit = self._least_limit(config, raised)
        if not isinstance(raised, (Estimated, NotEstimated)):
            return replace(check, winner=raised)
        least = raised.estimate.vmem_used_bytes if isinstance(raised, Estimated) else limit
        return replace(
            check,
            verdict=CheckVerdict.NEEDS_LIMIT,
            winner=raised,
            least_limit_bytes=least,
            after_us=estimated_us(raised),
            vmem_bytes=vmem_bytes(raised),
        )


def judged(check: Check, prior: PriorConfig) -> Check:
    """The verdict on what became of the winner and the default."""
    winner, default = check.winner, check.default
    if isinstance(winner, (TimedOut, Crashed)):
        return check.unchecked(Unchecked.NO_ANSWER, winner.reason)
    if isinstance(winner, NotEstimated):
        if isinstance(prior.outcome, NotEstimated) and prior.outcome.program == winner.program:
            return replace(check, verdict=CheckVerdict.SAME)
        return check.unchecked(Unchecked.NO_ESTIMATE, winner.reason)
    if not isinstance(winner, Estimated):
        return replace(check, verdict=CheckVerdict.BROKEN)
    if isinstance(default, Estimated) and not prior.is_default:
        least = margin(default.estimate, winner.estimate)
        if default.estimate.time_us < winner.estimate.time_us * (1 - least):
            known = prior.outcome.estimate if isinstance(prior.outcome, Estimated) else None
            alike = known is not None and known.model == winner.estimate.model
            before_us = check.before_us if alike else None  # nobody compares times of two models
            return replace(check, verdict=CheckVerdict.DEFAULT_WINS, before_us=before_us)
    if check.chip is not check.key.chip:
        return replace(check, verdict=CheckVerdict.SAME)
    if not isinstance(prior.outcome, Estimated):
        return _without_baseline(check, prior)
    before, after = prior.outcome.estimate, winner.estimate
    if before.model != after.model:
        return check.unchecked(Unchecked.OTHER_MODEL, before.model)
    least = margin(before, after)
    if after.time_us > before.time_us * (1 + least):
        return replace(check, verdict=CheckVerdict.SLOWER)
    if after.time_us < before.time_us * (1 - least):
        return replace(check, verdict=CheckVerdict.FASTER)
    return replace(check, verdict=CheckVerdict.SAME)


def is_stale(outcome: Outcome | None) -> bool:
    """Whether it says nothing for good: no answer, or a time of another model."""
    if isinstance(outcome, Estimated):
        return outcome.estimate.model != MODEL
    return isinstance(outcome, (TimedOut, Crashed))


def _without_baseline(check: Check, prior: PriorConfig) -> Check:
    known = prior.outcome
    if known is None:
        return check.unchecked(prior.cause, prior.why)
    unknown = Unchecked.NO_ESTIMATE if isinstance(known, NotEstimated) else Unchecked.NO_ANSWER
    is_unknown = isinstance(known, (NotEstimated, TimedOut, Crashed))
    cause = unknown if is_unknown else Unchecked.NO_BASELINE
    return replace(check.unchecked(cause), before=known)


class OwnTrials(list[Trial]):
    """Implements ``TrialStore`` in memory, for one key: what others have pushed of it is not
    believed."""

    def trials(self, key: Key, *, pushed: bool = False) -> Sequence[Trial]:  # noqa: ARG002 (one key)
        return self

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:  # noqa: ARG002 (one key)
        self += trials
        return len(trials)

    def replace_outcome(self, key: Key, config: Config, outcome: Outcome) -> None:
        """Nothing here was kept by an older model."""


def recheck(compilers: Compilers, record: Record, ref: KernelRef, by: str) -> Rechecked:
    """Compile the config of a record, and the kernel's default, under the record's own toolchain,
    and run the gate. What is accepted has the estimates of these compiles; only a measurement is
    still what the token says. ``by``: the name of the worker. Raises ``AutotuneError``.
    """
    store, key = OwnTrials(), record.key
    check = RecordChecker(
        compilers=compilers,
        store=store,
        subject=describe_subject(compilers, ref, key.chip, key.problem, key.toolchain.options),
        prior=prior_of(replace(record, is_default=False)),  # else its times are not compared
    ).check()
    undecided = CandidateDecision(state=CandidateState.UNVERIFIED)
    refused = CandidateDecision(state=CandidateState.REFUSED)
    if check.cause not in (None, Unchecked.OTHER_MODEL):  # whose times are not taken over
        return Rechecked(decision=undecided, check=check)
    if check.verdict in _refused(record) or not isinstance(check.winner, Estimated):
        return Rechecked(decision=refused, check=check)
    question = VerifyConfig(ref=ref, problem=key.problem, config=record.config, chip=key.chip)
    verdict = verdict_on(compilers, question)
    if not verdict.ok:
        decision = undecided if verdict.ok is None else refused
        return Rechecked(decision=decision, check=check, verdict=verdict)
    return Rechecked(
        decision=CandidateDecision(state=CandidateState.ACCEPTED),
        check=check,
        verdict=verdict,
        record=_as_checked(record, check, verdict, store, by),
        trials=tuple(store),
    )


def _refused(record: Record) -> Sequence[CheckVerdict]:
    """What a measurement may know better than an estimate is left to it."""
    unusable = CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT
    return unusable if record.method is Method.MEASURED else (*unusable, CheckVerdict.DEFAULT_WINS)


def _as_checked(
    record: Record, check: Check, verdict: Verdict, trials: Sequence[Trial], by: str
) -> Record:
    assert isinstance(check.winner, Estimated)
    default = default_trial(trials)
    winner = next(trial for trial in trials if trial.config == record.config)
    measured = record.method is Method.MEASURED
    return replace(
        record,
        estimate=check.winner.estimate,
        program=check.winner.program,
        default=evidence_of(default.config, default.outcome) if default else NO_DEFAULT,
        baseline=Evidence(config=None, time_us=None, expected_us=check.xla_us),
        is_default=winner is default,
        decision=record.decision if measured else Decision(),
        reason=record.reason if measured else "",
        verified=True,
        verification="",
        proof=verdict.kept_proof,
        checks=(),
        checked_by=by,
    )
