"""Candidates made by hand: two block sizes, two grid orders, a roofline that is half the truth."""

from math import log2

from autotune.domain.problem import make_config
from autotune.domain.trace import Scratch, Trace
from autotune.estimating.roofline import Roofline
from autotune.estimating.space import Candidate

SIZES = (128, 256, 512, 1024, 2048, 4096)
ORDERS = (("m", "n"), ("n", "m"))


def candidate(block_m, block_n, order=("m", "n"), limit=None):
    tile = Scratch(shape=(block_m, block_n), dtype="float32", space="vmem", carried=False)
    config = make_config(
        {"block_m": block_m, "block_n": block_n},
        grid_order=order,
        dimension_semantics=("parallel", "parallel"),
        vmem_limit_bytes=limit,
    )
    return Candidate(config=config, trace=_trace(tile, config.grid_order), roofline=_line(config))


def space():
    return [candidate(m, n, order) for m in SIZES for n in SIZES for order in ORDERS]


def time_us(point):
    """A smooth valley: 2048 x 512 is best, and the order counts a little."""
    m, n = log2(point.config["block_m"]), log2(point.config["block_n"])
    order = 0.1 if point.config.grid_order == ("m", "n") else 0.0
    return 100.0 + 20.0 * (m - 11) ** 2 + 10.0 * (n - 9) ** 2 + order


def fits(point):
    """As if the compiler had room for 2^20 elements, twice as many under the higher limit."""
    room = 2**21 if point.config.vmem_limit_bytes else 2**20
    return bool(point.config["block_m"] * point.config["block_n"] <= room)


def _line(config):
    steps = 2**24 / (config["block_m"] * config["block_n"])
    return Roofline(compute_us=50.0, memory_us=40.0, overhead_us=steps, fill_us=1.0, cores=1)


def _trace(tile, order):
    known = {**dict.fromkeys(Trace.__dataclass_fields__, 0), "runs": 1, "more": ()}
    empty = dict.fromkeys(("operands", "aliases", "notes"), ())
    fields = {**known, **empty, "grid": (8,) * len(order), "scratch": (tile,)}
    fields |= {"alias_safe": True, "dimension_semantics": (), "vmem_limit_bytes": None, "name": ""}
    return Trace(**fields)
