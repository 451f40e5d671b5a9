"""From the trials of a key to its published record: compare, verify, decide, and say why.

Plain XLA has a bound, and the simulated time of its own program.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from autotune.domain.compilers import CompileBaseline, Compilers, VerifyConfig, XlaCost
from autotune.domain.evidence import FailedCheck, Measurement, NotMeasured, Verdict
from autotune.domain.key import ChipInfo
from autotune.domain.outcome import Estimate, Estimated, Outcome, WrongResult
from autotune.domain.problem import Config
from autotune.domain.record import (
    PASSED,
    Decision,
    Evidence,
    GateState,
    Method,
    Record,
    Trial,
    default_trial,
)
from autotune.domain.store import Store
from autotune.estimating.cost_model.operation import XlaTime, xla_time
from autotune.estimating.roofline import peak_ops_per_s
from autotune.publishing.estimated_ties import (
    Measure,
    better,
    by_rule,
    candidate,
    contenders,
    decides,
    different,
    measured_winner,
    shortlist,
    ties,
)
from autotune.searching.subject import SearchResult

NewCompilers = Callable[[], AbstractContextManager[Compilers]]
"""Opens compilers for as long as they are needed."""


class OpenStore(Protocol):
    """Opens the database; one that is not there is made where ``create`` is true. Raises
    ``StoreError``."""

    def __call__(self, *, create: bool) -> AbstractContextManager[Store]: ...


def running(compilers: Compilers) -> NewCompilers:
    """Compilers that are there already, and stay."""
    return lambda: nullcontext(compilers)


def opened(store: Store) -> OpenStore:
    """A database that is open already, and stays."""
    return lambda *, create: nullcontext(store)  # noqa: ARG005 (it is there)


def evidence(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> Evidence:
    """The bound as the time, the estimate beside it."""
    whole = xla_time(cost.schedule, (), chip)
    expected = _expected_us(whole)
    return Evidence(
        config=None,
        time_us=bound_us(cost, io_bytes, dtype, chip),
        expected_us=expected,
        expected_error=None if expected is None else whole.error,
    )


def bound_us(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> float:
    """XLA's operations at peak or its arguments and results at full bandwidth, in microseconds.

    Both cores of a megacore take part. What XLA calls ``bytes accessed`` is no lower bound: it
    counts what stays on the chip between fusions.
    """
    compute = cost.flops / (peak_ops_per_s(dtype, chip) * chip.num_cores)
    return max(compute, io_bytes / (chip.hbm_bytes_per_s * chip.num_cores)) * 1e6


def expected_us(cost: XlaCost, chip: ChipInfo) -> float | None:
    """The time of XLA's own program, by the same means as that of a kernel; None where it depends
    on data, or waits for other devices."""
    return _expected_us(xla_time(cost.schedule, (), chip))


def _expected_us(whole: XlaTime) -> float | None:
    return None if whole.unknown or whole.untimed else whole.time_us or None


_MAX_FINALISTS = 8
_LEAST_BUDGET_S = 15.0
_EVERY_S = 4.0

_log = logging.getLogger("autotune.gate")

_STATES = {False: GateState.REFUSED, None: GateState.NOT_VERIFIED}
NO_DEFAULT = Evidence(config=None, time_us=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The record, or None; and the winner. ``failure``: what kept it from being made.

    ``ties``: what could have won as well, the fastest first; ``wrong`` and ``unverified``: the
    finalists that came before the winner, each with what the gate said; ``states``: by the number
    of a trial, of each program that the gate was asked about. ``verification_s``: wall clock of the
    winner's.
    """

    record: Record | None
    winner: Trial | None
    default: Trial | None
    baseline: Evidence
    verification_s: float = 0.0
    ties: tuple[Trial, ...] = ()
    wrong: tuple[tuple[Trial, Verdict], ...] = ()
    unverified: tuple[tuple[Trial, Verdict], ...] = ()
    states: Mapping[int, GateState] = field(default_factory=dict)
    failure: str = ""

    def state(self, trial: Trial) -> GateState:
        """What the gate said of its program."""
        return self.states.get(trial.number, GateState.NOT_VERIFIED)


