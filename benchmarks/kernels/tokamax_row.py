"""Any operation that tokamax has a device time of, built as its own autotuner builds it.

``AUTOTUNE_TOKAMAX_ROWS`` names a JSON file: a list of rows, each with ``family``, ``problem`` and
``config`` as they stand in tokamax's caches. The problem ``row=3`` is the third of them: the op
with its config, as a whole. Needs ``tokamax`` in the compiling Python. What a program that is
compiled here needs at its peak, in MB, is written to the file ``AUTOTUNE_TOKAMAX_MEMORY``.

A cache's key has shapes alone, where lengths, indices and distributions decide what a kernel does.
What was measured stands in tokamax's argument specs (``arg_specs.py`` beside each op): a row takes
the arguments of the spec that has its key. What a spec leaves open is filled as tokamax's autotuner
fills it.
"""

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial, wraps
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pydantic
from jax import numpy as jnp
from jax._src import tpu_custom_call
from jax._src.pallas.mosaic.lowering import tpu
from tokamax._src import benchmarking, numerics
from tokamax._src.autotuning import cache
from tokamax._src.autotuning.arg_spec import ArgSpec

from autotune import Array, Axis, Config, Kernel, Problem
from autotune.compiling import libtpu
from autotune.compiling.child.tokamax_cache import op_named

from .tokamax_rules import config_as_read, has_gradients_of_operands

_SECOND = "pallas_mosaic_tpu_v2_ragged_dot"
_MOST_VALUES = 1 << 20  # integers of an argument: more decide no control flow


@lru_cache(maxsize=4)
def _row(number: int) -> tuple[Callable[[Any], Any], tuple[Any, ...]]:
    """The function of its arrays, as ``tokamax.benchmarking`` has it, and these arrays."""
    row = json.loads(Path(os.environ["AUTOTUNE_TOKAMAX_ROWS"]).read_text())[number - 1]
    op = op_named(row["family"])
    if op is None:
        raise ValueError(f"this tokamax has no op {row['family']}")
    op = _as_called(op)
    config = pydantic.TypeAdapter(op.config_cls).validate_json(json.dumps(config_as_read(row)))
    (given,) = cache._get_cache_adapter(op).validate_python({json.dumps(row["problem"]): {}})
    op = op.replace(config=config, bypass_device_check=True)
    arguments, is_second = _measured(op, given), row["family"] == _SECOND
    if is_second:
        arguments |= _as_second_was_called(row, arguments["lhs"], arguments["rhs"])
    called = _as_operands(op) if has_gradients_of_operands(row) else op
    function, arrays = benchmarking.standardize_function(called, kwargs=arguments, seed=None)

    def measured(arrays: Any) -> Any:
        if is_second:
            _as_second_was_measured(row["chip"])
        return function(arrays)

    return measured, arrays


def _as_operands(op: Any) -> Callable[..., Any]:
    """A gradient of x, labels and w, in their dtypes."""

    def cast(**arguments: Any) -> Any:
        of = (arguments[name].dtype for name in ("x", "labels", "w"))
        return [made.astype(dtype) for made, dtype in zip(op(**arguments), of, strict=True)]

    return cast


