"""What a step of a compiled kernel costs: it teaches other problems of the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Mean over the steps of one call: bounds and strides differ between problems, the body does
    not. ``core_us``: microseconds without waits, one core. ``facts``: what it depends on, numbers
    and flags by name. ``in_vmem``: operands that XLA put in VMEM ahead of the call."""

    core_us: float
    facts: tuple[tuple[str, float], ...]
    in_vmem: tuple[int, ...] = ()