def publish(
    compilers: Compilers,
    store: Store,
    result: "SearchResult",
    *,
    allow_unverified: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    measure: Measure | None = None,
) -> Publication:
    """Verify the best candidates in turn and publish the first that is right and faster.

    With ``measure`` the best ones are verified first, then timed, and the timing decides; where it
    decides nothing, the estimates do, and the record says why. The default is published when
    nothing beats it by more than the model, or the noise, can mistake. What cannot be verified is
    passed over unless ``allow_unverified``; it then carries the label.
    """
    default = default_trial(result.trials)
    key = result.subject.key
    earlier = (r for r in store.records(key.kernel, key.chip) if r.key == key and r.verified)
    before = next((record for record in earlier if not record.pushed_by), None)
    gate = _Gate(
        compilers, store, result, announce, allow_unverified=allow_unverified, before=before
    )
    draft = _Draft(result, default, _baseline(compilers, result), gate)
    published = (measure and _by_measurement(draft, measure)) or _by_estimate(draft)
    if (record := published.record) is not None:
        now = store.record(key)
        added = ("created_at", "checks", "rule")  # by the store, or since
        if now and replace(record, **{name: getattr(now, name) for name in added}) == now:
            published = replace(published, record=now)  # hosts need not ask again
        else:
            store.save_record(record)
    return replace(
        published,
        wrong=tuple(gate.wrong),
        unverified=tuple(gate.unverified),
        states={
            number: PASSED[verdict.proof.standard] if verdict.ok else _STATES[verdict.ok]
            for number, verdict in gate.verdicts.items()
        },
    )


def unpublished(result: "SearchResult", failure: str) -> Publication:
    """What is left of a search whose publication failed."""
    return Publication(
        record=None,
        failure=failure,
        winner=None,
        default=default_trial(result.trials),
        baseline=NO_DEFAULT,
    )


@dataclass(slots=True)
class _Gate:
    """Verifies each program once, and marks in the store what is wrong. What won ``before`` is not
    verified again."""

    compilers: Compilers
    store: Store
    result: "SearchResult"
    announce: Callable[[str], None]
    allow_unverified: bool
    before: Record | None = None
    wrong: list[tuple[Trial, Verdict]] = field(default_factory=list)
    unverified: list[tuple[Trial, Verdict]] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    def passed(self, trial: Trial) -> Verdict | None:
        """The verdict of a trial that may be published, else None."""
        if trial.number not in self.verdicts:
            verdict, key = self._asked(trial), self.result.subject.key
            for same in same_verdict(trial, verdict, self.result.trials):
                self.verdicts[same.number] = verdict
                if verdict.ok is False:
                    self.store.replace_outcome(
                        key, same.config, wrong_result(same.estimate, verdict)
                    )
            if self.is_out(trial):
                (self.unverified if verdict.ok is None else self.wrong).append((trial, verdict))
        return None if self.is_out(trial) else self.verdicts[trial.number]

    def known(self, trial: Trial) -> Record | None:
        return self.before if self.before and self.before.config == trial.config else None

    def _asked(self, trial: Trial) -> Verdict:
        known = self.known(trial)
        if known is not None:
            return Verdict(ok=True, reason=known.proof.ran, proof=known.proof)
        self.announce(f"verifying {trial.config}")
        budget_s = max(_LEAST_BUDGET_S, sum(trial.seconds for trial in self.result.trials))
        subject, more = self.result.subject, {"config": trial.config, "budget_s": budget_s}
        return verdict_on(self.compilers, subject.question(VerifyConfig, **more), self.announce)

    def is_out(self, trial: Trial) -> bool:
        allowed = (True, None) if self.allow_unverified else (True,)
        return trial.number in self.verdicts and self.verdicts[trial.number].ok not in allowed


def same_verdict(trial: Trial, verdict: Verdict, trials: Sequence[Trial]) -> list[Trial]:
    """The trials that a verdict on one of them is about: all of its program. A race, and that there
    is none, is said of the same semantics only: in order a program may be right that races in
    parallel."""
    program, semantics = candidate(trial).identity, trial.config.dimension_semantics
    is_of_order = verdict.ok or verdict.check is FailedCheck.RACE
    return [
        other
        for other in trials
        if candidate(other).identity == program
        and (other.config.dimension_semantics == semantics or not is_of_order)
    ]


def verdict_on(
    compilers: Compilers, question: VerifyConfig, hear: Callable[[str], None] = _log.info
) -> Verdict:
    """``hear`` is told every few seconds for how long it goes on."""
    started, verdict = time.monotonic(), compilers.submit(question)
    while not wait([verdict], _EVERY_S).done:
        underway = compilers.underway(question)
        left = f", about {underway.left_s:.0f} s left" if underway else ""
        hear(f"verifying {question.config} for {time.monotonic() - started:.0f} s{left}")
    return verdict.result()


