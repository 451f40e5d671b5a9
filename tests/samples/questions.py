"""One kernel and problem, about which compilers are asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from autotune.domain.compilers import CompileConfig, CompilerQuestion, DescribeKernel, TraceConfig
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Config, Problem

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


def case_of(
    compilers: Asked,
    ref: KernelRef,
    shape: str,
    dtype: str | None = None,
    options: Sequence[str] = (),
) -> Case:
    """Its problem as the command line says it."""
    spec = compilers.ask(DescribeKernel(ref=ref))
    return Case(compilers, ref, spec.problems.parse(shape, dtype, options))
