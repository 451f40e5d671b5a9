"""How a published config stands against the kernel's default and against plain XLA."""

from dataclasses import dataclass

from autotune.domain.record import Method, Record
from autotune.domain.xla_verdict import XlaVerdict, by_estimate, by_measurement
from autotune.wording.baseline import VERDICTS, estimated_baseline, measured_baseline
from autotune_service.pages.candidates import LEAST_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times as fast; None where it is not known. ``predicted_over_default``: where the default was
    not compiled. Plain XLA has a lower bound of its time, so
    ``over_xla_least`` is what is certain, and an estimate; ``xla`` says so in words.
    ``measured_*``: by the run that decided; the others are estimates."""

    over_default: float | None
    predicted_over_default: float | None
    over_xla_least: float | None
    over_xla_own: float | None
    verdict: XlaVerdict
    xla: str
    measured_us: float | None = None
    measured_over_default: float | None = None
    measured_over_xla: float | None = None

    @property
    def xla_verdict(self) -> str:
        """Without the figures."""
        return VERDICTS[self.verdict]

    @property
    def loses_by_estimate(self) -> bool:
        """Whether plain XLA is, by the estimate, faster."""
        return self.over_xla_own is not None and self.over_xla_own < 1

    @property
    def loses(self) -> bool:
        """The same as measured, where it was."""
        if self.measured_over_xla is None:
            return self.loses_by_estimate
        return self.measured_over_xla < 1


def speed(record: Record) -> Speed:
    time_us, baseline = record.estimate.time_us, record.baseline
    found = _measured(record)
    verdict, words = _xla(record, found.get("measured_over_xla"))
    return Speed(
        over_default=_over(record.default.time_us, time_us),
        predicted_over_default=_over(record.default.expected_us, time_us)
        if record.default.is_predicted
        else None,
        over_xla_least=_over(baseline.time_us, time_us),
        over_xla_own=_over(baseline.expected_us, time_us),
        verdict=verdict,
        xla=words,
        **found,
    )


def _measured(record: Record) -> dict[str, float | None]:
    """Nothing where the measurement did not decide."""
    run = record.measurement
    own = run.of(record.config) if run and record.method == Method.MEASURED else None
    if run is None or own is None:
        return {}
    default = None if record.default.config is None else run.of(record.default.config)
    return {
        "measured_us": own.median_us,
        "measured_over_default": run.times_as_fast(own, default),
        "measured_over_xla": run.times_as_fast(own, run.baseline),
    }


def _xla(record: Record, measured: float | None) -> tuple[XlaVerdict, str]:
    """Plain XLA against what is published, and the same in words."""
    verdict = by_estimate(record.estimate, record.baseline)
    estimated = estimated_baseline(record.estimate, record.baseline)
    other = record.measurement.baseline if record.measurement else None
    if measured is None or other is None:
        return verdict, estimated
    verdict = by_measurement(other)
    return verdict, f"{measured_baseline(verdict, other, measured)}; by estimate, {estimated}"


def _over(other_us: float | None, time_us: float) -> float | None:
    return other_us / time_us if other_us and time_us >= LEAST_US else None
