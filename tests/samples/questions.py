"""One kernel and problem, about which compilers are asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileConfig,
    CompilerQuestion,
    DescribeChip,
    DescribeKernel,
    TraceConfig,
    VerifyConfig,
)
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Outcome
from autotune.domain.problem import Config, Problem
from autotune.estimating.cost_model.estimate import estimate

T = TypeVar("T")


class Asked(Protocol):
    """One compiler, or several."""

    def ask(self, question: CompilerQuestion[T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Case:
    compilers: Asked
    ref: KernelRef
    problem: Problem

    def ask(self, kind: Callable[..., CompilerQuestion[T]], **more: Any) -> T:
        return self.compilers.ask(kind(ref=self.ref, problem=self.problem, **more))

    def trace(self, config: Config, chip: Chip | None = None) -> Any:
        """In all orders of a named grid."""
        return self.ask(TraceConfig, config=config, chip=chip, orders=True)

    def compile(self, config: Config, chip: Chip = Chip.V5E) -> Any:
        return self.ask(CompileConfig, config=config, chip=chip).answer

    def estimated(self, config: Config, chip: Chip = Chip.V5E) -> Outcome:
        """What the model says of what was compiled, or why nothing was."""
        answer = self.compile(config, chip)
        if not isinstance(answer, tuple):
            return answer  # type: ignore[no-any-return]
        return estimate(*answer, self.compilers.ask(DescribeChip(chip=chip)))

    def verify(self, config: Config, chip: Chip = Chip.V6E) -> Verdict:
        return self.ask(VerifyConfig, config=config, chip=chip)


def case_of(
    compilers: Asked,
    kernel: KernelRef | str,
    shape: str,
    dtype: str | None = None,
    options: Sequence[str] = (),
) -> Case:
    """A kernel and its problem as the command line says them."""
    ref = find_kernel(kernel) if isinstance(kernel, str) else kernel
    spec = compilers.ask(DescribeKernel(ref=ref))
    return Case(compilers, ref, spec.problems.parse(shape, dtype, options))
