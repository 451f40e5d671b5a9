"""What is known of plain XLA without a TPU: a bound, and XLA's own ``estimated_cycles``."""

from autotune.candidates.roofline import peak_ops_per_s
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import XlaCost
from autotune.domain.record import Evidence
from autotune.simulator import constants
from autotune.wording.baseline import BOUND_NOTE


def evidence(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> Evidence:
    """The bound as the time, XLA's own estimate beside it."""
    return Evidence(
        config=None,
        time_us=bound_us(cost, io_bytes, dtype, chip),
        expected_us=cycles_us(cost, chip) or None,
        note=BOUND_NOTE,
    )


def bound_us(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> float:
    """XLA's operations at peak or its arguments and results at full bandwidth, in microseconds.

    Both cores of a megacore take part. What XLA calls ``bytes accessed`` is no lower bound: it
    counts what stays on the chip between fusions.
    """
    compute = cost.flops / (peak_ops_per_s(dtype, chip) * chip.num_cores)
    return max(compute, io_bytes / (chip.hbm_bytes_per_s * chip.num_cores)) * 1e6


def cycles_us(cost: XlaCost, chip: ChipInfo) -> float:
    """XLA's own ``estimated_cycles`` of its operations one after the other, in microseconds; 0.0
    where XLA estimates nothing or the chip's clock is not known."""
    if chip.chip.value not in constants.CHIPS:
        return 0.0
    return cost.estimated_cycles / constants.load(chip.chip.value).clock_hz * 1e6
