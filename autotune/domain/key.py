"""What an answer is an answer to."""

from dataclasses import dataclass

from autotune.domain.chip import Chip
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Kernel, its fingerprint, problem, chip and toolchain."""

    kernel: str
    fingerprint: str
    problem: Problem
    chip: Chip
    toolchain: Toolchain

    def __str__(self) -> str:
        return f"{self.kernel}[{self.fingerprint}] {self.problem} on {self.chip}, {self.toolchain}"
