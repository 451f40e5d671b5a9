"""Tracing and compiling one candidate, in the child."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.chip import Chip
from autotune.compiler import libtpu
from autotune.compiler.chips import abstract_mesh, compile_only_device
from autotune.compilertext import hlo
from autotune.config import Config
from autotune.kernel import Array, Kernel
from autotune.problem import Problem
from autotune.simulator import Refusal, simulate
from autotune.simulator.drawing.timeline import timeline
from autotune.trace import reader
from autotune.trace.model import Trace


class StageError(Exception):
    """A candidate failed at a stage: build, trace or compile. Carries the original as cause."""

    def __init__(self, stage: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.stage, self.cause = stage, cause


def trace_config(
    kernel: Kernel, problem: Problem, config: Config, *, orders: bool, chip: Chip | None = None
) -> list[Trace]:
    """Traces of a config, in all orders of a named grid if asked. Raises ``StageError``.

    Code that asks for the TPU while it is traced is told of the chip, where one is given.
    """
    function, arrays = _built(kernel, problem, config)
    permutations = reader.all_orders(len(kernel.grid)) if orders and kernel.grid else None
    mesh = None if chip is None else abstract_mesh(compile_only_device(chip))
    try:
        return reader.read(function, arrays, permutations, mesh)
    except Exception as error:
        raise StageError("trace", error) from error


def compile_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path
) -> tuple[Trace, Mapping[str, Any]]:
    """The trace of a config and what the compiler made of it (fields of ``Compiled``)."""
    function, arrays = _built(kernel, problem, config)
    trace, scalars = _read(function, arrays, chip)
    started = time.perf_counter()
    text = _compile(function, arrays, chip, dump)
    seconds = time.perf_counter() - started
    listings = libtpu.listings(dump)
    libtpu.clear(dump)
    answer = {
        "seconds": seconds,
        "vmem_used_bytes": hlo.kernel_vmem_bytes(text) or 0,
        **_simulated(listings, chip, scalars),
    }
    return trace, answer


def draw_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, steps: int
) -> Mapping[str, Any]:
    """Hash of the program that a config compiles to, and the picture of its first and last steps,
    or the refusal why there is none."""
    import dataclasses

    function, arrays = _built(kernel, problem, config)
    _, scalars = _read(function, arrays, chip)
    _compile(function, arrays, chip, dump)
    listings = libtpu.listings(dump)
    libtpu.clear(dump)
    answer = {"program": _digest(listings), "picture": None, "refusal": _not_one(listings)}
    if len(listings) == 1:
        version = libtpu.version()
        drawn = timeline(
            listings[0], chip=chip.value, libtpu=version, scalars=_flat(scalars), steps=steps
        )  # fmt: skip
        if isinstance(drawn, Refusal):
            return {**answer, "refusal": drawn.reason}
        return {**answer, "picture": dataclasses.asdict(drawn), "refusal": ""}
    return answer


def compile_baseline(kernel: Kernel, problem: Problem, chip: Chip, dump: Path) -> Mapping[str, Any]:
    """XLA's own figures for the plain-XLA version: flops, bytes, the cycles that it expects."""
    import jax

    arrays = list(kernel.inputs(problem))
    function = (kernel.baseline or kernel.reference)(problem)
    device = compile_only_device(chip)
    with abstract_mesh(device):
        done = jax.jit(function).trace(*_specs(arrays, device)).lower().compile()
    libtpu.clear(dump)
    cost = done.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, (list, tuple)) else cost
    return {
        "flops": float(cost.get("flops", 0.0)),
        "bytes": float(cost.get("bytes accessed", 0.0)),
        "estimated_cycles": hlo.estimated_cycles(done.as_text()),
    }


def _built(
    kernel: Kernel, problem: Problem, config: Config
) -> tuple[Callable[..., Any], Sequence[Array]]:
    try:
        return kernel.build(problem, config), kernel.inputs(problem)
    except Exception as error:
        raise StageError("build", error) from error


def _read(
    function: Callable[..., Any], arrays: Sequence[Array], chip: Chip
) -> tuple[Trace, dict[int, Any]]:
    """The trace, and the contents of the scalar operands that are known, by operand number.

    Code that asks for the TPU while it is traced is told of the chip.
    """
    device = compile_only_device(chip)
    try:
        call = reader.find(function, arrays, abstract_mesh(device))
        return call.traces(None)[0], call.scalar_operands()
    except Exception as error:
        raise StageError("trace", error) from error


def _compile(function: Callable[..., Any], arrays: Sequence[Array], chip: Chip, dump: Path) -> str:
    import jax

    device = compile_only_device(chip)
    libtpu.clear(dump)
    try:
        with abstract_mesh(device):
            lowered = jax.jit(function).trace(*_specs(arrays, device)).lower()
            return str(lowered.compile().as_text())
    except Exception as error:
        libtpu.clear(dump)
        raise StageError("compile", error) from error


def _specs(arrays: Sequence[Array], device: Any) -> list[Any]:
    import jax
    import jax.numpy as jnp

    return [
        jax.ShapeDtypeStruct(a.shape, getattr(jnp, a.dtype), sharding=_placed(a, device))
        for a in arrays
    ]


def _placed(array: Array, device: Any) -> Any:
    from jax.sharding import SingleDeviceSharding

    sharding = SingleDeviceSharding(device)
    if not array.row_major:
        return sharding
    from jax.experimental.layout import Format, Layout

    return Format(Layout(tuple(range(len(array.shape)))), sharding)


def _simulated(listings: list[str], chip: Chip, scalars: Mapping[int, Any]) -> dict[str, Any]:
    """Program hash and simulation of the one kernel that was listed."""
    import dataclasses

    started = time.perf_counter()
    simulation, refusal = None, _not_one(listings)
    if len(listings) == 1:
        version = libtpu.version()
        result = simulate(
            listings[0], chip=chip.value, libtpu=version, scalars=_flat(scalars)
        )  # fmt: skip
        if isinstance(result, Refusal):
            refusal = result.reason
        else:
            simulation, refusal = dataclasses.asdict(result), ""
    return {
        "program": _digest(listings),
        "listing_bytes": sum(map(len, listings)),
        "simulation": simulation,
        "refusal": refusal,
        "simulate_s": time.perf_counter() - started,
    }


def _digest(listings: Sequence[str]) -> str:
    return hashlib.sha256("".join(listings).encode()).hexdigest()[:16]


def _not_one(listings: Sequence[str]) -> str:
    return f"{len(listings)} kernels were listed, exactly one is needed"


def _flat(scalars: Mapping[int, Any]) -> dict[int, list[int]]:
    """Elements in row-major order, by operand number."""
    return {number: array.reshape(-1).tolist() for number, array in scalars.items()}
