"""Estimates with an explanation whose parts add up, for tests."""

from autotune.domain import explanation as names
from autotune.domain.explanation import Explanation
from autotune.domain.outcome import Estimate

SHORT = {
    "issue": names.ISSUE,
    "scalar": names.SCALAR,
    "matrix": names.MATRIX,
    "lanes": names.LANES,
    "hbm": names.HBM,
    "latency": names.LATENCY,
    "fill": names.FILL,
    "links": names.LINKS,
    "xla": names.XLA,
}


def parts(**us):
    """Microseconds by part, given by the first word of each."""
    return {name: us.get(short, 0.0) for short, name in SHORT.items()}


def estimate(parts_us, **changes):
    """Fields of the explanation and of the estimate can be changed by name."""
    explained = {
        "parts_us": tuple(parts_us.items()),
        "roofline_us": 1.0,
        "mxu_us": 0.5,
        "steps": 8,
        "dma_count": 17,
        "burst_bytes": 512,
        "least_hbm_bytes": 1 << 20,
        "vmem": (("args[0]", 65536), ("outputs", 2 << 20)),
        "spill_bundles": 0,
        "least_us": 0.0,
    }
    fields = {
        "time_us": sum(parts_us.values()),
        "compute_us": 1.0,
        "memory_us": 1.0,
        "overhead_us": 1.0,
        "fill_us": 1.0,
        "limited_by": "compute",
        "model": "schedule simulation",
        "vmem_used_bytes": 3 << 20,
        "vmem_allowed_bytes": 16 << 20,
        "hbm_bytes": 4 << 20,
        "flops": 10**9,
        "error": 0.05,
        "resolution": 0.03,
    }
    for name, value in changes.items():
        (explained if name in explained else fields)[name] = value
    return Estimate(**fields, explanation=Explanation(**explained))
