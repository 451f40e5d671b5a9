"""What a step of a compiled kernel costs: it teaches other problems of the kernel."""

from dataclasses import dataclass
from math import inf, isfinite

from autotune.domain.codec import OmitDefault


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Mean over the steps of one call: bounds and strides differ between problems, the body does
    not. ``core_us``: microseconds without waits, one core. ``facts``: what it depends on, numbers
    and flags by name, with a ``core_us`` of its arithmetic alone. ``in_vmem``: operands that XLA
    put in VMEM ahead of the call. ``predicted_us``: the time of the whole by what other problems
    had said of its step before it was compiled; 0.0 where they said nothing."""

    core_us: float
    facts: tuple[tuple[str, float], ...]
    in_vmem: tuple[int, ...] = ()
    predicted_us: OmitDefault[float] = 0.0

    @property
    def can_teach(self) -> bool:
        """Not where a cost is no positive number: a step without arithmetic, or what is broken."""
        costs = self.core_us, dict(self.facts).get("core_us", 0.0)
        return all(0.0 < cost < inf for cost in costs) and all(isfinite(n) for _, n in self.facts)
