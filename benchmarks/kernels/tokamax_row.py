"""Any operation that tokamax has a device time of, built as its own autotuner builds it.

``AUTOTUNE_TOKAMAX_ROWS`` names a JSON file: a list of rows, each with ``family``, ``problem`` and
``config`` as they stand in tokamax's caches. The problem ``row=3`` is the third of them: the op
with its config, as a whole. Needs ``tokamax`` in the compiling Python. What a program that is
compiled here needs at its peak, in MB, is written to the file ``AUTOTUNE_TOKAMAX_MEMORY``.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pydantic
from tokamax._src import benchmarking, numerics
from tokamax._src.autotuning import cache

from autotune import Array, Axis, Config, Kernel, Problem
from autotune.compiling.child.tokamax_cache import op_named

_RAGGED_DOT = "pallas_mosaic_tpu_ragged_dot"
_MOST_VALUES = 1 << 20  # integers of an argument: more decide no control flow


@lru_cache(maxsize=4)
def _row(number: int) -> tuple[Callable[[Any], Any], tuple[Any, ...]]:
    """The function of its arrays, as ``tokamax.benchmarking`` has it, and these arrays."""
    row = json.loads(Path(os.environ["AUTOTUNE_TOKAMAX_ROWS"]).read_text())[number - 1]
    op = op_named(row["family"])
    if op is None:
        raise ValueError(f"this tokamax has no op {row['family']}")
    op = _as_called(op)
    config = pydantic.TypeAdapter(op.config_cls).validate_json(json.dumps(_config(row)))
    (given,) = cache._get_cache_adapter(op).validate_python({json.dumps(row["problem"]): {}})
    op = op.replace(config=config, bypass_device_check=True)
    kwargs = op.bind(**given).arguments
    function, arrays = benchmarking.standardize_function(op, kwargs=kwargs, seed=None)
    return function, arrays


def _as_called(op: Any) -> Any:
    """As tokamax's own functions call it: chunked attention has other chunks than its class."""
    modules = [m for name, m in sys.modules.items() if name.startswith("tokamax._src.ops.")]
    known = chain(*((getattr(m, "IMPLEMENTATIONS", None) or {}).values() for m in modules))
    return {type(called).__name__: called for called in known}.get(type(op).__name__, op)


def _config(row: dict[str, Any]) -> dict[str, Any]:
    """As this tokamax reads it: it exchanges two tiles where weights are transposed, which that
    on v7x did not (docs/results/accuracy.md: which program was measured)."""
    config: dict[str, Any] = row["config"]
    dims = row["problem"].get("ragged_dot_dimension_numbers") or {}
    is_transposed = dims.get("dot_dimension_numbers", [()])[0] == [[1], [2]]
    if row["chip"] != "v7x" or row["family"] != _RAGGED_DOT or not is_transposed:
        return config
    return config | {"tile_k": config["tile_n"], "tile_n": config["tile_k"]}


def _noting(compiled: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(compiled)
    def noted(*args: Any, **kwargs: Any) -> Any:
        done = compiled(*args, **kwargs)
        peak_mb = done.memory_analysis().peak_memory_in_bytes / 1e6
        Path(os.environ["AUTOTUNE_TOKAMAX_MEMORY"]).write_text(str(peak_mb))
        return done

    return noted


def _inputs(problem: Problem) -> list[Array]:
    return [_array(n, array) for n, array in enumerate(_row(problem["row"])[1])]


def _array(number: int, array: Any) -> Array:
    dtype = np.dtype(array.dtype)
    known = isinstance(array, (np.ndarray, jax.Array)) or (
        np.issubdtype(dtype, np.integer) and array.size <= _MOST_VALUES
    )
    return Array(
        name=f"x{number}",
        shape=tuple(array.shape),
        dtype=dtype.name,
        values=partial(_values, array) if known else None,
    )


def _values(array: Any) -> Any:
    """What it holds, or is filled with where it is measured."""
    if isinstance(array, numerics.ArrayInitializer):
        array = array(np.random.default_rng(0))
    elif isinstance(array, jax.ShapeDtypeStruct):
        array = numerics._int_initializer(np.random.default_rng(0), array.shape, array.dtype)
    return np.asarray(array)


def _function(problem: Problem) -> Callable[..., Any]:
    function = _row(problem["row"])[0]
    return lambda *arrays: function(arrays)


def _build(problem: Problem, _: Config) -> Callable[..., Any]:
    return _function(problem)


KERNEL = Kernel(
    name="tokamax_row",
    dims=("row",),
    dtypes=("bfloat16",),
    axes=(Axis(name="config", choices=lambda _: (0,)),),
    default=lambda _: {"config": 0},
    inputs=_inputs,
    build=_build,
    reference=_function,
    doc="a row of tokamax's autotuning caches",
)
jax.stages.Lowered.compile = _noting(jax.stages.Lowered.compile)
