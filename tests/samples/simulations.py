"""A simulation as the compiler child answers it, made by hand, at a clock of 1 GHz."""

from autotune.domain.compilers import Compiled
from autotune.domain.explanation import TimePart

_CYCLES = 1000  # a microsecond


def simulation(total_us, **cycles_us):
    """``cycles_us``: microseconds by ``TimePart``, in small letters; the rest is vector issue."""
    parts = {p: round(cycles_us.get(p.name.lower(), 0.0) * _CYCLES) for p in TimePart}
    del parts[TimePart.XLA]
    vector = parts[TimePart.ISSUE] = round(total_us * _CYCLES) - sum(parts.values())
    return {
        "clock_hz": 1e9,
        "us_shared": total_us,
        "cycles_shared": round(total_us * _CYCLES),
        "parts": parts,
        "bundle_cycles": vector + parts[TimePart.SCALAR],
        "stall_cycles": parts[TimePart.MATRIX] + parts[TimePart.LANES],
        "mxu_busy_cycles": 0,
        "hbm_bytes_read": 4096,
        "hbm_bytes_written": 4096,
        "steps": 4,
        "dma_count": 8,
        "link_cycles": 0,
        "burst_bytes": 4096,
        "spill_bundles": 0,
        "vmem_operands": (),
        "is_fitted": True,
        "notes": (),
    }


def compiled(simulation, *, program="p", used=1, refusal=""):
    """``used``: bytes of VMEM."""
    return Compiled(
        seconds=0.1,
        vmem_used_bytes=used,
        program=program,
        simulation=simulation,
        refusal=refusal,
        simulate_s=0.0,
    )
