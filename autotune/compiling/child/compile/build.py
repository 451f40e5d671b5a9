"""Tracing and compiling one candidate, in the child."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.chips import compile_only_target, told_of
from autotune.compiling.child.compile import hlo, module
from autotune.compiling.child.compile.hlo import KernelCall
from autotune.compiling.child.compile.scheduled import flat, scheduled
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.listings import FinalListing, compile_with, listings, program
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.pallas_call import Call
from autotune.declaring.kernel import Array, Kernel
from autotune.domain.compilers import Compiled, CompiledConfig, XlaCost
from autotune.domain.explanation import ScheduledOperation
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem
from autotune.domain.trace import Trace
from autotune.estimating.simulator import NotSimulated, simulate
from autotune.estimating.simulator.bundles import Listing

_DEPENDS_ON_DATA = (
    "how often it runs depends on data, by a branch or a loop around it: where integers decide "
    "that, declare them with values=, or pass them: a file in --args (lengths=i32[16]@lengths.npy)"
)


_NOT_GIVEN = (
    "the contents of {} decide the time, and nobody has given them: pass the array itself to "
    "search, name a file in --args (lengths=i32[16]@lengths.npy), or declare values="
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """``name``: of the compiled instruction. ``listing``: of the kernel, or None with the
    ``refusal`` why; ``scalars``: known contents of operands by number; ``name_of``: what the
    function calls one; ``index_maps``: file and line of theirs."""

    name: str
    listing: str | Listing | None
    refusal: str
    vmem_bytes: int
    scalars: dict[int, list[int]]
    name_of: Callable[[int], str]
    sources: libtpu.SourceTexts | None = None
    index_maps: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeConfig:
    """What the compiler made of a config: of each call of the function, in its order, and of all
    that runs. ``program``: a hash of the kernels' listings."""

    seconds: float
    program: str
    calls: list[MadeCall]
    schedule: list[ScheduledOperation]


@dataclass(frozen=True, slots=True)
class Staged:
    """What the rules read is what is compiled: the calls of a config's function, the function as
    JAX has traced it (``jax.stages.Traced``), and the device or mesh that it is for."""

    calls: Sequence[Call]
    traced: Any
    target: Any


def trace_config(
    kernel: Kernel, problem: Problem, config: Config, *, orders: bool, chip: Chip | None = None
) -> list[Trace]:
    """Traces of a config, in all orders of a named grid if asked. Raises ``StageError``.

    Code that asks for the TPU while it is traced is told of the chip, where one is given.
    """
    turned = reader.all_orders(len(kernel.grid)) if orders and kernel.grid else None
    staged = stage(kernel, problem, config, chip)
    with _refusing():
        traces = reader.traces(staged.calls, turned)
    if turned is None or not traces[0].more:
        return traces
    # Each call has a grid of its own: the kernel itself says what an order means for it.
    ordered = [config.replace(grid_order=order) for order in permutations(config.grid_order)]
    return [trace_config(kernel, problem, other, orders=False, chip=chip)[0] for other in ordered]


def compile_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, options: str | None
) -> CompiledConfig:
    """The trace of a config and what the compiler made of it."""
    trace, made = listed_config(kernel, problem, config, chip, dump, options)
    first, *more = [
        Compiled(seconds=made.seconds, program=made.program, **_simulated(call, chip))
        for call in made.calls
    ]
    return CompiledConfig(trace, replace(first, more=tuple(more), schedule=tuple(made.schedule)))


