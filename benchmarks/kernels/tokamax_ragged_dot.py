"""tokamax's ragged_dot for TPU, declared for the search; needs ``tokamax`` in the compiling Python.

``AUTOTUNE_GROUP_SIZES`` may name a JSON file ``{name: [rows of group 0, ...]}``: each name is then
a choice of the option ``sizes``. Group sizes steer the kernel: what it fetches depends on them.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokamax._src import precision as tokamax_precision
from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu_kernel as tokamax_kernel

from autotune import Array, Axis, Config, Kernel, Option, Problem, block

_BALANCED = "balanced"


def _given_sizes() -> dict[str, list[int]]:
    path = os.environ.get("AUTOTUNE_GROUP_SIZES")
    sizes: dict[str, list[int]] = json.loads(Path(path).read_text()) if path else {}
    return sizes


def _sizes(problem: Problem) -> Any:
    """Rows of each group."""
    name, groups = str(problem.option("sizes")), problem["groups"]
    if name != _BALANCED:
        return np.asarray(_given_sizes()[name], np.int32)
    return np.diff(np.arange(groups + 1) * problem["m"] // groups).astype(np.int32)


def _check(problem: Problem) -> str | None:
    sizes = _sizes(problem)
    if len(sizes) != problem["groups"] or sizes.sum() > problem["m"]:
        return f"the group sizes are for {len(sizes)} groups and {sizes.sum()} rows"
    return None


def _inputs(problem: Problem) -> list[Array]:
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    weights = {"fwd": (groups, k, n), "dlhs": (groups, n, k), "drhs": (m, n)}
    return [
        Array(name="sizes", shape=(groups,), dtype="int32", values=partial(_sizes, problem)),
        Array(name="lhs", shape=(m, k), dtype=problem.dtype),
        Array(name="rhs", shape=weights[str(problem.option("mode"))], dtype=problem.dtype),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    mode, twice = problem.option("mode"), problem.option("residuals")
    settings = {
        "precision": tokamax_precision.canonicalize_precision(None),
        "out_dtype": jnp.dtype(problem.dtype),
        "tiling": (config["tile_m"], config["tile_k"], config["tile_n"]),
        "input_buffer_count": config["input_buffer_count"],
    }

    def ragged_dot(sizes: Any, lhs: Any, rhs: Any) -> Any:
        if mode == "drhs":
            return tokamax_kernel.tgmm(lhs.mT, rhs, sizes, **settings)
        out = tokamax_kernel.gmm(lhs, rhs, sizes, **settings, transpose_rhs=mode == "dlhs")
        return (out, out) if twice else out

    return ragged_dot


def _reference(problem: Problem) -> Callable[..., Any]:
    """XLA's ragged dot of the same operands."""
    mode = problem.option("mode")
    contracting = {"fwd": ((1,), (1,)), "dlhs": ((1,), (2,)), "drhs": ((0,), (0,))}[str(mode)]
    numbers = jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contracting, ((), ())),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[] if mode == "drhs" else [0],
    )

    def ragged_dot(sizes: Any, lhs: Any, rhs: Any) -> Any:
        out = jax.lax.ragged_dot_general(
            lhs, rhs, sizes, numbers, preferred_element_type=jnp.float32
        )
        out = out.astype(lhs.dtype)
        return (out, out) if problem.option("residuals") else out

    return ragged_dot


def _tile_m(problem: Problem) -> list[int]:
    """The kernel wants whole tiles of rows."""
    return [size for size in (64, 128, 256, 512, 1024) if problem["m"] % size == 0]


KERNEL = Kernel(
    name="tokamax_ragged_dot",
    dims=("m", "k", "n", "groups"),
    dtypes=("bfloat16", "float32"),
    options=(
        Option(name="mode", choices=("fwd", "dlhs", "drhs"), default="fwd"),
        Option(name="residuals", choices=(False, True), default=False),
        Option(name="sizes", choices=(_BALANCED, *_given_sizes()), default=_BALANCED),
    ),
    axes=(
        Axis(name="tile_m", choices=_tile_m, dim="m"),
        block("tile_k", "k"),
        block("tile_n", "n"),
        Axis(name="input_buffer_count", choices=lambda _: (2, 3, 4)),
    ),
    default=lambda _: {"tile_m": 128, "tile_k": 128, "tile_n": 128, "input_buffer_count": 2},
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=_check,
    doc="tokamax ragged_dot: rows in groups, each group times its own weights",
)
