"""What an answer is an answer to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.domain.chip import Chip
from autotune.domain.problem import Problem, problem_from_data, problem_to_data
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


def key_to_data(key: Key) -> dict[str, Any]:
    """Plain JSON data; ``key_from_data`` is the inverse."""
    return {
        "kernel": key.kernel,
        "fingerprint": key.fingerprint,
        "problem": problem_to_data(key.problem),
        "chip": key.chip.value,
        "toolchain": asdict(key.toolchain),
    }


def key_from_data(data: Mapping[str, Any]) -> Key:
    return Key(
        kernel=data["kernel"],
        fingerprint=data["fingerprint"],
        problem=problem_from_data(data["problem"]),
        chip=Chip(data["chip"]),
        toolchain=Toolchain(**data["toolchain"]),
    )