def compile_baseline(
    kernel: Kernel, problem: Problem, chip: Chip, dump: Path, options: str | None
) -> XlaCost:
    """What the compiler made of the plain-XLA version."""
    axes = kernel.mesh_axes(problem)
    with told_of(chip, axes):
        arrays = list(kernel.inputs(problem))
        function = plain_xla(kernel, problem)
        target = compile_only_target(chip, axes)
        traced = _traced(in_hbm(function, arrays), arrays, target)
    libtpu.clear(dump)
    with abstract_mesh(target):
        done = compile_with(traced.lower(), options)
    text = done.as_text()
    listed = module.shared(text, listings(dump, chip))
    libtpu.clear(dump)
    cost = done.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, (list, tuple)) else cost
    return XlaCost(
        flops=float(cost.get("flops", 0.0)), schedule=tuple(scheduled(text, listed, chip))
    )


def plain_xla(kernel: Kernel, problem: Problem) -> Callable[..., Any]:
    """The competitor. Raises ``StageError`` where none is known."""
    make = kernel.baseline or kernel.reference
    if make is None:
        raise StageError(protocol.REFUSED, ValueError("the kernel has no reference in plain JAX"))
    return make(problem)


def built(
    kernel: Kernel, problem: Problem, config: Config
) -> tuple[Callable[..., Any], Sequence[Array]]:
    """The function of a config and its arguments. Raises ``StageError``, at the stage *constraint*
    for a config that the declaration refuses."""
    try:
        sentence = kernel.constraint(problem, config) if kernel.constraint else None
        made = None if sentence else (kernel.build(problem, config), kernel.inputs(problem))
    except Exception as error:
        raise StageError("build", error) from error
    if made is None:
        raise StageError("constraint", ValueError(sentence))
    return made


def listed_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, options: str | None
) -> tuple[Trace, MadeConfig]:
    """Trace and compile a config, and take up its listing. Raises ``StageError``."""
    staged = stage(kernel, problem, config, chip)
    _traced_last.clear()  # compiled once more, the same trace would be listed by nobody
    return listed(staged, chip, dump, options)


def listed(staged: Staged, chip: Chip, dump: Path, options: str | None) -> tuple[Trace, MadeConfig]:
    """Compile what was traced, and take up its listing. Raises ``StageError``."""
    started = time.perf_counter()
    text = _compile(staged, dump, options)
    seconds = time.perf_counter() - started
    by_kernel = listings(dump, chip)
    programs = module.shared(text, by_kernel)
    libtpu.clear(dump)
    (trace,) = reader.traces(staged.calls)
    pairs = zip(staged.calls, hlo.match(staged.calls, hlo.kernel_calls(text)), strict=True)
    made = [_made(call, compiled, programs) for call, compiled in pairs if call.runs != 0]
    return trace, MadeConfig(
        seconds=seconds,
        program=program(by_kernel.values()),
        calls=made,
        schedule=scheduled(text, programs, chip, [call.name for call in made]),
    )


def _made(call: Call, compiled: KernelCall | None, listed: Mapping[str, FinalListing]) -> MadeCall:
    final = None if compiled is None else listed.get(compiled.name)
    listing, refusal = final and final.listing, ""
    if call.runs is None:
        listing, refusal = None, _DEPENDS_ON_DATA
    elif listing is None:
        refusal = f"the compiler lists no program of its own for {call.name}"
    return MadeCall(
        name=compiled.name if compiled else "",
        listing=listing,
        refusal=refusal,
        vmem_bytes=compiled.vmem_bytes if compiled else 0,
        scalars=flat(call.scalar_operands()),
        name_of=call.name_of,
        sources=final and final.sources,
        index_maps=call.index_maps(),
    )


_traced_last: list[tuple[Kernel, tuple[Problem, Config, Chip | None], Staged]] = []
"""At most one: the rules are asked of a config just before it is compiled."""


def stage(kernel: Kernel, problem: Problem, config: Config, chip: Chip | None) -> Staged:
    """Code that asks for the TPU while it is traced is told of the chip. Raises ``StageError``."""
    question = problem, config, chip
    for known, asked, staged in _traced_last:
        if known is kernel and asked == question:
            return staged
    _traced_last.clear()
    with _refusing():
        axes = kernel.mesh_axes(problem)
        with told_of(chip, axes):
            function, arrays = built(kernel, problem, config)
            target = None if chip is None else compile_only_target(chip, axes)
            traced, there = _traced(function, arrays, target), in_hbm(function, arrays)
            compiled = traced if there is function else _traced(there, arrays, target)
            staged = Staged(reader.calls(traced.jaxpr, arrays), compiled, target)
    _traced_last.append((kernel, question, staged))
    return staged


