"""Instructions of a compiled schedule, made by hand."""

from dataclasses import replace
from typing import Any

from autotune.domain.explanation import LinkTransfer, Phase, Route, ScheduledOperation
from autotune.domain.step import CompiledStep

_NONE = ScheduledOperation(
    name="", opcode="fusion", runs=1, phase=Phase.WHOLE, awaits="", hbm_bytes=0, expected_cycles=0
)
KERNEL = replace(_NONE, name="kernel", opcode="custom-call", kernel=0)

SUM = LinkTransfer(route=Route.REDUCE, size_bytes=1 << 20)


def operation(name: str, **fields: Any) -> ScheduledOperation:
    """An operation of XLA that runs once and moves nothing, unless ``fields`` say otherwise."""
    return replace(_NONE, name=name, **fields)


def compiled_step(*schedule: ScheduledOperation, **fields: Any) -> CompiledStep:
    """On one device, unless ``fields`` say otherwise."""
    alone = {"devices": 1, "bounds": (), "is_whole": True, "hbm_bytes": 0}
    return CompiledStep(schedule=schedule, **{**alone, **fields})
