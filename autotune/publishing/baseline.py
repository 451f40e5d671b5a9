"""What is known of plain XLA without a TPU: a bound, and the simulated time of its own program."""

from autotune.domain.compiled import XlaCost
from autotune.domain.key import ChipInfo
from autotune.domain.record import Evidence
from autotune.estimating.cost_model.operation import xla_time
from autotune.estimating.legality import peak_ops_per_s
from autotune.estimating.simulator.constants import xla_error


def evidence(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> Evidence:
    """The bound as the time, the estimate beside it."""
    expected = expected_us(cost, chip)
    return Evidence(
        config=None,
        time_us=bound_us(cost, io_bytes, dtype, chip),
        expected_us=expected,
        expected_error=None if expected is None else xla_error(),
    )


def bound_us(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> float:
    """XLA's operations at peak or its arguments and results at full bandwidth, in microseconds.

    Both cores of a megacore take part. What XLA calls ``bytes accessed`` is no lower bound: it
    counts what stays on the chip between fusions.
    """
    compute = cost.flops / (peak_ops_per_s(dtype, chip) * chip.num_cores)
    return max(compute, io_bytes / (chip.hbm_bytes_per_s * chip.num_cores)) * 1e6


def expected_us(cost: XlaCost, chip: ChipInfo) -> float | None:
    """The time of XLA's own program, by the same means as that of a kernel; None where it depends
    on data, or waits for other devices."""
    xla = xla_time(cost.schedule, (), chip)
    return None if xla.unknown or xla.collectives else xla.time_us or None
