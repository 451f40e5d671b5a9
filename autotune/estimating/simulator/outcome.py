"""What a simulation promises: a ``Simulation``, or ``NotSimulated``, which says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.explanation import TimePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The time of one Pallas call, predicted from its final bundles.

    All numbers are per core (one TensorCore runs one listing), with all its DMAs in one queue for
    HBM.
    """

    cycles_shared: int
    us_shared: float
    parts: Mapping[TimePart, int]  # cycles; they add up to all of it
    steps: int  # grid steps (outer loop iterations where the listing has no grid)
    dma_count: int  # DMAs issued, scalar-prefetch copies included
    hbm_bytes_read: int
    hbm_bytes_written: int
    bundle_cycles: int  # bundles issued, one cycle each
    stall_cycles: int  # cycles lost to interlocks of the units
    link_cycles: int  # waits for other devices, or what the busiest link needs where that is more
    burst_bytes: int  # mean contiguous piece of HBM that a DMA touches
    mxu_busy_cycles: int  # mean over the core's MXUs
    spill_bundles: int  # bundles (static) that store or load a spilled vector register
    vmem_operands: tuple[int, ...]  # operands that XLA placed in VMEM before the call
    clock_hz: float
    constants: str  # libtpu series whose constants were used
    is_fitted: bool  # whether that is the series of the libtpu that made the listing
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotSimulated:
    """No number, and the reason. ``operand``: the scalars that are missing, by number."""

    reason: str
    operand: int | None = None


class UnfitError(Exception):
    """Raised inside this package only: the listing cannot be simulated, for the reason given."""

    def __init__(self, reason: str, operand: int | None = None) -> None:
        super().__init__(reason)
        self.operand = operand
