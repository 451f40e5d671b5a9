"""Kernels for calibration, and the points at which they are compiled: probes and sweeps.

Constants are fitted on the probes only: most are kernels of one step, where nothing overlaps and
every stall shows in the total. The sweeps are kernels as people write them, held out: one problem
with several configs each; ranks are compared within a sweep.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One problem of a family with several configs.

    ``shape``: sizes in elements as the family's builder takes them; ``blocks``: one tuple each.
    """

    family: str
    shape: tuple[int, ...]
    dtype: str
    blocks: tuple[Blocks, ...]
    option: str = ""

    @property
    def name(self) -> str:
        parts = [self.family, "x".join(map(str, self.shape)), self.dtype, self.option]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Sample:
    """One point: a sweep and one of its configs."""

    sweep: Sweep
    blocks: Blocks

    @property
    def name(self) -> str:
        return f"{self.sweep.name} @{'x'.join(map(str, self.blocks))}"


def _cube(*sizes: int) -> tuple[Blocks, ...]:
    return tuple(product(sizes, repeat=3))


def _each(*sizes: int) -> tuple[Blocks, ...]:
    return tuple((size,) for size in sizes)


def _whole(family: str, dtype: str, *shapes: tuple[int, ...], option: str = "") -> list[Sweep]:
    """One-step kernels: the block is the whole array."""
    return [
        Sweep(family=family, shape=shape, dtype=dtype, blocks=(shape,), option=option)
        for shape in shapes
    ]


_TILES = ((128, 128), (256, 128), (128, 256), (256, 256), (384, 128), (512, 256), (512, 512))
_ROWS = tuple((rows, 128) for rows in (8, 16, 24, 32, 64, 128, 256, 512))
_DOTS = (
    (32, 128, 128),
    (128, 128, 128),
    (128, 256, 128),
    (256, 128, 128),
    (128, 128, 256),
    (256, 256, 256),
    (128, 512, 128),
    (512, 512, 512),
    (1024, 128, 128),
    (128, 128, 1024),
)

PROBES = (
    *_whole("copy", "float32", (8, 128), (128, 128), (256, 512), (1024, 512)),
    *_whole("transpose", "float32", *_TILES),
    *_whole("transpose", "bfloat16", (256, 128), (256, 256), (512, 512)),
    *_whole("reduce", "float32", *_ROWS),
    *_whole("reduce", "float32", (8, 128), (32, 128), (128, 128), option="thrice"),
    *_whole("reduce", "float32", (8, 128), (16, 128), option="sixfold"),
    *_whole("exponential", "float32", (8, 128), (64, 128), (256, 128)),
    *_whole("exponential", "float32", (8, 128), option="thrice"),
    *_whole("rotate", "float32", (8, 128), (64, 128)),
    *_whole("dot", "bfloat16", (16, 128, 128), *_DOTS),
    *_whole("dot", "float32", *_DOTS),
    *_whole("dot", "int8", *_DOTS),
    *_whole("dot", "bfloat16", *_DOTS, option="transpose_rhs"),
    *_whole("attend", "bfloat16", (512, 512, 128), (512, 1024, 128), (1024, 1024, 128)),
    Sweep(
        family="copy",
        shape=(2048, 512),
        dtype="float32",
        blocks=((8, 512), (32, 512), (128, 512), (512, 512), (64, 128)),
    ),
    Sweep(
        family="fetch",
        shape=(2048, 512),
        dtype="float32",
        blocks=((8, 512), (32, 512), (128, 512), (512, 512)),
    ),
)