def _measured(op: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a key's time was measured with. Where several specs have the key, those of
    the last: its time overwrote the others' when the cache was written."""
    bound, specs = op.bind(**given), [*_specs(op)]
    returned = {"return_residuals": given.get("return_residuals", False)}
    matching = [
        arguments
        for spec in specs
        if (arguments := _bound(op, spec.args | returned))
        and arguments.autotuning_cache_key == bound.autotuning_cache_key
    ]
    if matching:
        return dict(matching[-1].arguments)
    decided = {name for spec in specs for name, value in spec.args.items() if _has_contents(value)}
    for name, value in bound.arguments.items():
        if name in decided and not _has_contents(value):
            raise ValueError(f"contents of {name} unknown: no spec of tokamax has this key")
    return dict(bound.arguments)


def _specs(op: Any) -> Iterator[ArgSpec]:
    name = f"{type(op).__module__.rpartition('.')[0]}.arg_specs"
    if importlib.util.find_spec(name):
        lists = (v for v in vars(importlib.import_module(name)).values() if isinstance(v, tuple))
        yield from (spec for spec in chain(*lists) if isinstance(spec, ArgSpec))


def _bound(op: Any, arguments: dict[str, Any]) -> Any:
    """None where these are arguments of another op of the package."""
    try:
        return op.bind(**arguments)
    except TypeError:
        return None


def _has_contents(value: Any) -> bool:
    leaves = jax.tree.leaves(value, is_leaf=lambda v: isinstance(v, numerics.ArrayInitializer))
    return any(isinstance(v, (np.ndarray, numerics.ArrayInitializer)) for v in leaves)


def _as_called(op: Any) -> Any:
    """As tokamax's own functions call it: chunked attention has other chunks than its class."""
    modules = [m for name, m in sys.modules.items() if name.startswith("tokamax._src.ops.")]
    known = chain(*((getattr(m, "IMPLEMENTATIONS", None) or {}).values() for m in modules))
    return {type(called).__name__: called for called in known}.get(type(op).__name__, op)


def _as_second_was_called(row: dict[str, Any], lhs: Any, rhs: Any) -> dict[str, Any]:
    """By the keys of 0.0.14, which 0.0.15 made new ones of: output that no group has was zeroed,
    but where a spec says that it is not, and scales had a row of their own. Rows became float8
    where the chip multiplies that, on v5p not."""
    if not hasattr(lhs, "value"):
        return {"zero_initialize": True}
    groups, blocks, columns = rhs.scale.shape
    scale = jax.ShapeDtypeStruct((groups, blocks, 1, columns), rhs.scale.dtype)
    return {
        "zero_initialize": not isinstance(row["problem"]["group_sizes"], list),
        "lhs": lhs.value if row["chip"] == "v5p" else lhs,
        "rhs": replace(rhs, scale=scale),
    }


def _as_second_was_measured(chip: str) -> None:
    """Its rows are older than this tokamax. 0.0.14 has all of them: by the keys that they were
    measured with, and with their compile times. Those of v6e were made by 0.0.13: their keys have
    no ``lhs_scale`` yet, and 0.0.13 has no room in VMEM for the four products of transposed weights
    that were not measured there. On v5p and v7x it has none for some that were."""
    is_first, (gmm_v2, _, sources) = chip == "v6e", _second()
    for name, changes in (_FIRST if is_first else _LATER).items():
        exec(_rewritten(sources[name], changes), vars(gmm_v2))
    gmm_v2.calculate_tiling = _tiling(is_first)


@lru_cache
def _second() -> tuple[Any, Callable[..., Any], dict[str, str]]:
    """Its module in 0.0.17, the tiles that it chooses, and source of it."""
    from tokamax._src.ops.gmm_v2 import gmm_v2

    sources = {name: inspect.getsource(getattr(gmm_v2, name)) for name in _LATER}
    return gmm_v2, gmm_v2.calculate_tiling, sources


@lru_cache
def _tiling(is_first: bool) -> Callable[..., Any]:
    """Tiles as they were then, of two buffers of rows: since 0.0.16 there are three where VMEM is
    estimated to hold them."""

    def tiling(dims: Any, lhs: Any, rhs: Any, *rest: Any) -> Any:
        is_transposed = rhs.is_transposed and not is_first  # 0.0.13 made no other tiles for it
        tiles = _second()[1](dims, lhs, replace(rhs, is_transposed=is_transposed), *rest)
        return replace(tiles, lhs_buffer_count=2)

    return tiling


def _rewritten(source: str, changes: Sequence[tuple[str, str]]) -> str:
    for now, then in changes:
        if now not in source:
            raise ValueError(f"this tokamax is not 0.0.17: its gmm_v2 has no {now!r}")
        source = source.replace(now, then)
    return source


_SPECS = "generate_block_specs"
_OF_ROWS, _OF_WEIGHTS = (
    "block_scale.astype(acc_ref.dtype)",
    "rhs_scale_replicated.astype(acc_ref.dtype)",
)
_LATER = {
    "inner_kernel": (
        ("tiled_lhs = jnp.where(mask_lhs, tiled_lhs, 0)", "pass"),
        ("math.gcd(q_block_size, rhs_qbs)", "q_block_size"),
        (f"sub_acc *= {_OF_WEIGHTS}", f"sub_acc *= {_OF_ROWS}; sub_acc *= {_OF_WEIGHTS}"),
        (f"block_acc *= {_OF_ROWS}", "pass"),
    ),
    _SPECS: (),
}
_BLOCK = "tiled_rhs[start_k:end_k, start_n:end_n]"
_FIRST = {
    "inner_kernel": (
        *_LATER["inner_kernel"],
        ("tiled_rhs = jnp.transpose(tiled_rhs)", "pass"),
        (
            "rhs_tile_n = tiled_rhs.shape[1]",
            "rhs_tile_n = tiled_rhs.shape[int(not cfgs.transpose_rhs)]",
        ),
        ("tiled_rhs.shape, 0)", "tiled_rhs.shape, int(cfgs.transpose_rhs))"),
        (_BLOCK, f"tiled_rhs[start_n:end_n, start_k:end_k].T if cfgs.transpose_rhs else {_BLOCK}"),
    ),
    _SPECS: (("buffer_count=3", "buffer_count=4"),),  # of transposed weights, which come first
}


def _noting(compiled: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(compiled)
    def noted(*args: Any, **kwargs: Any) -> Any:
        done = compiled(*args, **kwargs)
        peak_mb = done.memory_analysis().peak_memory_in_bytes / 1e6
        Path(os.environ["AUTOTUNE_TOKAMAX_MEMORY"]).write_text(str(peak_mb))
        return done

    return noted


def _inputs(problem: Problem) -> list[Array]:
    arrays = _row(problem["row"])[1]
    return [_array(arrays, number) for number in range(len(arrays))]


def _array(arrays: Sequence[Any], number: int) -> Array:
    array = arrays[number]
    dtype = np.dtype(array.dtype)
    known = _is_concrete(array) or (dtype.kind in "iub" and array.size <= _MOST_VALUES)
    return Array(
        name=f"x{number}",
        shape=tuple(array.shape),
        dtype=dtype.name,
        values=partial(_values, arrays, number) if known else None,
    )


def _is_concrete(array: Any) -> bool:
    return isinstance(array, (np.ndarray, jax.Array))


def _values(arrays: Sequence[Any], number: int) -> Any:
    """What it holds, or is filled with where it is measured: each that holds nothing has a random
    generator of its own, as in ``numerics.random_initialize``."""
    array, empty = arrays[number], [n for n, other in enumerate(arrays) if not _is_concrete(other)]
    if _is_concrete(array):
        return np.asarray(array)
    rng = np.random.default_rng(0).spawn(len(empty))[empty.index(number)]
    is_initializer = isinstance(array, numerics.ArrayInitializer)
    return np.asarray(array(rng) if is_initializer else numerics._init_array(rng, array))


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


def _write_older_mosaic() -> None:
    """As libtpu 0.0.44 reads it, with the log2 that JAX had then: without a TPU, JAX takes libtpu
    for the newest."""
    jax.config.update("jax_mosaic_unzip_debug_locations", False)
    tpu_custom_call.get_ir_version = lambda _: 15
    jnp.log2 = lambda x: jnp.log(x) / np.log(2).astype(x.dtype)
    vars(tpu).pop("logistic", None)  # JAX spells it out then


jax.stages.Lowered.compile = _noting(jax.stages.Lowered.compile)
is_older = tuple(map(int, (libtpu.version() or "").split(".")[:3])) < (0, 0, 50)
if is_older and "jax_mosaic_unzip_debug_locations" in jax.config.values:
    _write_older_mosaic()
