"""Running a candidate in Pallas TPU interpret mode against its reference, in the child.

Two cores, random orders of the parallel axes, race detection, uninitialised memory is NaN,
out-of-bounds reads raise, DMAs both eager and late.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune.chip import Chip
from autotune.compiler.chips import abstract_mesh, compile_only_device
from autotune.config import Config
from autotune.kernel import Array, Kernel
from autotune.problem import Problem

# Largest error over (|reference| + its root mean square). bfloat16 keeps 8 bits: one rounding is
# 2^-9, the store and the products of both sides add a few. float32 sums of some thousand products
# in another order differ by about 1e-5. Integers are exact.
_TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 2e-4}
_FLOAT8_TOLERANCE = 1e-1

_ERROR_LINE = re.compile(r"\s*[\w.]*(Error|Exception): ")


class _NotTracedError(Exception):
    """The kernel does not trace in interpret mode: it is not known to be wrong."""


def check(
    kernel: Kernel, problem: Problem, config: Config, seeds: Sequence[int], chip: Chip | None = None
) -> dict[str, Any]:
    """Plain data: ``ok``, the ``problem`` that was run, the largest ``error`` in units of the
    tolerance, the ``check`` that failed, and how many ``runs`` passed.

    ``ok`` is None with a ``reason`` where this JAX cannot do it, or cannot trace the kernel so.
    Code that asks for the TPU while it is traced is told of ``chip``.
    """
    reason = _unsupported()
    if reason:
        return {"ok": None, "reason": reason, "runs": 0}
    small = reduced_problem(kernel, problem, config)
    worst = 0.0
    for run, seed in enumerate(seeds):
        mode = "eager" if run % 2 else "on_wait"
        what = f"interpret mode, seed {seed}, DMAs {mode}, {small}"
        try:
            failure, error = _one_run(kernel, small, config, seed, mode, chip)
        except _NotTracedError as reason:
            return {"ok": None, "reason": f"interpret mode cannot run it: {reason}", "runs": run}
        worst = max(worst, error)
        if failure:
            return {"ok": False, "reason": f"{failure} ({what})", "error": worst, "runs": run}
    return {"ok": True, "reason": f"{len(seeds)} runs of {small}", "error": worst,
            "runs": len(seeds)}  # fmt: skip


def reduced_problem(kernel: Kernel, problem: Problem, config: Config) -> Problem:
    """Two blocks on every axis that has them, the last one ragged where the real one is.

    A dimension keeps its full size where the kernel refuses the reduced problem otherwise.
    """
    small = kernel.reduced(problem) if kernel.reduced else problem
    sizes: dict[str, int] = {}
    for axis in kernel.axes:
        size = dict(config.axes)[axis.name]
        if axis.dim is None or not isinstance(size, int):
            continue
        extent = problem[axis.dim]
        wanted = size + (extent % size or size) if extent > size else extent
        sizes[axis.dim] = max(wanted, sizes.get(axis.dim, 0))
    small = small.with_dims(**sizes)
    for dim in sizes:  # such as causal attention, which needs kv_len >= q_len
        if kernel.check is None or kernel.check(small) is None:
            break
        small = small.with_dims(**{dim: problem[dim]})
    return small


def _unsupported() -> str | None:
    from jax.experimental.pallas import tpu as pltpu

    if not hasattr(pltpu, "force_tpu_interpret_mode"):
        return "this JAX has no way to run a kernel as it is in TPU interpret mode"
    return None


def _one_run(
    kernel: Kernel, problem: Problem, config: Config, seed: int, mode: str, chip: Chip | None
) -> tuple[str | None, float]:
    """What failed, or None, and the largest error in units of the tolerance."""
    import jax
    from jax.experimental.pallas import tpu as pltpu

    arrays = kernel.inputs(problem)
    given = [_values(array, np.random.default_rng([seed, n])) for n, array in enumerate(arrays)]
    expected = jax.tree_util.tree_leaves(kernel.reference(problem)(*given))
    params = _params(pltpu, seed, mode)
    try:
        with pltpu.force_tpu_interpret_mode(params):
            run = _compiled(kernel.build(problem, config), given, chip)
            found = [np.asarray(array) for array in jax.tree_util.tree_leaves(run(*given))]
    except _NotTracedError:
        pltpu.reset_tpu_interpret_mode_state()
        raise
    except Exception as error:
        pltpu.reset_tpu_interpret_mode_state()
        return _root_cause(error), 0.0
    if _races_found():
        return "a data race between grid steps, cores or DMAs", 0.0
    return _compare(found, [np.asarray(array) for array in expected])


def _compiled(function: Callable[..., Any], given: Sequence[Any], chip: Chip | None) -> Any:
    """The function for the CPU. One that does not trace as it is may be asking for the TPU: it is
    traced again where there seems to be one."""
    import jax

    try:
        return jax.jit(function).trace(*given).lower().compile()
    except Exception as error:
        if chip is None:
            raise _NotTracedError(_root_cause(error)) from error
    try:
        with abstract_mesh(compile_only_device(chip)):
            traced = jax.jit(function).trace(*given)
        lowered = traced.lower(lowering_platforms=("cpu",))
        known = inspect.signature(lowered.compile).parameters
        here = {"device_assignment": tuple(jax.devices("cpu")[:1])}
        return lowered.compile(**{name: value for name, value in here.items() if name in known})
    except Exception as error:
        raise _NotTracedError(_root_cause(error)) from error


def _root_cause(error: Exception) -> str:
    """The interpreter raises inside callbacks: what went wrong is the last error that is named."""
    text = f"{type(error).__name__}: {error}"
    named = [line.strip() for line in text.splitlines() if _ERROR_LINE.match(line)]
    return (named or text.splitlines())[-1][:240]


def _params(pltpu: Any, seed: int, mode: str) -> Any:
    import dataclasses

    known = {f.name for f in dataclasses.fields(pltpu.InterpretParams)}
    cores = "num_cores_or_threads" if "num_cores_or_threads" in known else "num_cores_per_device"
    return pltpu.InterpretParams(
        detect_races=True,
        out_of_bounds_reads="raise",
        uninitialized_memory="nan",
        dma_execution_mode=mode,
        random_seed=seed,
        **{cores: 2},
    )


def _races_found() -> bool:
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    races = interpret_pallas_call.races
    return bool(races is not None and races.races_found)


def _values(array: Array, rng: np.random.Generator) -> Any:
    """Random normal numbers, small integers, or what the declaration gives."""
    import jax.numpy as jnp

    dtype = getattr(jnp, array.dtype)
    if array.values is not None:
        return jnp.asarray(array.values(), dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-100, 100, array.shape), dtype)
    return jnp.asarray(rng.standard_normal(array.shape, dtype=np.float32), dtype)


def _compare(found: list[Any], expected: list[Any]) -> tuple[str | None, float]:
    if [a.shape for a in found] != [a.shape for a in expected]:
        return "the outputs have other shapes than the reference", float("inf")
    worst = 0.0
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        if got.dtype != want.dtype:
            return f"output {number} is {got.dtype}, the reference is {want.dtype}", float("inf")
        error, where = _largest_error(got, want)
        if not error <= 1.0:
            at = ", ".join(str(int(i)) for i in where)
            return (
                f"output {number} at ({at}) is {got[tuple(where)]} instead of {want[tuple(where)]}",
                error,
            )
        worst = max(worst, error)
    return None, worst


def _largest_error(got: Any, want: Any) -> tuple[float, Any]:
    """In units of the tolerance; NaN where a number is expected counts as infinite."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    tolerance = _TOLERANCE.get(str(got.dtype), _FLOAT8_TOLERANCE)
    scale = np.abs(b) + np.sqrt(np.mean(b**2)) if b.size else np.abs(b)
    allowed = np.full_like(b, 0.5) if got.dtype.kind in "iub" else tolerance * scale + 1e-30
    error = np.where(np.isnan(a) & ~np.isnan(b), np.inf, np.abs(a - b) / allowed)
    error = np.where(np.isnan(b) & np.isnan(a), 0.0, error)
    where = np.unravel_index(int(np.argmax(error)), error.shape) if error.size else ()
    return float(error[where]) if error.size else 0.0, where
