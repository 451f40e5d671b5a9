"""How a published config stands against the kernel's default and against plain XLA."""

from dataclasses import dataclass

from autotune.search.baseline import compared
from autotune.trial import Record
from service.dashboard.candidates import LEAST_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times as fast; None where it is not known. Plain XLA has a lower bound of its time, so
    ``over_xla_least`` is what is certain, and its own estimate; ``xla`` says so in words."""

    over_default: float | None
    over_xla_least: float | None
    over_xla_own: float | None
    xla: str

    @property
    def xla_verdict(self) -> str:
        """The words before the figures."""
        return self.xla.partition(":")[0]

    @property
    def loses(self) -> bool:
        """Whether plain XLA is, by its own estimate, faster."""
        return self.over_xla_own is not None and self.over_xla_own < 1


def speed(record: Record) -> Speed:
    time_us, baseline = record.estimate.time_us, record.baseline
    return Speed(
        over_default=_over(record.default.time_us, time_us),
        over_xla_least=_over(baseline.time_us, time_us),
        over_xla_own=_over(baseline.expected_us, time_us),
        xla=compared(record.estimate, baseline),
    )


def _over(other_us: float | None, time_us: float) -> float | None:
    return other_us / time_us if other_us and time_us >= LEAST_US else None
