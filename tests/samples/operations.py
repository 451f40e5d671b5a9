"""Instructions of a compiled schedule, made by hand."""

from dataclasses import replace
from typing import Any

from autotune.domain.explanation import Phase, ScheduledOperation

_NONE = ScheduledOperation(
    name="", opcode="fusion", runs=1, phase=Phase.WHOLE, awaits="", hbm_bytes=0, expected_cycles=0
)
KERNEL = replace(_NONE, name="kernel", opcode="custom-call", kernel=0)


def operation(name: str, **fields: Any) -> ScheduledOperation:
    """An operation of XLA that runs once and moves nothing, unless ``fields`` say otherwise."""
    return replace(_NONE, name=name, **fields)
