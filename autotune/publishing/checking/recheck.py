"""A pushed record, compiled again and run through the gate before anybody believes it."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.domain.compilers import Compilers, VerifyConfig
from autotune.domain.key import KernelRef, Key
from autotune.domain.outcome import Estimated, Outcome
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
from autotune.domain.record_candidate import CandidateDecision, CandidateState, Rechecked
from autotune.domain.verdict import Verdict
from autotune.publishing.checking.prior import prior_of
from autotune.publishing.checking.record_check import RecordChecker
from autotune.publishing.publish import NO_DEFAULT, evidence_of, verdict_on
from autotune.searching.subject import describe_subject


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
    store = OwnTrials()
    check = _checked(compilers, store, record, ref)
    undecided = CandidateDecision(state=CandidateState.UNVERIFIED)
    refused = CandidateDecision(state=CandidateState.REFUSED)
    if check.cause not in (None, Unchecked.OTHER_MODEL):  # whose times are not taken over
        return Rechecked(decision=undecided, check=check)
    if check.verdict in _refused(record) or not isinstance(check.winner, Estimated):
        return Rechecked(decision=refused, check=check)
    question = VerifyConfig(
        ref=ref, problem=record.key.problem, config=record.config, chip=record.key.chip
    )
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


def _checked(compilers: Compilers, store: OwnTrials, record: Record, ref: KernelRef) -> Check:
    key = record.key
    options = key.toolchain.options
    subject = describe_subject(compilers, ref, key.chip, lambda _: key.problem, options)
    return RecordChecker(
        compilers=compilers,
        store=store,
        subject=subject,
        prior=prior_of(replace(record, is_default=False)),  # else its times are not compared
    ).check()


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
