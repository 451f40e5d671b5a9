"""From the trials of a key to its published record: compare, verify, decide, and say why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autotune.chip import ChipInfo
from autotune.compiler.client import Compiler, XlaCost
from autotune.compiler.pool import CompilerPool
from autotune.ports import Store
from autotune.roofline import peak_ops_per_s
from autotune.search.loop import Result, Subject
from autotune.trial import Evidence, Record, Trial

# Two estimates of one kernel that are closer than this are a tie: the simulator's own error against
# the compiler's estimate is 1 to 2 % on points it was not fitted on.
ESTIMATE_MARGIN = 0.03

VERIFY_SEEDS = (0, 1, 2)
_MAX_FINALISTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made."""

    ok: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The record, or None with the ``reason``; and the winner that the reason speaks of."""

    record: Record | None
    reason: str
    winner: Trial | None
    default: Trial | None
    baseline: Evidence
    wrong: tuple[tuple[Trial, str], ...] = ()


def publish(
    pool: CompilerPool, store: Store, result: Result, *, allow_unverified: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> Publication:  # fmt: skip
    """Verify the best candidates in turn and publish the first that is right and faster.

    The default is published when nothing beats it by ``ESTIMATE_MARGIN``. What is not verified is
    not published unless ``allow_unverified``; it then carries the label.
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
        reason = _reason(trial, default)
        may = verdict.ok is True or allow_unverified
        record = _record(result, trial, default, baseline, verdict, reason) if may else None
        if record is None:
            reason = f"not published, because it could not be verified: {verdict.reason}"
        else:
            store.save_record(record)
        return Publication(
            record=record, reason=reason, winner=trial, default=default, baseline=baseline,
            wrong=tuple(wrong),
        )  # fmt: skip
    reason = "every finalist gave a wrong result" if wrong else "no candidate could be estimated"
    return Publication(
        record=None, reason=reason, winner=None, default=default, baseline=baseline,
        wrong=tuple(wrong),
    )  # fmt: skip


def finalists(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """The best trials that beat the default by the margin, then the default itself."""
    timed = sorted((t for t in trials if t.estimate), key=_time_us)
    if default is None or default.estimate is None:
        return timed[:_MAX_FINALISTS]
    limit = default.estimate.time_us * (1 - ESTIMATE_MARGIN)
    return [*[t for t in timed if _time_us(t) < limit][:_MAX_FINALISTS], default]


def _time_us(trial: Trial) -> float:
    assert trial.estimate is not None
    return trial.estimate.time_us


def _verify(pool: CompilerPool, subject: Subject, trial: Trial) -> Verdict:
    def job(compiler: Compiler) -> Verdict:
        answer = compiler.verify(subject.ref, subject.problem, trial.config, VERIFY_SEEDS)
        if isinstance(answer, dict):
            return Verdict(ok=answer["ok"], reason=answer["reason"])
        return Verdict(ok=None, reason=f"{answer.kind}: {answer.reason}")

    return pool.run(job)


def _baseline(pool: CompilerPool, result: Result) -> Evidence:
    """A lower bound for plain XLA; never a measurement, never a prediction."""
    subject = result.subject
    cost = pool.run(lambda c: c.baseline(subject.ref, subject.problem, subject.chip.chip))
    if not isinstance(cost, XlaCost):
        return Evidence(config=None, time_us=None, note=f"XLA baseline: {cost.reason}")
    io_bytes = result.space.candidates[0].trace.io_bytes
    return Evidence(
        config=None,
        time_us=xla_bound_us(cost, io_bytes, subject.problem.dtype, subject.chip),
        note="plain XLA cannot be faster than this: its operations at the chip's peak, or its "
        "arguments and results once through HBM",
    )


def xla_bound_us(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> float:
    """XLA's operations at peak or its arguments and results at full bandwidth, in microseconds.

    Both cores of a megacore take part. What XLA calls ``bytes accessed`` is no lower bound: it
    counts what stays on the chip between fusions.
    """
    compute = cost.flops / (peak_ops_per_s(dtype, chip) * chip.num_cores)
    return max(compute, io_bytes / (chip.hbm_bytes_per_s * chip.num_cores)) * 1e6


def _reason(trial: Trial, default: Trial | None) -> str:
    if default is None or default.estimate is None:
        why = "there is none" if default is None else f"{default.outcome.kind}"
        return f"the default is no alternative: {why}"
    if trial.number == default.number:
        return f"nothing was estimated more than {ESTIMATE_MARGIN:.0%} faster than the default"
    assert trial.estimate is not None
    ratio = default.estimate.time_us / trial.estimate.time_us
    return f"estimated {ratio:.2f} times as fast as the default"


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
