"""The reading of libtpu's own estimate: each DMA has the whole bandwidth, and nothing is known from
hardware."""

from dataclasses import replace

from autotune.estimating.simulator import constants, dma, extrapolation
from autotune.estimating.simulator.bundles import parse
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.dma import Channel
from autotune.estimating.simulator.memory import Scalars
from autotune.estimating.simulator.run import settle


def cycles_as_libtpu_counts(
    listing: str, *, chip: str, libtpu: str | None = None, scalars: Scalars | None = None
) -> int:
    """Return what libtpu's own static estimate would be.

    Raises ``UnfitError`` for a listing that ``simulate`` refuses.
    """
    known, parsed = as_libtpu_counts(constants.load(chip, libtpu)), parse(listing)
    recording, _, _ = settle(parsed, known, scalars or {})
    line = dma.replay(recording.events, independent(known), recording.final)
    return round(extrapolation.finish(line, recording, parsed).cycles)


def as_libtpu_counts(chip: ChipConstants) -> ChipConstants:
    """Return the same without what hardware showed of the matrix units and of steps."""
    return replace(chip, load_cycles=0.0, matrix_slowdown=0.0, matrix_rate=1.0, step_cycles=0.0)


def independent(chip: ChipConstants) -> Channel:
    return replace(
        dma.shared(chip),
        bytes_per_cycle=chip.dma_bytes_per_cycle,
        burst_bytes_per_cycle=chip.dma_bytes_per_cycle,
        saved_share=0.0,
        write_cost=1.0,
        turn_cost=0.0,
        turn_latency=0.0,
        chip_latency=chip.read_latency_cycles,
        read_latency=chip.read_latency_cycles,
        write_latency=chip.write_latency_cycles,
        shared=False,
    )
