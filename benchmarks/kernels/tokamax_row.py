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

from .tokamax_rules import config_as_read

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
    function, arrays = benchmarking.standardize_function(op, kwargs=_measured(op, given), seed=None)
    return function, arrays


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


def _buffered_twice(tiling: Callable[..., Any]) -> Callable[..., Any]:
    """0.0.15 has all rows of the second ragged dot, and buffers their rows twice. Since 0.0.16 they
    are buffered three times where VMEM is estimated to hold them; some do not compile so."""

    @wraps(tiling)
    def twice(*args: Any, **kwargs: Any) -> Any:
        return replace(tiling(*args, **kwargs), lhs_buffer_count=2)

    return twice


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
if importlib.util.find_spec("tokamax._src.ops.gmm_v2"):  # since 0.0.17
    from tokamax._src.ops.gmm_v2 import gmm_v2

    gmm_v2.calculate_tiling = _buffered_twice(gmm_v2.calculate_tiling)
is_older = tuple(map(int, (libtpu.version() or "").split(".")[:3])) < (0, 0, 50)
if is_older and "jax_mosaic_unzip_debug_locations" in jax.config.values:
    _write_older_mosaic()
