"""From the trials of a key to its published record: compare, verify, decide, and say why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.compiler.client import Compiler, XlaCost
from autotune.compiler.pool import CompilerPool
from autotune.ports import Store
from autotune.search.baseline import compared, evidence
from autotune.search.loop import Result, Subject
from autotune.search.ties import RULE, by_rule, is_faster, ties, time_us
from autotune.trial import Evidence, Record, Trial

VERIFY_SEEDS = (0, 1, 2)
_MAX_FINALISTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made."""

    ok: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The record, or None with the ``reason``; and the winner that the reason speaks of.

    ``ties``: what could have won as well, the fastest first.
    """

    record: Record | None
    reason: str
    winner: Trial | None
    default: Trial | None
    baseline: Evidence
    ties: tuple[Trial, ...] = ()
    wrong: tuple[tuple[Trial, str], ...] = ()


def publish(
    pool: CompilerPool, store: Store, result: Result, *, allow_unverified: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> Publication:  # fmt: skip
    """Verify the best candidates in turn and publish the first that is right and faster.

    The default is published when nothing beats it by more than the model can mistake. What is not
    verified is not published unless ``allow_unverified``; it then carries the label.
    """
    subject = result.subject
    baseline = _baseline(pool, result)
    default = next((t for t in result.trials if t.number == 0), None)
    wrong: list[tuple[Trial, str]] = []
    for trial in finalists(result.trials, default):
        announce(f"verifying trial {trial.number}: {trial.config}")
        verdict = _verify(pool, subject, trial)
        if verdict.ok is False:
            wrong.append((trial, verdict.reason))
            store.mark_wrong(subject.key, trial.number, verdict.reason)
            continue
        equal = _equal(result.trials, default, [t for t, _ in wrong])
        reason = _reason(trial, default, equal)
        assert trial.estimate is not None
        baseline = replace(baseline, note=compared(trial.estimate, baseline))
        may = verdict.ok is True or allow_unverified
        record = _record(result, trial, default, baseline, verdict, reason) if may else None
        if record is None:
            reason = f"not published, because it could not be verified: {verdict.reason}"
        else:
            store.save_record(record)
        return Publication(
            record=record, reason=reason, winner=trial, default=default, baseline=baseline,
            ties=equal, wrong=tuple(wrong),
        )  # fmt: skip
    reason = "every finalist gave a wrong result" if wrong else "no candidate could be estimated"
    return Publication(
        record=None, reason=reason, winner=None, default=default, baseline=baseline,
        wrong=tuple(wrong),
    )  # fmt: skip


def finalists(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """What to verify, in turn: what beats the default by more than the model can mistake, the ties
    of the fastest by their rule and the others by time; the default itself at the end."""
    better = _better(trials, default)
    equal = ties(better)
    others = [t for t in better if t not in equal]
    ordered = [*by_rule(equal), *others][:_MAX_FINALISTS]
    return ordered if default is None or default.estimate is None else [*ordered, default]


def _better(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """The trials that are faster than the default for sure, the fastest first; all without one."""
    timed = sorted((t for t in trials if t.estimate), key=time_us)
    if default is None or default.estimate is None:
        return timed
    return [t for t in timed if is_faster(t, default)]


def _equal(
    trials: Sequence[Trial], default: Trial | None, wrong: Sequence[Trial]
) -> tuple[Trial, ...]:
    """What could have won as well; where only the default can, what it cannot be told from."""
    right = [t for t in trials if t not in wrong]
    return tuple(ties(_better(right, default)) or ties(right))


def _verify(pool: CompilerPool, subject: Subject, trial: Trial) -> Verdict:
    def job(compiler: Compiler) -> Verdict:
        chip = subject.chip.chip
        answer = compiler.verify(subject.ref, subject.problem, trial.config, chip, VERIFY_SEEDS)
        if isinstance(answer, dict):
            return Verdict(ok=answer["ok"], reason=answer["reason"])
        return Verdict(ok=None, reason=f"{answer.kind}: {answer.reason}")

    return pool.run(job)


def _baseline(pool: CompilerPool, result: Result) -> Evidence:
    """What is known of plain XLA; never a measurement."""
    subject = result.subject
    cost = pool.run(lambda c: c.baseline(subject.ref, subject.problem, subject.chip.chip))
    if not isinstance(cost, XlaCost):
        return Evidence(config=None, time_us=None, note=f"XLA baseline: {cost.reason}")
    io_bytes = result.space.candidates[0].trace.io_bytes
    return evidence(cost, io_bytes, subject.problem.dtype, subject.chip)


def _reason(trial: Trial, default: Trial | None, equal: Sequence[Trial]) -> str:
    if default is None or default.estimate is None:
        why = "there is none" if default is None else f"{default.outcome.kind}"
        return f"the default is no alternative: {why}"
    if trial.number == default.number:
        return (
            "nothing was estimated to be faster than the default by more than the model can mistake"
        )
    reason = f"estimated {time_us(default) / time_us(trial):.2f} times as fast as the default"
    if trial in equal and len(equal) > 1:
        reason += f"; chosen by {RULE}, among {len(equal)} that cannot be told from the fastest"
    return reason


def _record(
    result: Result, trial: Trial, default: Trial | None, baseline: Evidence, verdict: Verdict,
    reason: str,
) -> Record:  # fmt: skip
    assert trial.estimate is not None
    is_default = default is not None and trial.number == default.number
    return Record(
        key=result.subject.key,
        config=trial.config,
        estimate=trial.estimate,
        default=_default_evidence(default),
        baseline=baseline,
        is_default=is_default,
        reason=reason,
        verification=(
            f"right in Pallas TPU interpret mode, {verdict.reason}"
            if verdict.ok
            else f"not verified: {verdict.reason}"
        ),
        verified=verdict.ok is True,
        trials=len(result.trials),
        method="estimated",
        created_at=datetime.now(UTC),
    )


def _default_evidence(default: Trial | None) -> Evidence:
    if default is None:
        return Evidence(config=None, time_us=None, note="the default was not tried")
    time_us = default.estimate.time_us if default.estimate else None
    note = "" if time_us is not None else f"{default.outcome.kind}: {default.outcome.reason}"
    return Evidence(config=default.config, time_us=time_us, note=note)
