"""What a step of a compiled kernel costs: it teaches other problems of the kernel."""

from dataclasses import dataclass
from math import inf, isfinite


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Mean over the steps of one call: bounds and strides differ between problems, the body does
    not. ``core_us``: microseconds without waits, one core. ``facts``: what it depends on, numbers
    and flags by name, with a ``core_us`` of its arithmetic alone. ``in_vmem``: operands that XLA
    put in VMEM ahead of the call. Raises ``ValueError`` for what nobody can learn from."""

    core_us: float
    facts: tuple[tuple[str, float], ...]
    in_vmem: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        costs = self.core_us, dict(self.facts).get("core_us", 0.0)
        if not all(0.0 < cost < inf for cost in costs) or not all(
            isfinite(number) for _, number in self.facts
        ):
            raise ValueError("the cost of a step must be positive, and its facts finite")
