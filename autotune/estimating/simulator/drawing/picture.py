"""What a picture of a run is made of: slices of time on tracks. Plain data, for any viewer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

STEPS, CORE, READS, WRITES = "grid steps", "core", "HBM reads", "HBM writes"
XLA = "operations of XLA, in their order"
BYTES, ISSUED_IN = "bytes", "issued in"


class TraceSlice(NamedTuple):
    """Something that lasts, microseconds from the begin of the call."""

    name: str
    begin_us: float
    end_us: float
    details: dict[str, Any]


class Track(NamedTuple):
    """Slices in order of their begin; two of them lie apart, or one lies within the other."""

    name: str
    slices: list[TraceSlice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One core, in the reading of real time. ``total_us``: the whole run; ``drawn_us``: where the
    simulation ended, before that if the rest was extrapolated."""

    tracks: tuple[Track, ...]
    steps: int
    total_us: float
    drawn_us: float
    notes: tuple[str, ...]
