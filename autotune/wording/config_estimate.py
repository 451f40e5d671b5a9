"""What becomes of a config that somebody asks about."""

from dataclasses import dataclass

from autotune.domain.outcome import Estimate, Estimated, Outcome
from autotune.domain.problem import Config
from autotune.wording.outcome import reason_of
from autotune.wording.units import error_bar, mebibytes, micros


@dataclass(frozen=True, kw_only=True)
class ConfigEstimate:
    """What becomes of one config: a time with its parts, or the reason for none."""

    config: Config
    outcome: Outcome

    @property
    def estimate(self) -> Estimate | None:
        return self.outcome.estimate if isinstance(self.outcome, Estimated) else None

    def __str__(self) -> str:
        estimate = self.estimate
        if estimate is None:
            return f"{self.config}: {self.outcome.kind}, {reason_of(self.outcome)}"
        return (
            f"{self.config}: {micros(estimate.time_us)} {error_bar(estimate.error)}, limited by "
            f"{estimate.limiting_part}, VMEM {mebibytes(estimate.vmem_used_bytes)} of "
            f"{mebibytes(estimate.vmem_allowed_bytes)}"
        )