def _traced(function: Callable[..., Any], arrays: Sequence[Array], target: Any) -> Any:
    import jax

    donated = tuple(n for n, array in enumerate(arrays) if array.donated)
    return jax.jit(function, donate_argnums=donated).trace(*specs(arrays, target))


def in_hbm(function: Callable[..., Any], arrays: Sequence[Array]) -> Callable[..., Any]:
    """The function with the arguments in HBM that are to be there. One that is donated needs no
    constraint: what shares its memory with an output is there already."""
    from jax.experimental.pallas import tpu as pltpu

    constrained = getattr(pltpu, "with_memory_space_constraint", None)  # older ones have none
    in_hbm = [array.memory == "hbm" and not array.donated for array in arrays]
    if constrained is None or not any(in_hbm):
        return function

    def constrained_function(*given: Any) -> Any:
        known = zip(given, in_hbm, strict=True)
        try:
            return function(*(constrained(x, pltpu.HBM) if here else x for x, here in known))
        except (TypeError, ValueError):  # JAX gathers from no array that is said to be in HBM
            return function(*given)

    return constrained_function


@contextmanager
def _refusing() -> Iterator[None]:
    """What is raised is about the kernel."""
    try:
        yield
    except StageError:
        raise
    except Exception as error:
        is_refusal = isinstance(error, reader.NotTunableError)
        raise StageError(protocol.REFUSED if is_refusal else "trace", error) from error


def _compile(staged: Staged, dump: Path, options: str | None) -> str:
    libtpu.clear(dump)
    try:
        with abstract_mesh(staged.target):
            return str(compile_with(staged.traced.lower(), options).as_text())
    except Exception as error:
        libtpu.clear(dump)
        raise StageError.of("compile", error) from error


def specs(arrays: Sequence[Array], target: Any) -> list[Any]:
    """Abstract arguments on a device, or divided over a mesh; nowhere without a target."""
    import jax

    return [
        jax.ShapeDtypeStruct(
            abstract.shape, abstract.dtype, sharding=target and placed(array, target)
        )
        for array, abstract in zip(arrays, reader.abstract(arrays), strict=True)
    ]


def placed(array: Array, target: Any) -> Any:
    """Where an argument lies, and in which layout."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    sharding: Any = (
        NamedSharding(target, PartitionSpec(*array.spec))
        if isinstance(target, Mesh)
        else SingleDeviceSharding(target)
    )
    if not array.row_major:
        return sharding
    from jax.experimental import layout

    order = tuple(range(len(array.shape)))
    if hasattr(layout, "DeviceLocalLayout"):  # up to jax 0.6
        return layout.Layout(layout.DeviceLocalLayout(order), sharding)
    return layout.Format(layout.Layout(order), sharding)


def _simulated(call: MadeCall, chip: Chip) -> dict[str, Any]:
    """VMEM and simulation of a kernel."""
    started = time.perf_counter()
    simulation, refusal = None, call.refusal
    if call.listing is not None:
        result = simulate(
            call.listing, chip=chip.value, libtpu=libtpu.version(), scalars=call.scalars
        )
        if isinstance(result, NotSimulated):
            refusal = result.reason
            if result.operand is not None:
                refusal = _NOT_GIVEN.format(call.name_of(result.operand))
        else:
            simulation = dataclasses.asdict(result)
    return {
        "vmem_used_bytes": call.vmem_bytes,
        "simulation": simulation,
        "refusal": refusal,
        "simulate_s": time.perf_counter() - started,
    }
