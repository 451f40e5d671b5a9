"""Per-chip constants of the cost model, read from ``chips/<chip>.json``.

Each number stands there with its source. All are per core, or per device where a chip compiles
as one device per core.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("chips")
CHIPS = ("v4", "v5e", "v5p", "v6e", "v7x")


@dataclass(frozen=True, slots=True, kw_only=True)
class StallModel:
    """Interlock constants, cycles."""

    matmul_latency: float  # vmatmul start to its first result
    push_cycles: float  # per vmatpush
    backlog_cycles: float  # how far an MXU may lag behind before issue stalls
    reduce_latency: float  # xlane push to pop
    transpose_latency: float  # last vxpose push to first pop


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """What the model knows of one core."""

    name: str
    clock_hz: float
    mxu_count: int
    mxu_width: int
    bf16_matmul_cycles: float  # also int8
    f32_matmul_cycles: float
    delay_slots: int  # bundles after a branch that always issue
    granule_bytes: int  # unit of DMA sizes in the listing
    read_latency_cycles: float
    write_latency_cycles: float
    real_read_latency_cycles: float  # from hardware where known, else libtpu's
    dma_bytes_per_cycle: float  # of one DMA in libtpu's model
    hbm_bytes_per_cycle: float  # all DMAs of the core together, after efficiency
    stalls: StallModel | None  # None: bundles only, a lower bound

    def matmul_cycles(self, opcode: str) -> float:
        """Return the cycles that one vmatmul occupies its MXU."""
        return self.f32_matmul_cycles if ".f32" in opcode else self.bf16_matmul_cycles

    def matmul_results(self, opcode: str) -> int:
        """Return the result registers of one vmatmul (facts sect. 4.2, from pops per matmul)."""
        wide = self.mxu_width // 128
        if ".f32" in opcode:
            return wide
        return wide * (4 if any(t in opcode for t in (".s8", ".u8")) else 2)


@lru_cache(maxsize=len(CHIPS))
def load(name: str) -> Chip:
    """Return the constants of a chip in :data:`CHIPS`."""
    data: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text())
    number = {key: entry["value"] for key, entry in data.items() if key != "stalls"}
    clock_hz = float(number["clock_hz"])
    hbm_bytes_per_second = number["hbm_gigabytes_per_second"] * 1e9 * number["hbm_efficiency"]
    stalls = data["stalls"]
    read = number["read_latency_cycles"]
    return Chip(
        name=name,
        clock_hz=clock_hz,
        mxu_count=number["mxu_count"],
        mxu_width=number["mxu_width"],
        bf16_matmul_cycles=number["matmul_cycles"],
        f32_matmul_cycles=number["matmul_f32_cycles"],
        delay_slots=number["delay_slots"],
        granule_bytes=number["granule_bytes"],
        read_latency_cycles=read,
        write_latency_cycles=number["write_latency_cycles"],
        real_read_latency_cycles=number.get("measured_read_latency_cycles", read),
        dma_bytes_per_cycle=number["dma_gigabytes_per_second"] * 1e9 / clock_hz,
        hbm_bytes_per_cycle=hbm_bytes_per_second / clock_hz,
        stalls=StallModel(**{k: e["value"] for k, e in stalls.items()}) if stalls else None,
    )