SWEEPS = (
    Sweep(family="matmul", shape=(2048, 1024, 2048), dtype="bfloat16", blocks=_cube(128, 512)),
    Sweep(
        family="matmul",
        shape=(1024, 2048, 512),
        dtype="bfloat16",
        blocks=((256, 256, 256), (256, 2048, 256), (512, 1024, 512), (64, 512, 256)),
    ),
    Sweep(
        family="matmul",
        shape=(1024, 1024, 1024),
        dtype="float32",
        blocks=((128, 128, 128), (256, 256, 256), (512, 512, 512), (256, 1024, 128)),
    ),
    Sweep(
        family="matmul",
        shape=(1024, 2048, 1024),
        dtype="int8",
        blocks=((256, 256, 256), (512, 512, 512), (128, 2048, 256), (512, 256, 1024)),
    ),
    Sweep(
        family="add",
        shape=(4096, 2048),
        dtype="bfloat16",
        blocks=((64, 2048), (256, 512), (512, 2048), (128, 256), (1024, 1024)),
    ),
    Sweep(
        family="add", shape=(1024, 512), dtype="float32", blocks=((8, 512), (64, 128), (512, 512))
    ),
    Sweep(family="rmsnorm", shape=(4096, 2048), dtype="bfloat16", blocks=_each(32, 128, 512)),
    Sweep(family="softmax", shape=(4096, 1024), dtype="bfloat16", blocks=_each(32, 128, 512)),
    Sweep(family="layernorm", shape=(2048, 2048), dtype="float32", blocks=_each(16, 64, 256)),
    Sweep(
        family="transpose",
        shape=(2048, 2048),
        dtype="float32",
        blocks=((128, 128), (256, 256), (512, 512), (128, 1024)),
    ),
    Sweep(
        family="transpose", shape=(2048, 2048), dtype="bfloat16", blocks=((256, 256), (512, 512))
    ),
    Sweep(
        family="flash",
        shape=(1, 4, 2048, 128),
        dtype="bfloat16",
        blocks=((128, 128), (128, 512), (256, 256), (512, 512), (256, 1024), (1024, 512)),
    ),
    Sweep(
        family="flash",
        shape=(1, 4, 1024, 64),
        dtype="bfloat16",
        blocks=((128, 128), (256, 512), (512, 256)),
    ),
    Sweep(
        family="matmul",
        shape=(4096, 4096, 4096),
        dtype="bfloat16",
        blocks=(
            (128, 128, 128),
            (256, 256, 256),
            (512, 512, 512),
            (512, 1024, 1024),
            (1024, 512, 512),
            (256, 4096, 256),
            (1024, 256, 1024),
            (128, 512, 2048),
        ),
    ),
    Sweep(
        family="matmul",
        shape=(1536, 3072, 768),
        dtype="bfloat16",
        blocks=(
            (128, 384, 256),
            (384, 768, 384),
            (768, 1024, 768),
            (512, 3072, 256),
            (192, 1536, 768),
        ),
    ),
    Sweep(
        family="matmul",
        shape=(2048, 512, 1024),
        dtype="float32",
        blocks=(
            (128, 256, 256),
            (256, 512, 512),
            (512, 128, 512),
            (1024, 512, 128),
            (256, 256, 1024),
        ),
    ),
    Sweep(
        family="matmul",
        shape=(4096, 1024, 2048),
        dtype="int8",
        blocks=(
            (128, 1024, 512),
            (512, 1024, 1024),
            (1024, 256, 512),
            (256, 512, 2048),
            (512, 128, 512),
        ),
    ),
    Sweep(
        family="matmul",
        shape=(2048, 2048, 1024),
        dtype="bfloat16",
        option="gelu",
        blocks=((256, 512, 512), (512, 2048, 256), (128, 1024, 1024), (512, 512, 512)),
    ),
    Sweep(
        family="matmul",
        shape=(2048, 1024, 2048),
        dtype="bfloat16",
        option="transpose_rhs",
        blocks=((256, 256, 512), (512, 1024, 512), (1024, 512, 256), (128, 128, 256)),
    ),
    Sweep(
        family="batched",
        shape=(8, 512, 1024, 768),
        dtype="bfloat16",
        blocks=((128, 256, 256), (256, 1024, 256), (512, 512, 768), (512, 1024, 384)),
    ),
    Sweep(
        family="flash",
        shape=(1, 2, 4096, 128),
        dtype="bfloat16",
        option="causal",
        blocks=((128, 256), (256, 512), (512, 512), (512, 1024), (1024, 1024)),
    ),
    Sweep(
        family="flash",
        shape=(1, 8, 2048, 64),
        dtype="bfloat16",
        blocks=((128, 128), (128, 256), (256, 256), (256, 1024), (512, 1024), (1024, 256)),
    ),
    Sweep(
        family="jax_flash",
        shape=(1, 4, 2048, 128),
        dtype="bfloat16",
        blocks=((128, 128), (256, 512), (512, 512), (512, 1024), (1024, 512)),
    ),
    Sweep(family="rmsnorm", shape=(8192, 1024), dtype="float32", blocks=_each(16, 64, 128, 512)),
    Sweep(family="softmax", shape=(2048, 4096), dtype="bfloat16", blocks=_each(16, 64, 128, 256)),
    Sweep(family="layernorm", shape=(8192, 1024), dtype="bfloat16", blocks=_each(32, 128, 512)),
    Sweep(
        family="gelu",
        shape=(4096, 4096),
        dtype="bfloat16",
        blocks=((64, 1024), (256, 512), (256, 2048), (512, 1024)),
    ),
    Sweep(
        family="add",
        shape=(8192, 1024),
        dtype="float32",
        blocks=((32, 1024), (128, 256), (512, 1024), (1024, 512)),
    ),
    Sweep(
        family="transpose",
        shape=(1024, 4096),
        dtype="float32",
        blocks=((128, 256), (256, 512), (512, 256), (512, 1024), (1024, 128)),
    ),
    Sweep(
        family="transpose",
        shape=(4096, 1024),
        dtype="bfloat16",
        blocks=((128, 128), (256, 512), (512, 256)),
    ),
    Sweep(
        family="emitted",
        shape=(4096, 1024),
        dtype="float32",
        blocks=((32, 1024), (128, 512), (512, 1024)),
    ),
    Sweep(family="loop", shape=(8192, 1024), dtype="float32", blocks=_each(64, 256, 1024)),
)


def samples(sweeps: tuple[Sweep, ...]) -> list[Sample]:
    return [Sample(sweep, blocks) for sweep in sweeps for blocks in sweep.blocks]


def find(name: str) -> Sample:
    """The sample of that name, of no sweep's maybe: ``FAMILY SHAPE DTYPE [OPTION] @BLOCKS``.

    ValueError for a name that reads otherwise.
    """
    what, _, blocks = name.partition(" @")
    family, shape, dtype, *option = what.split(" ")
    sizes = tuple(int(size) for size in blocks.split("x"))
    sweep = Sweep(
        family=family,
        shape=tuple(int(size) for size in shape.split("x")),
        dtype=dtype,
        blocks=(sizes,),
        option=" ".join(option),
    )
    known = (s for s in PROBES + SWEEPS if s.name == sweep.name and sizes in s.blocks)
    return Sample(next(known, sweep), sizes)


def build(sample: Sample) -> tuple[Callable[..., Any], list[Any]]:
    """The function that holds the ``pallas_call``, and its arguments as (shape, dtype)."""
    from benchmarks.calibration import sample_kernels

    sweep = sample.sweep
    make = getattr(sample_kernels, sweep.family)
    made: tuple[Callable[..., Any], list[Any]] = make(
        sweep.shape, sample.blocks, sweep.dtype, sweep.option
    )
    return made
