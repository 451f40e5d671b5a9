"""The DMAs of a run as tracks of a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    ISSUED_IN,
    READS,
    WRITES,
    TraceSlice,
    Track,
)
from autotune.estimating.simulator.lowering import HBM_READ, HBM_WRITE, ON_CHIP

MOST_DMAS = 5000  # in one picture

_TRACKS = {
    HBM_READ: (READS, "read"),
    HBM_WRITE: (WRITES, "write"),
    HBM_READ + HBM_WRITE: ("copies within HBM", "copy"),
    ON_CHIP: ("copies on the chip", "copy"),
}


class Transfer(NamedTuple):
    """One DMA: its HBM traffic as a sum, when it was issued, began to move, had moved and arrived,
    in cycles; and its bytes."""

    kind: int
    issued: float
    begun: float
    moved: float
    arrived: float
    size: float


def tracks(
    transfers: Iterable[tuple[Transfer, str]], to_us: Callable[[float], float]
) -> list[Track]:
    """The tracks of DMAs, each given with the name of the step that issues it, in that order.

    DMAs that are under way at the same time lie on tracks of their own.
    """
    rows: dict[int, list[tuple[float, list[TraceSlice]]]] = {kind: [] for kind in _TRACKS}
    for transfer, step in transfers:
        lanes = rows[transfer.kind]
        free = next((n for n, (end, _) in enumerate(lanes) if end <= transfer.issued), len(lanes))
        slices = lanes[free][1] if free < len(lanes) else []
        lanes[free : free + 1] = [(transfer.arrived, slices)]
        slices.extend(_slices(transfer, step, to_us))
    return [
        Track(f"{_TRACKS[kind][0]} {n + 1}" if len(lanes) > 1 else _TRACKS[kind][0], slices)
        for kind, lanes in rows.items()
        for n, (_, slices) in enumerate(lanes)
    ]


def _slices(transfer: Transfer, step: str, to_us: Callable[[float], float]) -> Iterator[TraceSlice]:
    """The whole DMA, and in it the queue for HBM, the transfer and the latency."""
    issued, begun, moved, arrived = map(to_us, transfer[1:5])
    name = f"{_TRACKS[transfer.kind][1]} {transfer.size / 1024:g} KiB"
    yield TraceSlice(name, issued, arrived, {BYTES: round(transfer.size), ISSUED_IN: step})
    phases = (("queue", issued, begun), ("transfer", begun, moved), ("latency", moved, arrived))
    for phase, begin, end in phases:
        if end > begin:
            yield TraceSlice(phase, begin, end, {})
