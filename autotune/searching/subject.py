"""How a search begins: what is tuned, and where to look."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.compilers import (
    CheckDeclaration,
    Compilers,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    ProblemOfCall,
)
from autotune.domain.errors import InvalidInputError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.estimating.space import Space, explore
from autotune.searching.axis_values import narrowed

ProblemOf = Callable[[KernelSpec], Problem]
"""Reads a problem by the description of its kernel. Raises ``InvalidInputError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tuned, for what."""

    ref: KernelRef
    spec: KernelSpec
    problem: Problem
    chip: ChipInfo
    toolchain: Toolchain

    @property
    def key(self) -> Key:
        return Key(
            kernel=self.spec.name,
            fingerprint=self.spec.fingerprint,
            problem=self.problem,
            chip=self.chip.chip,
            toolchain=self.toolchain,
        )


def asked_problem(
    ref: KernelRef,
    shape: str | None,
    dtype: str | None,
    options: Sequence[str],
    call: str,
) -> tuple[KernelRef, ProblemOf | None]:
    """A problem in words: of a declaration, or the ``call`` of a decorated function. Raises
    ``InvalidInputError``."""
    if (shape is None) == (not call):
        raise InvalidInputError(
            "say the problem with --shape m=…,k=…, or for a decorated function its arguments with "
            "--args 'q=bf16[…],…'"
        )
    if shape is not None:
        text = shape
        return ref, lambda spec: spec.problems.parse(text, dtype, options)
    if dtype or options:
        raise InvalidInputError("--dtype and --option are part of --args: say them there")
    return replace(ref, call=call), None


def describe_subject(
    compilers: Compilers, ref: KernelRef, chip: Chip, problem_of: ProblemOf | None
) -> Subject:
    """Ask a compiler process what the kernel, the toolchain and the chip are. ``problem_of``: None
    for the call that ``ref`` names."""
    spec = compilers.ask(DescribeKernel(ref=ref))
    return Subject(
        ref=ref,
        spec=spec,
        problem=problem_of(spec) if problem_of else compilers.ask(ProblemOfCall(ref=ref)),
        chip=compilers.ask(DescribeChip(chip=chip)),
        toolchain=compilers.ask(DescribeToolchain()),
    )


def explore_space(
    compilers: Compilers,
    subject: Subject,
    tracing: Callable[[int, int], None],
    only: Mapping[str, Sequence[str]] | None = None,
) -> Space:
    """The candidates; ``only``: with these values of axes, beside the default. Raises
    ``AutotuneError`` for a declaration or problem that cannot be."""
    ref, problem, chip = subject.ref, subject.problem, subject.chip.chip
    choices = compilers.ask(ListChoices(ref=ref, problem=problem, chip=chip))
    if only:
        choices = narrowed(choices, only)
    compilers.ask(CheckDeclaration(ref=ref, problem=problem, chip=chip))
    space = explore(compilers, ref, problem, choices, subject.chip, tracing)
    if only:
        space.judged.clear()  # what the rules say of a part is not kept as if it were the whole
    return space
