"""One kernel and problem, about which compilers are asked."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    TraceConfig,
    VerifyConfig,
)
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Problem
from autotune.estimating.cost_model.estimate import estimate

T = TypeVar("T")


class Asked(Protocol):
    """One compiler, or several."""

    def ask(self, question): ...


@dataclass(frozen=True, slots=True)
class Case:
    compilers: Asked
    ref: KernelRef
    problem: Problem

    def ask(self, kind, **more):
        return self.compilers.ask(kind(ref=self.ref, problem=self.problem, **more))

    def trace(self, config, chip=None):
        """In all orders of a named grid."""
        return self.ask(TraceConfig, config=config, chip=chip, orders=True)

    def compile(self, config, chip=Chip.V5E):
        return self.ask(CompileConfig, config=config, chip=chip).answer

    def estimated(self, config, chip=Chip.V5E):
        """What the model says of what was compiled, or why nothing was."""
        answer = self.compile(config, chip)
        if not isinstance(answer, tuple):
            return answer
        return estimate(*answer, self.compilers.ask(DescribeChip(chip=chip)))

    def verify(self, config, chip=Chip.V6E):
        return self.ask(VerifyConfig, config=config, chip=chip)


def case_of(compilers, kernel, shape, dtype=None, options=()):
    """A kernel and its problem as the command line says them."""
    ref = find_kernel(kernel) if isinstance(kernel, str) else kernel
    spec = compilers.ask(DescribeKernel(ref=ref))
    return Case(compilers, ref, spec.problems.parse(shape, dtype, options))
