"""How long what XLA does around the kernels keeps the chip, by the order of the compiled module.

An operation takes what its own instruction schedule says (simulated as kernels are); one without,
such as a copy by the DMA engine, what its bytes take at the chip's HBM rate; one whose schedule
depends on data the longer of that and what XLA itself expects of it. A copy that was
started ahead is waited for only as far as nothing else has hidden it; what the program before
fetches for the next one is there. Each program takes its time to start.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autotune.domain.explanation import OperationTime, Phase, ScheduledOperation
from autotune.domain.key import ChipInfo
from autotune.estimating.simulator import constants

_MATTERS_SHARE = 0.01  # of the time: what takes less by its bytes may well depend on data
_RELAYOUT = re.compile(r"copy(?!-)|bitcast|transpose|reshape|sparse-core-data-format")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaTime:
    """``time_us``: of the chip, kernels apart, the start of the program included. ``operations``:
    each that takes any of it, in order.
    ``unknown``: those that depend on data, in a loop or by themselves, where they could matter;
    ``collectives``: what waits for other devices and is not timed. ``error``: the error bar, as a
    share of the time; None where data decides the time or nothing is known of the chip."""

    time_us: float
    hbm_bytes: int
    operations: tuple[OperationTime, ...]
    unknown: tuple[str, ...]
    collectives: tuple[str, ...]
    error: float | None


def xla_time(
    schedule: Sequence[ScheduledOperation], kernels_us: Sequence[float], chip: ChipInfo
) -> XlaTime:
    """``kernels_us``: of each call of the function, all its runs together."""
    clock = _Clock(hbm_bytes_per_us(chip), _us_per_cycle(chip))
    for operation in schedule:
        if operation.kernel is not None:
            clock.now += kernels_us[operation.kernel]
        elif not operation.is_collective:
            clock.run(operation)
    others = [operation for operation in schedule if operation.kernel is None]
    start_us = constants.start_us() if schedule else 0.0
    time_us = start_us + sum(operation.time_us for operation in clock.waited)
    unknown = tuple(
        operation.name
        for operation in others
        if (operation.runs is None or operation.refusal)
        and clock.once_us(operation) >= _MATTERS_SHARE * clock.now
    )
    share = relayout_us(clock.waited) / time_us if time_us else 0.0
    return XlaTime(
        time_us=time_us,
        hbm_bytes=sum(operation.hbm_bytes * (operation.runs or 1) for operation in others),
        operations=tuple(clock.waited),
        unknown=unknown,
        collectives=tuple(operation.name for operation in others if operation.is_collective),
        error=None if unknown else constants.xla_error(chip.chip.value, share),
    )


def relayout_us(operations: Iterable[OperationTime]) -> float:
    """What copies take that change nothing but the layout."""
    return sum(o.time_us for o in operations if _RELAYOUT.match(o.name))


def hbm_bytes_per_us(chip: ChipInfo) -> float:
    """Of all cores of a device together, with the efficiency that hardware showed where as much is
    read as written."""
    if chip.chip.value not in constants.CHIPS:
        return chip.hbm_bytes_per_s * chip.num_cores / 1e6
    core = constants.load(chip.chip.value)
    read = core.hbm_bytes_per_cycle * core.clock_hz * chip.num_cores / 1e6
    return read * 2 / (1 + core.write_cost)


def _us_per_cycle(chip: ChipInfo) -> float:
    known = chip.chip.value in constants.CHIPS
    return 1e6 / constants.load(chip.chip.value).clock_hz if known else 0.0


@dataclass(slots=True)
class _Clock:
    """``ends``: when each copy that was started ahead is done; they follow each other."""

    bytes_per_us: float
    us_per_cycle: float
    now: float = 0.0
    channel: float = 0.0
    ends: dict[str, float] = field(default_factory=dict)
    waited: list[OperationTime] = field(default_factory=list)

    def run(self, operation: ScheduledOperation) -> None:
        runs = 1 if operation.runs is None else operation.runs
        takes = runs * self.once_us(operation)
        if operation.is_ahead:
            return
        if operation.phase is Phase.START:
            self.channel = max(self.channel, self.now) + takes
            self.ends[operation.name] = self.channel
            return
        if operation.phase is Phase.DONE:
            takes = max(0.0, self.ends.get(operation.awaits, 0.0) - self.now)
        else:
            self._delay(takes, runs * operation.hbm_bytes / self.bytes_per_us)
        self.now += takes
        if takes > 0:
            self.waited.append(
                OperationTime(
                    name=operation.name,
                    opcode=operation.opcode,
                    runs=runs,
                    time_us=takes,
                    hbm_bytes=operation.hbm_bytes * runs,
                )
            )

    def _delay(self, takes: float, moves: float) -> None:
        """Copies on their way move on only while an operation leaves HBM to them."""
        left = max(0.0, self.channel - self.now)
        late = min(takes, left) - min(max(0.0, takes - moves), left)
        self.channel += late
        self.ends = {name: end + late * (end > self.now) for name, end in self.ends.items()}

    def once_us(self, operation: ScheduledOperation) -> float:
        if operation.simulated_us is not None:
            return operation.simulated_us
        moved_us = operation.hbm_bytes / self.bytes_per_us
        expected_us = operation.expected_cycles * self.us_per_cycle
        return max(moved_us, expected_us) if operation.refusal else moved_us
