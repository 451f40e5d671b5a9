"""What it takes to send an array to other devices of a slice, or to the host, by public figures.

A collective moves at the rate of the links that a device has into the part of the slice that takes
part: one along each axis, two where the axis is closed to a ring (JAX's scaling book, "TPU
networking" and "Sharded matrices"). Of a device at a corner, which is the slowest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from autotune.domain.explanation import LinkTransfer, Route
from autotune.domain.key import Chip
from autotune.estimating.simulator import constants

_CLOSED = {Chip.V4: 4, Chip.V5P: 4, Chip.V7X: 4, Chip.V5E: 16, Chip.V6E: 16}
"""Chips along an axis that is a ring: multiples of a cube's edge, or the whole of a pod's."""


@dataclass(frozen=True, slots=True)
class Links:
    """Of a slice with ``bounds`` chips along its axes, and as many ``devices``."""

    chip: Chip
    bounds: Sequence[int]
    devices: int

    def time_us(self, transfer: LinkTransfer) -> float | None:
        """None for a chip whose links nobody has published."""
        if transfer.route is Route.HOST:
            host_bytes_per_us = constants.hardware("host_gigabytes_per_second") * 1e3
            return transfer.size_bytes * self.chip.devices_per_chip / host_bytes_per_us
        if self.chip.value not in constants.CHIPS:
            return None
        devices = transfer.devices or self.devices
        axes = self._axes(ceil(devices / self.chip.devices_per_chip))
        start_us, hop_us = constants.hardware("link_start_us"), constants.hardware("link_hop_us")
        link = constants.link_bytes_per_us(self.chip.value)
        if transfer.route is Route.PERMUTE:
            return start_us + hop_us + transfer.size_bytes / link
        hops = sum(size // 2 if self._is_ring(size) else size - 1 for size in axes)
        rate = link * sum(2 if self._is_ring(size) else 1 for size in axes)
        moved = transfer.size_bytes * (devices - 1) / devices
        if transfer.route is Route.REDUCE:
            moved *= 2
        if transfer.route is Route.EXCHANGE:  # each array goes as far as it must
            moved *= max(1.0, sum(size / (4 if self._is_ring(size) else 3) for size in axes))
        return start_us + hop_us * hops + moved / rate

    def _is_ring(self, size: int) -> bool:
        return size % _CLOSED[self.chip] == 0

    def _axes(self, chips: int) -> list[int]:
        """Sizes of those of the slice that a group of so many chips takes, the longest first; how
        the mesh of a program lies in the slice is not known."""
        axes = list[int]()
        for size in sorted((size for size in self.bounds if size > 1), reverse=True):
            if prod(axes) < chips:
                axes.append(size)
        return axes or [2]