@dataclass(slots=True)
class _Draft:
    """What a publication is made of; the ``measurement``, or what kept it from being made."""

    result: "SearchResult"
    default: Trial | None
    baseline: Evidence
    gate: _Gate
    measurement: Measurement | None = None
    not_measured: str = ""


def _by_measurement(draft: _Draft, measure: Measure) -> Publication | None:
    """The publication that a measurement decides; None where it decides nothing."""
    default = draft.default
    racers = [t for t in shortlist(draft.result.trials, default) if draft.gate.passed(t)]
    if not racers:
        return None
    compared = default if default in racers else None
    measurement = measure(
        [candidate(t) for t in racers], None if compared is None else compared.config
    )
    if isinstance(measurement, NotMeasured):
        draft.not_measured = measurement.reason
        return None
    draft.measurement = measurement
    if not decides(measurement, compared):
        return None
    chosen = measured_winner(measurement, racers, compared)
    verdict = draft.gate.passed(chosen)
    assert verdict is not None
    return _published(draft, chosen, verdict, Method.MEASURED)


def _by_estimate(draft: _Draft) -> Publication:
    """The first finalist that is right."""
    for trial in finalists(draft.result.trials, draft.default, draft.result.default):
        verdict = draft.gate.passed(trial)
        if verdict is not None:
            return _published(draft, trial, verdict, Method.ESTIMATED)
    return Publication(record=None, winner=None, default=draft.default, baseline=draft.baseline)


def _published(draft: _Draft, trial: Trial, verdict: Verdict, method: Method) -> Publication:
    assert isinstance(trial.outcome, Estimated)
    default, before = draft.default, draft.gate.known(trial)
    # What could have won as well, but for what is out of the question.
    others = [other for other in draft.result.trials if not draft.gate.is_out(other)]
    equal = contenders(others, default, draft.result.default)
    record = Record(
        key=draft.result.subject.key,
        config=trial.config,
        estimate=trial.outcome.estimate,
        program=trial.outcome.program,
        default=evidence_of(default.config, default.outcome)
        if default
        else draft.result.default or NO_DEFAULT,
        baseline=draft.baseline,
        is_default=default is not None and trial.number == default.number,
        decision=Decision(
            tied=len(equal) if trial in equal else 0, not_measured=draft.not_measured
        ),
        verification=before.verification if before else "",
        verified=verdict.ok is True,
        proof=verdict.kept_proof,
        trials=len(draft.result.trials),
        method=method,
        created_at=datetime.now(UTC),
        measurement=draft.measurement,
    )
    return Publication(
        record=record,
        winner=trial,
        default=default,
        baseline=draft.baseline,
        ties=equal,
        verification_s=verdict.seconds,
    )


def wrong_result(estimate: Estimate | None, verdict: Verdict) -> WrongResult:
    """What becomes of a trial that the gate refuses."""
    return WrongResult(
        reason=verdict.reason,
        estimate=estimate,
        check=verdict.check.value,
        error=verdict.error,
        where=verdict.where,
    )


def finalists(
    trials: Sequence[Trial], default: Trial | None, predicted: Evidence | None = None
) -> list[Trial]:
    """What to verify, in turn: what beats the default by more than the model can mistake, the ties
    of the fastest by their rule and the others by time; the default itself at the end."""
    faster = better(trials, default, predicted)
    equal = ties(faster)
    others = [t for t in faster if t not in equal]
    ordered = different([*by_rule(equal), *others])[:_MAX_FINALISTS]
    return ordered if default is None or default.estimate is None else [*ordered, default]


def _baseline(compilers: Compilers, result: "SearchResult") -> Evidence:
    """What is known of plain XLA; never a measurement."""
    subject = result.subject
    cost = compilers.ask(subject.question(CompileBaseline))
    if not isinstance(cost, XlaCost):
        return Evidence(config=None, time_us=None, failure=cost)
    io_bytes = result.space.candidates[0].trace.io_bytes
    return evidence(cost, io_bytes, subject.problem.dtype, subject.chip)


def evidence_of(config: Config | None, outcome: Outcome) -> Evidence:
    """What stands behind the default: its estimated time, or why there is none."""
    if isinstance(outcome, Estimated):
        return Evidence(config=config, time_us=outcome.estimate.time_us)
    return Evidence(config=config, time_us=None, failure=outcome)
