"""A workload: the problems of a model, how often each runs, and for which chips and toolchains."""

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain.codec import OmitDefault
from autotune.domain.key import Key
from autotune.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProblem:
    """As the command line of a search says it: ``shape``, ``dtype`` and ``options``, or ``args``.

    ``weight``: how often a step of the model runs it. ``config``: what the model runs today, as
    ``autotune estimate --config`` reads it. ``compiler_options``: over those of the workload, as
    ``autotune.domain.compiler_options`` writes them. ``line``: in the file.
    """

    kernel: str
    shape: str = ""
    dtype: str | None = None
    options: tuple[str, ...] = ()
    args: str = ""
    weight: float = 1.0
    config: str = ""
    chips: tuple[str, ...] = ()
    jax: tuple[str, ...] = ()
    compiler_options: str = ""
    line: int = 0

    def __str__(self) -> str:
        said = [self.kernel, self.args or self.shape, self.dtype or "", *self.options]
        return " ".join(filter(None, said))


def workload_problem(
    kernel: str, problem: Problem, weight: float = 1.0, chips: tuple[str, ...] = ()
) -> WorkloadProblem:
    """A problem as the command line says it."""
    return WorkloadProblem(
        kernel=kernel,
        shape=",".join(f"{name}={size}" for name, size in problem.dims),
        dtype=problem.dtype,
        options=tuple(f"{name}={option_text(value)}" for name, value in problem.options),
        weight=weight,
        chips=chips,
    )


def option_text(value: object) -> str:
    """As the command line takes it: text as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredKernel:
    """A ``pallas_call`` that no declaration is known of. ``vmem_bytes``: of its blocks, buffered;
    ``limit_bytes``: what it asks for itself."""

    name: str
    grid: tuple[int, ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()
    vmem_bytes: int = 0
    limit_bytes: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidProblem:
    """One that cannot be tuned, and why; ``line``: in the file."""

    line: int
    problem: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}: {self.reason}" if self.line else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``chips`` and ``jax`` (versions): of every problem that names none; ``compiler_options``: of
    all. ``invalid``: entries of the file that are no problems."""

    problems: tuple[WorkloadProblem, ...] = ()
    chips: tuple[str, ...] = ()
    jax: tuple[str, ...] = ()
    compiler_options: str = ""
    undeclared: tuple[UndeclaredKernel, ...] = ()
    invalid: tuple[InvalidProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedEntry:
    """A problem of a workload on one chip with one toolchain. ``before_us``: the estimated time of
    what the model ran when it was tuned, predicted within ``before_error`` where that was not
    compiled; ``reason``: why nothing was published, empty if it was."""

    key: Key
    weight: float
    before_us: float | None
    reason: str = ""
    before_error: OmitDefault[float | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWorkload:
    """A workload as it was tuned last. ``missing``: what could not be tuned, in words."""

    name: str
    entries: tuple[TunedEntry, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedTimes:
    """Sums over the problems that have both times, each as often as it runs. ``timed``: how many
    these are; ``predicted``: of how many the time before is only predicted, for which the sum may
    be off by ``before_error`` as a share, None where it is none."""

    timed: int
    predicted: int
    before_us: float
    before_error: float | None
    after_us: float


def weighted_times(
    times: Iterable[tuple[float, float | None, float | None, float | None]],
) -> WeightedTimes:
    """Of problems as (weight, before, its error where it is predicted, after)."""
    timed = [
        (weight, old, error, new)
        for weight, old, error, new in times
        if old is not None and new is not None
    ]
    before_us = sum(weight * old for weight, old, _, _ in timed)
    off_us = [weight * old * error for weight, old, error, _ in timed if error is not None]
    return WeightedTimes(
        timed=len(timed),
        predicted=len(off_us),
        before_us=before_us,
        before_error=sum(off_us) / before_us if off_us and before_us else None,
        after_us=sum(weight * new for weight, _, _, new in timed),
    )
