"""What is published, and why, or why nothing is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.domain.comparison import XlaVerdict, by_estimate, expected_range
from autotune.domain.evidence import Measurement, Proof, ProofLevel, Standard, Timed, Verdict
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config
from autotune.domain.record import Decision, Evidence, GateState, Method, Record, Standing
from autotune.domain.store import CandidateState, Rechecked
from autotune.wording.match import finding, known_finding
from autotune.wording.outcome import kind_and_reason, ran_text, reason_of, verdict_reason
from autotune.wording.units import counted, error_bar, micros, ratio

VERDICTS = {
    XlaVerdict.UNKNOWN: "nothing is known of plain XLA",
    XlaVerdict.SLOWER: "plain XLA is slower",
    XlaVerdict.LIKELY_SLOWER: "plain XLA is likely slower",
    XlaVerdict.MAYBE_FASTER: "plain XLA may be faster, compare both on a TPU",
    XlaVerdict.LIKELY_FASTER: "plain XLA is likely faster",
    XlaVerdict.MEASURED_SLOWER: "plain XLA was measured to be slower",
    XlaVerdict.MEASURED_FASTER: "plain XLA was measured to be faster",
    XlaVerdict.MEASURED_TIE: "plain XLA was measured, and cannot be told apart",
}


def estimated_baseline(estimate: Estimate, baseline: Evidence) -> str:
    """Against an estimated kernel; empty where nothing is known."""
    if baseline.time_us is None:
        return ""
    text = f"{VERDICTS[by_estimate(estimate, baseline)]}: it needs at least "
    text += f"{baseline.time_us:.1f} µs"
    if not baseline.expected_us:
        return text
    least, most = expected_range(baseline)
    return f"{text}, and is likely to take {least:.1f} to {most:.1f} µs"


def measured_baseline(verdict: XlaVerdict, xla: Timed, times: float) -> str:
    """Against a measured kernel. ``times``: how many times as long plain XLA took."""
    return f"{VERDICTS[verdict]}: it took {micros(xla.median_us)}, {times:.2f} times as long"


if TYPE_CHECKING:  # light commands import this
    from autotune.publishing.publish import Publication

TIE_RULE = (
    "an error bar of at most twice the narrowest, then the least VMEM, then the larger blocks"
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


def in_words(record: Record) -> Record:
    """The same with its sentences, for readers that know nothing of what they are made of."""
    return replace(
        record,
        reason=record_reason(record),
        verification=record_verification(record),
        default=replace(record.default, note=default_note(record.default)),
        baseline=replace(record.baseline, note=baseline_note(record.estimate, record.baseline)),
        checks=tuple(replace(check, finding=known_finding(check)) for check in record.checks),
    )


def default_note(default: Evidence) -> str:
    """Why a default has no estimated time."""
    if default.note or default.time_us is not None:
        return default.note
    if default.is_predicted:
        return (
            "predicted from other problems of the kernel, not compiled: that it compiles is said "
            "by the rules and the arithmetic of VMEM alone"
        )
    return kind_and_reason(default.failure) if default.failure else "the default was not tried"


def baseline_note(estimate: Estimate, baseline: Evidence) -> str:
    """Plain XLA against the kernel."""
    if baseline.failure:
        return f"XLA baseline: {reason_of(baseline.failure)}"
    return baseline.note or estimated_baseline(estimate, baseline)


def record_reason(record: Record) -> str:
    """Why this config is the published one."""
    if record.reason:
        return record.reason
    decision = record.decision or Decision()
    if decision.tuned_with:
        return (
            f"checked, not searched: tuned with {decision.tuned_with}, compiles here and takes "
            f"{micros(record.estimate.time_us)}"
        )
    run = record.measurement
    if record.method is Method.MEASURED and run:
        return _measured_reason(run, record)
    text = _estimated_reason(record, decision.tied)
    undecided = decision.not_measured or (run and _undecided(run, record.default.config))
    if not undecided:
        return text
    return f"{text}; by estimate, because measuring decided nothing: {undecided}"


def _estimated_reason(record: Record, tied: int) -> str:
    default, time_us = record.default, record.estimate.time_us
    if default.is_predicted:
        assert default.expected_us is not None
        text = (
            f"estimated {default.expected_us / time_us:.2f} times as fast as the default is "
            f"predicted to be ({error_bar(default.expected_error)}; it was not compiled)"
        )
    elif default.time_us is None:
        kind = default.failure.kind if default.failure else "there is none"
        return f"the default is no alternative: {kind}"
    elif record.is_default:
        return (
            "nothing was estimated to be faster than the default by more than the model can mistake"
        )
    else:
        text = f"estimated {default.time_us / time_us:.2f} times as fast as the default"
    if tied > 1:
        text += f"; chosen by {TIE_RULE}, among {tied} that cannot be told from the fastest"
    return text


def _measured_reason(run: Measurement, record: Record) -> str:
    if record.is_default:
        if run.winner and run.winner.config == record.config:
            return f"the default was measured to be the fastest{_against_next(run)}"
        return "nothing was measured to be faster than the default by more than the noise"
    default = record.default.config and run.of(record.default.config)
    if not default or default.ratio is None:
        text = "measured to be the fastest; the default was no alternative"
    else:
        text = f"measured {default.ratio:.2f} times as fast as the default ({_interval(default)})"
    return text + _against_next(run)


def _undecided(run: Measurement, default: Config | None) -> str:
    if run.void:
        return run.void
    if run.winner is None:
        return next((t.refused for t in run.timed if t.refused), "no config could be timed")
    timed = default and run.of(default)
    return f"the default could not be measured: {timed.refused}" if timed else ""


def publication_reason(publication: "Publication") -> str:
    """Why a record is published, or nothing is."""
    if publication.record:
        return record_reason(publication.record)
    if publication.failure:
        return publication.failure
    wrong, unverified = len(publication.wrong), publication.unverified
    if not unverified:
        return "every finalist gave a wrong result" if wrong else "no candidate could be estimated"
    count = f"{len(unverified)} finalist{'s' * (len(unverified) > 1)}"
    also = f" and {wrong} gave a wrong result" if wrong else ""
    return f"{count} could not be verified{also}: {verdict_reason(unverified[0][1])}"


def verification(verdict: Verdict) -> str:
    """How a result was checked, or why it was not."""
    return _verification(verdict.proof, verdict_reason(verdict), is_right=bool(verdict.ok))


def record_verification(record: Record) -> str:
    proof = record.proof
    ran = ran_text(proof, proof.ran)
    return record.verification or _verification(proof, ran, is_right=record.verified)


def _verification(proof: Proof, ran: str, *, is_right: bool) -> str:
    if not is_right:
        return f"not verified: {ran}"
    text = f"{_AGREES[proof.standard]} in {_RUN_IN[proof.level]}, {ran}"
    text += f" (more could not be run: {proof.lacks})" * bool(proof.lacks)
    return text + f"; verified with jax {proof.jax}" * bool(proof.jax)


_AGREES = {Standard.REFERENCE: "correct", Standard.DEFAULT: GateState.AGREES}
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
    if record.standing is Standing.CLAIMED:
        return "claimed, not proven"
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
    """Whose word a record is, in a sentence that begins with its standing."""
    if not record.pushed_by:
        return f"{record.standing}: searched with this database"
    token, is_claimed = f"the token {record.pushed_by}", record.standing is Standing.CLAIMED
    if is_claimed:
        return f"claimed: its times, and that it was verified, are what {token} says"
    again = f"proven: pushed with {token}; compiled again and verified by {record.checked_by}"
    measured = record.method is Method.MEASURED
    return again + (f", its measurement is what {token} says" if measured else "")


def claims_wait(count: int) -> str:
    """Of keys that nothing is proven of: who is answered, and what the operator can do."""
    return (
        f"{counted(count, 'key')} with claimed records only: whoever pushed them says that they "
        "are right. They answer those who accept claimed records. Connect a worker to this "
        "database (autotune worker), which proves or refuses them, or serve with --trust-writers, "
        "which answers everybody with them."
    )


def rechecked_in_words(done: Rechecked) -> Rechecked:
    """With what was found out about a pushed record, in one sentence."""
    return replace(done, decision=replace(done.decision, finding=_found_again(done)))


def _found_again(done: Rechecked) -> str:
    verdict = done.verdict
    if verdict is None:
        text = finding(done.check)
        is_open = done.decision.state is CandidateState.UNVERIFIED
        return f"it could not be checked: {text}" if is_open else text
    return (
        f"the gate refuses it: {verdict.reason}" if verdict.ok is False else verification(verdict)
    )


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
