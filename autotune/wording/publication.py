"""Why a record is published, or nothing is: the sentences that are kept with it."""

from collections.abc import Sequence

from autotune.domain.chip import Chip
from autotune.domain.comparison import Comparison
from autotune.domain.measurement import Measurement, NotMeasured, Timed
from autotune.domain.outcome import Failure, Outcome
from autotune.domain.record import Evidence, Method, Record
from autotune.domain.trial import Trial
from autotune.domain.verdict import ProofLevel, Standard, Verdict
from autotune.wording.comparison import why
from autotune.wording.outcome import kind_and_reason, reason_of, verdict_reason
from autotune.wording.units import error_bar, micros, ratio

TIE_RULE = (
    "an error bar of at most twice the narrowest, then the least VMEM, then the larger blocks"
)
NO_DEFAULT = "the default was not tried"
PREDICTED_DEFAULT = (
    "predicted from other problems of the kernel, not compiled: that it compiles is said by the "
    "rules and the arithmetic of VMEM alone"
)


def times_default(default: Evidence, time_us: float | None) -> str:
    """How many times as fast as the default, with a label where that is only predicted."""
    if not default.is_predicted:
        return ratio(default.time_us, time_us)
    return f"{ratio(default.expected_us, time_us)} {error_bar(default.expected_error)} predicted"


def default_time(default: Evidence) -> str:
    """Its time with the same label, and a dash where there is none."""
    if not default.is_predicted:
        return micros(default.time_us)
    return f"{micros(default.expected_us)} {error_bar(default.expected_error)} predicted"


def estimated_reason(
    winner: Trial, default: Trial | None, tied: int, predicted: Evidence | None = None
) -> str:
    """By estimate. ``tied``: how many, the winner among them, cannot be told from the fastest; 0
    where it is not one of them. ``predicted``: of a default that was not compiled."""
    assert winner.estimate is not None
    if default is None:
        if predicted is None or not predicted.expected_us:
            return "the default is no alternative: there is none"
        times = predicted.expected_us / winner.estimate.time_us
        reason = f"estimated {times:.2f} times as fast as the default is predicted to be"
        reason += f" ({error_bar(predicted.expected_error)}; it was not compiled)"
        return _among(reason, tied)
    if default.estimate is None:
        return f"the default is no alternative: {default.outcome.kind}"
    if winner.number == default.number:
        return (
            "nothing was estimated to be faster than the default by more than the model can mistake"
        )
    times = default.estimate.time_us / winner.estimate.time_us
    return _among(f"estimated {times:.2f} times as fast as the default", tied)


def _among(reason: str, tied: int) -> str:
    if tied > 1:
        reason += f"; chosen by {TIE_RULE}, among {tied} that cannot be told from the fastest"
    return reason


def undecided_reason(run: Measurement | NotMeasured, default: Trial | None) -> str:
    """Why a measurement decided nothing."""
    if isinstance(run, NotMeasured):
        return run.reason
    if run.void:
        return run.void
    if run.winner is None:
        return next((t.refused for t in run.timed if t.refused), "no config could be timed")
    own = None if default is None else run.of(default.config)
    assert own is not None
    return f"the default could not be measured: {own.refused}"


def in_place_of_measuring(estimated: str, undecided: str) -> str:
    """The reason of an estimate that decided because measuring did not."""
    return f"{estimated}; by estimate, because measuring decided nothing: {undecided}"


def measured_reason(run: Measurement, winner: Trial, default: Trial | None) -> str:
    """By a measurement that has a winner."""
    assert run.winner is not None
    own = None if default is None else run.of(default.config)
    if default is not None and winner.number == default.number:
        if run.winner.config == default.config:
            return f"the default was measured to be the fastest{_against_next(run)}"
        return "nothing was measured to be faster than the default by more than the noise"
    if own is None or own.ratio is None:
        text = "measured to be the fastest; the default was no alternative"
    else:
        text = f"measured {own.ratio:.2f} times as fast as the default ({_interval(own)})"
    return text + _against_next(run)


