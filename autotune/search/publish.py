"""From the trials of a key to its published record: compare, verify, decide, and say why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.compiler.client import XlaCost
from autotune.compiler.pool import CompilerPool
from autotune.outcome import WrongResult
from autotune.ports import Store
from autotune.search.baseline import compared, evidence
from autotune.search.loop import Result, Subject
from autotune.search.ties import RULE, by_rule, is_faster, ties, time_us
from autotune.trial import Evidence, Record, Trial
from autotune.verification.verdict import Verdict

_MAX_FINALISTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The record, or None with the ``reason``; and the winner that the reason speaks of.

    ``ties``: what could have won as well, the fastest first; ``wrong`` and ``unverified``: the
    finalists that came before the winner, each with what the gate said. ``verification_s``: wall
    clock of the winner's.
    """

    record: Record | None
    reason: str
    winner: Trial | None
    default: Trial | None
    baseline: Evidence
    verification_s: float = 0.0
    ties: tuple[Trial, ...] = ()
    wrong: tuple[tuple[Trial, str], ...] = ()
    unverified: tuple[tuple[Trial, str], ...] = ()


def publish(
    pool: CompilerPool, store: Store, result: Result, *, allow_unverified: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> Publication:  # fmt: skip
    """Verify the best candidates in turn and publish the first that is right and faster.

    The default is published when nothing beats it by more than the model can mistake. What cannot
    be verified is passed over unless ``allow_unverified``; it then carries the label.
    """
    default = next((t for t in result.trials if t.number == 0), None)
    baseline = _baseline(pool, result)
    wrong: list[tuple[Trial, str]] = []
    unverified: list[tuple[Trial, str]] = []
    for trial in finalists(result.trials, default):
        announce(f"verifying trial {trial.number}: {trial.config}")
        verdict = _verify(pool, result.subject, trial)
        if verdict.ok is False:
            wrong.append((trial, verdict.reason))
            store.replace_outcome(result.subject.key, trial.number, _wrong(trial, verdict))
        elif verdict.ok is None and not allow_unverified:
            unverified.append((trial, verdict.reason))
        else:
            out = [t for t, _ in (*wrong, *unverified)]
            published = _published(result, trial, default, baseline, verdict, out)
            assert published.record is not None
            store.save_record(published.record)
            return replace(published, wrong=tuple(wrong), unverified=tuple(unverified))
    return Publication(
        record=None, reason=_nothing(wrong, unverified), winner=None, default=default,
        baseline=baseline, wrong=tuple(wrong), unverified=tuple(unverified),
    )  # fmt: skip


def _published(
    result: Result, trial: Trial, default: Trial | None, baseline: Evidence, verdict: Verdict,
    out: Sequence[Trial],
) -> Publication:  # fmt: skip
    """The winner with its record; ``out``: the finalists that are out of the question."""
    assert trial.estimate is not None
    equal = _equal(result.trials, default, out)
    reason = _reason(trial, default, equal)
    baseline = replace(baseline, note=compared(trial.estimate, baseline))
    record = _record(result, trial, default, baseline, verdict, reason)
    return Publication(
        record=record, reason=reason, winner=trial, default=default, baseline=baseline, ties=equal,
        verification_s=verdict.seconds,
    )  # fmt: skip


def _wrong(trial: Trial, verdict: Verdict) -> WrongResult:
    return WrongResult(
        reason=verdict.reason, estimate=trial.estimate, check=verdict.check, error=verdict.error,
        where=verdict.where,
    )  # fmt: skip


def _nothing(wrong: Sequence[object], unverified: Sequence[tuple[Trial, str]]) -> str:
    """Why no finalist could be published."""
    if unverified:
        count = f"{len(unverified)} finalist{'s' * (len(unverified) > 1)}"
        also = f" and {len(wrong)} gave a wrong result" if wrong else ""
        return f"{count} could not be verified{also}: {unverified[0][1]}"
    return "every finalist gave a wrong result" if wrong else "no candidate could be estimated"


def finalists(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """What to verify, in turn: what beats the default by more than the model can mistake, the ties
    of the fastest by their rule and the others by time; the default itself at the end."""
    better = _better(trials, default)
    equal = ties(better)
    others = [t for t in better if t not in equal]
    ordered = _different([*by_rule(equal), *others])[:_MAX_FINALISTS]
    return ordered if default is None or default.estimate is None else [*ordered, default]


def _different(trials: Sequence[Trial]) -> list[Trial]:
    """The first of each program: what compiles to the same is right or wrong together."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(getattr(trial.outcome, "program", ""), trial)
    return list(first.values())


def _better(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """The trials that are faster than the default for sure, the fastest first; all without one."""
    timed = sorted((t for t in trials if t.estimate), key=time_us)
    if default is None or default.estimate is None:
        return timed
    return [t for t in timed if is_faster(t, default)]


def _equal(
    trials: Sequence[Trial], default: Trial | None, out: Sequence[Trial]
) -> tuple[Trial, ...]:
    """What could have won as well; where only the default can, what it cannot be told from."""
    right = [t for t in trials if t not in out]
    return tuple(ties(_better(right, default)) or ties(right))


def _verify(pool: CompilerPool, subject: Subject, trial: Trial) -> Verdict:
    chip = subject.chip.chip
    return pool.run(lambda c: c.verify(subject.ref, subject.problem, trial.config, chip))


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
