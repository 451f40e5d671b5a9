"""Tracing and compiling one candidate, in the child."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.child.chips import abstract_mesh, compile_only_device, told_of
from autotune.child.compile import hlo
from autotune.child.trace import reader
from autotune.compiler import libtpu
from autotune.domain.chip import Chip
from autotune.domain.config import Config
from autotune.domain.problem import Problem
from autotune.domain.trace import Trace
from autotune.kernel import Array, Kernel
from autotune.simulator import Refusal, simulate
from autotune.simulator.drawing.timeline import timeline


class StageError(Exception):
    """A candidate failed at a stage: build, trace or compile. Carries the original as cause."""

    def __init__(self, stage: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.stage, self.cause = stage, cause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the compiler made of a config. ``listing``: of the one kernel, or None with the
    ``refusal`` why; ``scalars``: known contents of operands by number; ``program``: a hash."""

    hlo: str
    seconds: float
    program: str
    listing: str | None
    listing_bytes: int
    refusal: str
    scalars: dict[int, list[int]]


def trace_config(
    kernel: Kernel, problem: Problem, config: Config, *, orders: bool, chip: Chip | None = None
) -> list[Trace]:
    """Traces of a config, in all orders of a named grid if asked. Raises ``StageError``.

    Code that asks for the TPU while it is traced is told of the chip, where one is given.
    """
    function, arrays = built(kernel, problem, config)
    permutations = reader.all_orders(len(kernel.grid)) if orders and kernel.grid else None
    try:
        return reader.read(function, arrays, permutations, told_of(chip))
    except Exception as error:
        raise StageError("trace", error) from error


def compile_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path
) -> tuple[Trace, Mapping[str, Any]]:
    """The trace of a config and what the compiler made of it (fields of ``Compiled``)."""
    trace, made = _listed(kernel, problem, config, chip, dump)
    answer = {
        "seconds": made.seconds,
        "vmem_used_bytes": hlo.kernel_vmem_bytes(made.hlo) or 0,
        **_simulated(made, chip),
    }
    return trace, answer


def draw_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, steps: int
) -> Mapping[str, Any]:
    """Hash of the program that a config compiles to, and the picture of its first and last steps,
    or the refusal why there is none."""
    _, made = _listed(kernel, problem, config, chip, dump)
    if made.listing is None:
        return {"program": made.program, "picture": None, "refusal": made.refusal}
    drawn = timeline(
        made.listing, chip=chip.value, libtpu=libtpu.version(), scalars=made.scalars, steps=steps
    )
    if isinstance(drawn, Refusal):
        return {"program": made.program, "picture": None, "refusal": drawn.reason}
    return {"program": made.program, "picture": dataclasses.asdict(drawn), "refusal": ""}


def compile_baseline(kernel: Kernel, problem: Problem, chip: Chip, dump: Path) -> Mapping[str, Any]:
    """XLA's own figures for the plain-XLA version: flops, bytes, the cycles that it expects."""
    import jax

    arrays = list(kernel.inputs(problem))
    function = (kernel.baseline or kernel.reference)(problem)
    device = compile_only_device(chip)
    with abstract_mesh(device):
        done = jax.jit(function).trace(*specs(arrays, device)).lower().compile()
    libtpu.clear(dump)
    cost = done.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, (list, tuple)) else cost
    return {
        "flops": float(cost.get("flops", 0.0)),
        "bytes": float(cost.get("bytes accessed", 0.0)),
        "estimated_cycles": hlo.estimated_cycles(done.as_text()),
    }


def built(
    kernel: Kernel, problem: Problem, config: Config
) -> tuple[Callable[..., Any], Sequence[Array]]:
    """The function of a config and its arguments. Raises ``StageError``."""
    try:
        return kernel.build(problem, config), kernel.inputs(problem)
    except Exception as error:
        raise StageError("build", error) from error


def _listed(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path
) -> tuple[Trace, _Made]:
    """Trace and compile a config, and take up its listing. Raises ``StageError``."""
    function, arrays = built(kernel, problem, config)
    trace, scalars = _read(function, arrays, chip)
    started = time.perf_counter()
    text = _compile(function, arrays, chip, dump)
    seconds = time.perf_counter() - started
    listings = libtpu.listings(dump)
    libtpu.clear(dump)
    whole, one = "".join(listings), len(listings) == 1
    return trace, _Made(
        hlo=text,
        seconds=seconds,
        program=hashlib.sha256(whole.encode()).hexdigest()[:16],
        listing=whole if one else None,
        listing_bytes=len(whole),
        refusal="" if one else f"{len(listings)} kernels were listed, exactly one is needed",
        scalars=_flat(scalars),
    )


def _read(
    function: Callable[..., Any], arrays: Sequence[Array], chip: Chip
) -> tuple[Trace, dict[int, Any]]:
    """The trace, and the contents of the scalar operands that are known, by operand number.

    Code that asks for the TPU while it is traced is told of the chip.
    """
    try:
        call = reader.find(function, arrays, told_of(chip))
        return call.traces(None)[0], call.scalar_operands()
    except Exception as error:
        raise StageError("trace", error) from error


def _compile(function: Callable[..., Any], arrays: Sequence[Array], chip: Chip, dump: Path) -> str:
    import jax

    device = compile_only_device(chip)
    libtpu.clear(dump)
    try:
        with abstract_mesh(device):
            lowered = jax.jit(function).trace(*specs(arrays, device)).lower()
            return str(lowered.compile().as_text())
    except Exception as error:
        libtpu.clear(dump)
        raise StageError("compile", error) from error


def specs(arrays: Sequence[Array], device: Any) -> list[Any]:
    """Abstract arguments on a device."""
    import jax
    import jax.numpy as jnp

    return [
        jax.ShapeDtypeStruct(a.shape, getattr(jnp, a.dtype), sharding=placed(a, device))
        for a in arrays
    ]


def placed(array: Array, device: Any) -> Any:
    """Where an argument lies, and in which layout."""
    from jax.sharding import SingleDeviceSharding

    sharding = SingleDeviceSharding(device)
    if not array.row_major:
        return sharding
    from jax.experimental import layout

    order = tuple(range(len(array.shape)))
    if hasattr(layout, "DeviceLocalLayout"):  # up to jax 0.6
        return layout.Layout(layout.DeviceLocalLayout(order), sharding)
    return layout.Format(layout.Layout(order), sharding)


def _simulated(made: _Made, chip: Chip) -> dict[str, Any]:
    """Program hash and simulation of the one kernel that was listed."""
    started = time.perf_counter()
    simulation, refusal = None, made.refusal
    if made.listing is not None:
        result = simulate(
            made.listing, chip=chip.value, libtpu=libtpu.version(), scalars=made.scalars
        )
        if isinstance(result, Refusal):
            refusal = result.reason
        else:
            simulation = dataclasses.asdict(result)
    return {
        "program": made.program,
        "listing_bytes": made.listing_bytes,
        "simulation": simulation,
        "refusal": refusal,
        "simulate_s": time.perf_counter() - started,
    }


def _flat(scalars: Mapping[int, Any]) -> dict[int, list[int]]:
    """Elements in row-major order, by operand number."""
    return {number: array.reshape(-1).tolist() for number, array in scalars.items()}
