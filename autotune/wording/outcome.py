"""Sentences about what became of candidates: what a rule, VMEM or the gate refuses.

And the same as JSON for ``--json``: stable names, units in them.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.domain import outcome as outcomes
from autotune.domain.codec import to_data
from autotune.domain.errors import NoLegalConfigError
from autotune.domain.evidence import Proof, Verdict
from autotune.domain.problem import Config
from autotune.domain.record import GateState, Trial
from autotune.domain.visible import Shown
from autotune.wording.units import error_bar, mebibytes, micros, part_us

if TYPE_CHECKING:  # a model starts without it
    from autotune.domain.browsing import SearchedKey

# Refusals are counted by rule: their figures differ from point to point.
_RULES = {
    outcomes.Rule.BLOCK_ALIGNMENT: "block not aligned",
    outcomes.Rule.OUTPUT_REVISITED: "output block visited again after others",
    outcomes.Rule.OUTPUT_UNWRITTEN: "output not fully written",
    outcomes.Rule.INPUT_UNREAD: "input not fully read",
    outcomes.Rule.UNSAFE_ALIAS: "an input that shares memory with an output is read too late",
    outcomes.Rule.SEMANTICS_RANK: "another number of dimension semantics than of grid axes",
    outcomes.Rule.PARALLEL_AFTER_ARBITRARY: "a parallel grid axis behind an arbitrary one",
    outcomes.Rule.SEQUENTIAL_AXIS: "a grid axis that must not be parallel",
}

_DEPENDENCIES = {
    outcomes.Dependency.SHARED_OUTPUT: "output {} has blocks that are written from several "
    "positions of it",
    outcomes.Dependency.OUTPUT_BY_HAND: "output {} is written by hand: nothing shows that "
    "positions are apart",
    outcomes.Dependency.SCRATCH: "{} carries values from step to step",
    outcomes.Dependency.SCRATCH_ALONG_AXIS: "{} carries values along it or across it",
}

_LIMITS = {
    outcomes.LimitSource.CHIP: "the chip has {}",
    outcomes.LimitSource.CONFIG: "the limit of this config is {}",
    outcomes.LimitSource.COMPILER: "the compiler's default limit is {}",
    outcomes.LimitSource.KERNEL: "the limit that the kernel sets is {}",
}

_OVER = {
    outcomes.LimitSource.CHIP: "over the VMEM of the chip, {}",
    outcomes.LimitSource.CONFIG: "over the VMEM limit of the config, {}",
    outcomes.LimitSource.COMPILER: "over the compiler's default VMEM limit, {}",
    outcomes.LimitSource.KERNEL: "over the VMEM limit that the kernel sets, {}",
}


def violation_text(violation: outcomes.Violation) -> str:
    """One sentence: what is wrong, with its numbers, and for a block what would be right."""
    match violation:
        case outcomes.MisalignedBlock():
            return _misaligned(violation)
        case outcomes.RevisitedOutput(operand=name, visits=visits, blocks=blocks):
            return (
                f"blocks of output {name} are visited again after others ({visits} visits of "
                f"{blocks} blocks): what was written is lost"
            )
        case outcomes.UnwrittenOutput(operand=name, blocks=blocks, blocks_total=total):
            return f"only {blocks} of {total} blocks of output {name} are ever written"
        case outcomes.UnreadInput(operand=name, dimension=dimension, read=read, whole=whole):
            return (
                f"only {read} of {whole} elements of dimension {dimension} of {name} are ever "
                "read, the default reads all: does the grid round down?"
            )
        case outcomes.UnsafeAlias():
            return "an input that shares memory with an output is read where another step writes"
        case outcomes.SemanticsRank(semantics=semantics, grid=grid):
            return f"{semantics} dimension semantics for a grid of {grid} axes"
        case outcomes.ParallelAfterArbitrary(axis=axis):
            return f"grid axis {axis} is parallel behind an arbitrary one"
        case outcomes.SequentialAxis(axis=axis, dependency=dependency, buffer=buffer):
            reason = _DEPENDENCIES[dependency].format(buffer)
            return f"grid axis {axis} must not be parallel: {reason}"


def reason_of(outcome: outcomes.Outcome) -> str:
    """Why a candidate has no time, or what limits the one that it has."""
    match outcome:
        case outcomes.Estimated(estimate=estimate):
            return f"limited by {estimate.limiting_part}"
        case outcomes.Illegal(reason="", violation=violation) if violation:
            return violation_text(violation)
        case outcomes.OutOfVmem(reason=""):
            return _out_of_vmem(outcome)
        case outcomes.NotEstimated(reason="", us=us, least_us=least_us) if us and least_us:
            return (
                f"the simulated {part_us(us)} is less than the {part_us(least_us)} that its bytes "
                "and operations take at the chip's peak rates: something was misread"
            )
    return outcome.reason


BEFORE_GATE = "before verification"


def best_time(time_us: float | None, *, verified: bool | None) -> str:
    """The time of the fastest trial, and what it lacks. ``verified`` None: while a search runs, the
    gate comes after it."""
    state = BEFORE_GATE if verified is None else "" if verified else GateState.NOT_VERIFIED
    return ", ".join(filter(None, [micros(time_us), state if time_us else ""]))


def kind_and_reason(outcome: outcomes.Outcome) -> str:
    return f"{outcome.kind}: {reason_of(outcome)}"


def in_words(outcome: outcomes.Outcome) -> outcomes.Outcome:
    """The same with its sentence, for readers that know nothing of what it is made of."""
    if isinstance(outcome, outcomes.Estimated):
        return outcome
    return replace(outcome, reason=reason_of(outcome))


def _out_of_vmem(refused: outcomes.OutOfVmem) -> str:
    """Which limit is too small, who set it, and what to do about it."""
    used, allowed = mebibytes(refused.used_bytes), mebibytes(refused.allowed_bytes)
    source = outcomes.LimitSource(refused.limited_by) if refused.limited_by else None
    limit = _LIMITS[source].format(allowed) if source else f"{allowed} are allowed"
    text = f"needs {'at least ' * refused.by_rule}{used} of VMEM, {limit}"
    if refused.remedy_bytes is not None:
        return (
            f"{text}, and no limit of a config is passed on: give pallas_call `compiler_params` "
            f"with `vmem_limit_bytes` >= {refused.remedy_bytes:_}"
        )
    if source in (outcomes.LimitSource.COMPILER, outcomes.LimitSource.CONFIG):
        return f"{text}: `vmem_limit_bytes` >= {refused.used_bytes:_} is needed"
    return text


def verdict_reason(verdict: Verdict) -> str:
    """What the gate ran, or why it has no answer, and for a limit of time what can be done."""
    if verdict.failure is None:
        return ran_text(verdict.proof, verdict.reason)
    text = kind_and_reason(verdict.failure)
    if isinstance(verdict.failure, outcomes.TimedOut):
        text += (
            "; give it longer with --candidate-timeout, or the kernel a `reduced` that makes the "
            "problem small"
        )
    return text


def ran_text(proof: Proof, ran: str) -> str:
    """What was run, and how much that has of the problem."""
    covered = proof.covered
    if covered is None:
        return ran
    walked = dict.fromkeys(covered.blocks)
    axes = [f"{axis.small} of {axis.real}" if axis.real else "unknown" for axis in walked]
    has = [f"{' × '.join(axes)} blocks"] if axes else []
    if covered.ragged.real:
        has.append(f"{covered.ragged.small} of {covered.ragged.real} ragged ends")
    if covered.ways.real:
        has.append(f"{covered.ways.small} of {covered.ways.real} ways of its comparisons")
    has += [
        f"{name} from {low} to {high} (really {real_low} to {real_high})"
        for name, low, high, real_low, real_high in covered.integers
    ]
    by_data = f"; data decides {covered.by_data} comparisons" if covered.by_data else ""
    less = "" if covered.is_enough else ", which agree but leave out borders of the problem"
    return f"{ran}{less}; walked: {', '.join(has) or 'all'}{by_data}"


def group_text(refused: outcomes.Failure) -> str:
    """What refused points have in common."""
    if isinstance(refused, outcomes.Illegal) and refused.rule:
        return f"illegal: {_RULES[outcomes.Rule(refused.rule)]}"
    if isinstance(refused, outcomes.OutOfVmem) and refused.limited_by:
        return _OVER[outcomes.LimitSource(refused.limited_by)].format(
            mebibytes(refused.allowed_bytes)
        )
    return reason_of(refused)


def error_text(error: BaseException) -> str:
    """The message of an error, with the facts that it carries."""
    if not isinstance(error, NoLegalConfigError) or not error.refused:
        return str(error)
    reasons = "; ".join(f"{group_text(group)} ({n})" for group, n in error.refused)
    text = f"no legal configuration among {error.points} points: {reasons}"
    first = reason_of(error.first) if error.first else text
    return text if first in text else f"{text}; the first of them: {first}"


def _misaligned(wrong: outcomes.MisalignedBlock) -> str:
    block = f"block {_shape(wrong.block)} of {wrong.operand}"
    if not wrong.block:
        return f"{block} has no dimension: a block in VMEM needs one, or the operand stands in SMEM"
    power = wrong.least_power
    powers = "" if power is None else f", not a power of two from {power}"
    legal = " or ".join(map(str, wrong.nearest)) + (" is" if len(wrong.nearest) == 1 else " are")
    return (
        f"{block}: {wrong.block[wrong.dimension]} is not a multiple of {wrong.multiple}{powers} "
        f"and not the whole dimension {wrong.whole}; {legal}"
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def trial_data(trial: Trial, state: GateState) -> dict[str, Any]:
    return {**to_data(trial), "reason": reason_of(trial.outcome), "state": state}


def summary_data(summary: "SearchedKey") -> dict[str, Any]:
    return {
        "key": to_data(summary.key),
        "outcomes": dict(summary.outcomes),
        "best_us": summary.best_us,
        "best_verified": summary.best_verified,
        "default_us": summary.default_us,
        "has_record": summary.has_record,
        "standing": summary.standing,
        "last_at": summary.last_at and summary.last_at.isoformat(),
    }


@dataclass(frozen=True, kw_only=True, repr=False)
class ConfigEstimate(Shown):
    """What becomes of one config: a time with its parts, or the reason for none."""

    config: Config
    outcome: outcomes.Outcome

    @property
    def estimate(self) -> outcomes.Estimate | None:
        return self.outcome.estimate if isinstance(self.outcome, outcomes.Estimated) else None

    def __str__(self) -> str:
        estimate = self.estimate
        if estimate is None:
            return f"{self.config}: {self.outcome.kind}, {reason_of(self.outcome)}"
        return (
            f"{self.config}: {micros(estimate.time_us)} {error_bar(estimate.error)}, limited by "
            f"{estimate.limiting_part}, VMEM {mebibytes(estimate.vmem_used_bytes)} of "
            f"{mebibytes(estimate.vmem_allowed_bytes)}"
        )


class ConfigEstimates(Shown, list[ConfigEstimate]):
    """Of several configs, a line for each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))