def unpublished_reason(wrong: int, unverified: Sequence[str]) -> str:
    """Why no finalist could be published. ``wrong``: how many gave a wrong result; ``unverified``:
    why each of the others could not be checked."""
    if unverified:
        count = f"{len(unverified)} finalist{'s' * (len(unverified) > 1)}"
        also = f" and {wrong} gave a wrong result" if wrong else ""
        return f"{count} could not be verified{also}: {unverified[0]}"
    return "every finalist gave a wrong result" if wrong else "no candidate could be estimated"


def verification(verdict: Verdict) -> str:
    """How a result was checked, or why it was not."""
    if not verdict.ok:
        return f"not verified: {verdict_reason(verdict)}"
    proof = verdict.proof
    right = _AGREES[proof.standard]
    text = f"{right} in {_RUN_IN[proof.level]}, {verdict_reason(verdict)}"
    text += f" (more could not be run: {proof.lacks})" * bool(proof.lacks)
    return text + f"; verified with jax {proof.jax}" * bool(proof.jax)


_AGREES = {
    Standard.REFERENCE: "correct",
    Standard.DEFAULT: "agrees with the default config",
}
_RUN_IN = {
    ProofLevel.FULL: "Pallas TPU interpret mode",
    ProofLevel.ONE_CORE: "Pallas TPU interpret mode with one core and without race detection",
    ProofLevel.PLAIN: "plain Pallas interpret mode, which simulates nothing of a TPU: no races, no "
    "memory out of bounds, no order of cores",
}


def verified_label(record: Record) -> str:
    """A few words for a table: whether it was verified, and what is less than all of it. *Verified*
    is what agrees with a reference."""
    if not record.verified:
        return "NOT VERIFIED"
    proof = record.proof
    right = "verified" if proof.standard is Standard.REFERENCE else _AGREES[proof.standard]
    less = [_LABELS[proof.level]] if proof.level else []
    less += [f"with jax {proof.jax}"] if proof.jax else []
    return f"{right} {', '.join(less)}".rstrip()


_LABELS = {
    ProofLevel.ONE_CORE: "on one core without races",
    ProofLevel.PLAIN: "in plain interpret mode only",
}


def who_says(record: Record) -> str:
    """Whose word a record is; empty where it was searched with this database."""
    if not record.pushed_by:
        return ""
    token = f"the token {record.pushed_by}"
    if not record.checked_by:
        return f"pushed with {token}: its times, and that it was verified, are what {token} says"
    again = f"pushed with {token}; compiled again and verified by {record.checked_by}"
    measured = record.method is Method.MEASURED
    return again + (f", its measurement is what {token} says" if measured else "")


def verifying(trial: Trial) -> str:
    return f"verifying {trial.config}"


def no_baseline(why: Failure) -> str:
    return f"XLA baseline: {reason_of(why)}"


def not_timed(outcome: Outcome) -> str:
    """Of what has no estimate."""
    return kind_and_reason(outcome)


def why_estimated(chip: Chip, attached: Sequence[Chip]) -> str:
    """Why nothing was measured, in one sentence."""
    if not attached:
        return "Estimated, not measured: no TPU is attached to this machine."
    return f"Estimated, not measured: a {attached[0]} is attached, no {chip}."


def _against_next(run: Measurement) -> str:
    other = run.runner_up
    if other is None or other.ratio is None:
        return ""
    apart = "distinguishable" if other.slower else "not distinguishable"
    return f"; the runner-up takes {other.ratio:.3f} times as long ({_interval(other)}), {apart}"


def _interval(timed: Timed) -> str:
    return f"{timed.low:.3f} to {timed.high:.3f}"


def not_served(best: Comparison) -> str:
    """Why the fastest trial is not what is served. ``best``: the fastest is the faster of these."""
    if best.tie:
        return f"{why(best)} Of such the one with {TIE_RULE} is served."
    return (
        f"{best.faster.name} is estimated {best.times_as_fast:.2f} times as fast as what is "
        "served: it could not be verified, or came in after the last publication."
    )
