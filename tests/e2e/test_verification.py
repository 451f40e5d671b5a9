"""The check before publishing: wrong kernels are caught, with the reason, in a real child."""

from pathlib import Path
from typing import Any

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, VerifyConfig
from autotune.domain.key import Chip
from autotune.domain.problem import make_config

KERNEL = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.declaring.pallas import Grid, compiler_params


def build(problem, config):
    grid = Grid(config, i=problem["rows"] // config["block"], k=2)

    def body(x, out, total):
        @pl.when(pl.program_id(grid.axis("k")) == 0)
        def _():
            if config["how"] == "asks":
                assert pltpu.get_tpu_info().chip_version.value == "v5e"
            if config["how"] == "untraceable":
                raise ValueError("not here")
            if config["how"] != "no start":
                total[...] = jnp.zeros_like(total)
        total[...] += x[...] * (1.5 if config["how"] == "off" else 1)
        out[...] = total[...]

    row = (lambda i, k: (0, k)) if config["how"] == "map" else (lambda i, k: (i, k))
    half = problem["columns"] // 2
    return pl.pallas_call(
        body, grid=grid.sizes,
        in_specs=[pl.BlockSpec((config["block"], half), grid.index_map(row))],
        out_specs=pl.BlockSpec((config["block"], half), grid.index_map(lambda i: (i, 0))),
        out_shape=jax.ShapeDtypeStruct((problem["rows"], half), "float32"),
        scratch_shapes=[pltpu.VMEM((config["block"], half), jnp.float32)],
        compiler_params=compiler_params(config),
    )


KERNEL = Kernel(
    name="halves", dims=("rows", "columns"), dtypes=("float32",),
    axes=(Axis(name="block", choices=lambda p: (8,), dim="rows"),
          Axis(name="how", choices=lambda p: ("right", "off", "map", "no start"))),
    default=lambda p: {"block": 8, "how": "right"}, grid=("i", "k"),
    inputs=lambda p: [Array(name="x", shape=(p["rows"], p["columns"]), dtype=p.dtype)],
    build=build,
    reference=lambda p: lambda x: x[:, : p["columns"] // 2] + x[:, p["columns"] // 2 :],
)
"""

SEQUENTIAL = ("parallel", "arbitrary")


@pytest.mark.parametrize(
    ("how", "order", "semantics", "ok", "check"),
    [
        ("right", ("i", "k"), SEQUENTIAL, True, ""),
        ("right", ("i", "k"), ("arbitrary", "arbitrary"), True, ""),
        (
            "right",
            ("i", "k"),
            ("parallel", "parallel"),
            False,
            "values or race",
        ),  # the sum runs along k
        ("right", ("k", "i"), ("arbitrary", "arbitrary"), False, "output visited again"),
        ("asks", ("i", "k"), SEQUENTIAL, True, ""),  # which chip it is for, while traced
        ("untraceable", ("i", "k"), SEQUENTIAL, None, ""),  # not known to be wrong
        ("off", ("i", "k"), SEQUENTIAL, False, "values"),
        ("map", ("i", "k"), SEQUENTIAL, False, "values"),
        ("no start", ("i", "k"), SEQUENTIAL, False, "uninitialised memory"),
    ],
)
def test_what_is_wrong_is_caught_and_what_is_right_passes(
    pool: CompilerPool,
    tmp_path: Path,
    how: str,
    order: Any,
    semantics: Any,
    ok: bool | None,
    check: str,
) -> None:
    file = tmp_path / "halves.py"
    file.write_text(KERNEL)
    ref = find_kernel(f"{file}:KERNEL")
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse("rows=64,columns=256")
    config = make_config({"block": 8, "how": how}, grid_order=order, dimension_semantics=semantics)
    verdict = pool.ask(VerifyConfig(ref=ref, problem=problem, config=config, chip=Chip.V5E))
    assert verdict.ok is ok, verdict
    assert "CpuCallback" not in verdict.reason
    assert verdict.runs == 3 if ok else verdict.reason
    assert verdict.check in check.split(" or ")
