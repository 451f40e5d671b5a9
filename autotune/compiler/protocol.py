"""What parent and child say to each other: one JSON object a line, nothing pickled.

A request is ``{"do": NAME, ...}``; an answer ``{"ok": ...}`` or
``{"error": {"type": ..., "message": ..., "stage": ...}}`` with the stage that failed: load, build,
trace, compile.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.config import Config, config_to_data
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.problem import Problem, problem_to_data

Request = dict[str, Any]


def hello() -> Request:
    return {"do": "hello"}


def chip_info(chip: Chip) -> Request:
    return {"do": "chip", "chip": chip.value}


def describe(ref: KernelRef) -> Request:
    return {"do": "describe", "ref": asdict(ref)}


def choices(ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Request:
    """The raw space; with ``chip`` the default is what a user has on it."""
    named = None if chip is None else chip.value
    return {"do": "choices", "ref": asdict(ref), "problem": problem_to_data(problem), "chip": named}


def check(ref: KernelRef, problem: Problem, chip: Chip) -> Request:
    """Does the declaration fit together?"""
    return {**baseline(ref, problem, chip), "do": "check"}


def trace(
    ref: KernelRef,
    problem: Problem,
    configs: list[Config],
    *,
    orders: bool,
    chip: Chip | None = None,
) -> Request:
    """Trace each config; with ``orders`` in every order of a named grid; with ``chip`` for it."""
    return {
        "do": "trace",
        "ref": asdict(ref),
        "problem": problem_to_data(problem),
        "configs": [config_to_data(config) for config in configs],
        "orders": orders,
        "chip": None if chip is None else chip.value,
    }


def compile_config(ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Request:
    return {
        "do": "compile",
        "ref": asdict(ref),
        "problem": problem_to_data(problem),
        "config": config_to_data(config),
        "chip": chip.value,
    }


def draw(ref: KernelRef, problem: Problem, config: Config, chip: Chip, steps: int) -> Request:
    """Compile a config and draw its first and last grid steps."""
    return {**compile_config(ref, problem, config, chip), "do": "draw", "steps": steps}


def baseline(ref: KernelRef, problem: Problem, chip: Chip) -> Request:
    return {
        "do": "baseline",
        "ref": asdict(ref),
        "problem": problem_to_data(problem),
        "chip": chip.value,
    }


def verify(ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Request:
    """Run a config in interpret mode against its reference."""
    return {**compile_config(ref, problem, config, chip), "do": "verify"}


def executable(
    ref: KernelRef,
    problem: Problem,
    config: Config | None,
    name: str,
    chip: Chip | None,
    path: str,
) -> Request:
    """Compile a config (None: plain XLA) under a name and write the executable to a file; for the
    CPU without a chip."""
    return {
        "do": "executable",
        "ref": asdict(ref),
        "problem": problem_to_data(problem),
        "config": config and config_to_data(config),
        "name": name,
        "chip": None if chip is None else chip.value,
        "path": path,
    }


def chip_from_data(data: Mapping[str, Any]) -> ChipInfo:
    return ChipInfo(**{**data, "chip": Chip(data["chip"])})
