"""A simulation as the compiler child answers it, made by hand, at a clock of 1 GHz."""

from typing import Any

_CYCLES = 1000  # a microsecond


def simulation(total_us: float, **cycles_us: float) -> dict[str, Any]:
    """``cycles_us``: microseconds by name of ``Parts``; what is left is vector issue."""
    names = ("scalar", "matrix_stall", "lane_stall", "hbm_wait", "latency_wait", "fill")
    parts = {name: round(cycles_us.get(name, 0.0) * _CYCLES) for name in names}
    vector = round(total_us * _CYCLES) - sum(parts.values())
    return {
        "clock_hz": 1e9,
        "us_shared": total_us,
        "parts": {**parts, "vector": vector},
        "bundle_cycles": vector + parts["scalar"],
        "stall_cycles": parts["matrix_stall"] + parts["lane_stall"],
        "fill_cycles": parts["fill"],
        "mxu_busy_cycles": 0,
        "hbm_bytes_read": 4096,
        "hbm_bytes_written": 4096,
        "steps": 4,
        "dma_count": 8,
        "burst_bytes": 4096,
        "spill_bundles": 0,
        "vmem_operands": (),
        "notes": (),
    }
