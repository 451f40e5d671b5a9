"""Chips and traces made by hand, for rules and memory."""

from dataclasses import replace

from autotune.domain.key import Chip, ChipInfo
from autotune.domain.trace import Operand, Scratch, Trace

MIB = 2**20

V5E = ChipInfo(
    chip=Chip.V5E,
    device_kind="TPU v5 lite",
    num_cores=1,
    vmem_capacity_bytes=128 * MIB,
    scoped_vmem_bytes=16 * MIB,
    hbm_capacity_bytes=17_200_000_000,
    hbm_bytes_per_s=8.2e11,
    bf16_ops_per_s=1.97e14,
    int8_ops_per_s=3.94e14,
)
V4 = replace(V5E, chip=Chip.V4, device_kind="TPU v4", num_cores=2, vmem_capacity_bytes=16 * MIB)
V7X = replace(
    V5E,
    chip=Chip.V7X,
    device_kind="TPU7x",
    vmem_capacity_bytes=64 * MIB,
    scoped_vmem_bytes=32 * MIB,
    places_operands_in_vmem=True,
)


def operand(shape, block, dtype="bfloat16", **fields):
    """An input that varies along one axis of a one-axis grid, unless told otherwise."""
    known = {
        "name": "x",
        "is_output": False,
        "space": "default",
        "varies": (True,),
        "exclusive": (True,),
        "fetches": 4,
        "blocks": 4,
        "blocks_total": 4,
        "hbm_bytes": 0,
        "at_boundary": True,
    }
    return Operand(shape=shape, block=block, dtype=dtype, **{**known, **fields})


def scratch(shape, dtype="float32", **fields):
    return Scratch(**{"shape": shape, "dtype": dtype, "space": "vmem", "carried": True, **fields})


def trace(*operands, grid=(4,), **fields):
    known = {
        "scratch": (),
        "scalar_operands": 0,
        "scalar_prefetch_bytes": 0,
        "aliases": (),
        "alias_safe": True,
        "dimension_semantics": (),
        "vmem_limit_bytes": None,
        "mxu_flops": 0,
        "mxu_dtype": None,
        "vector_ops": 0,
        "io_bytes": 0,
    }
    return Trace(grid=grid, operands=operands, **{**known, **fields})
