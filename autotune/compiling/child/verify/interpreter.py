"""Pallas TPU interpret mode: two cores, random orders of the parallel axes, race detection,
uninitialised memory is NaN, out-of-bounds reads raise, DMAs early or late."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.chips import Axes, mesh_of, patched, told_of
from autotune.compiling.child.verify.grids import with_static_grids
from autotune.compiling.child.verify.races import drained, watched
from autotune.compiling.child.verify.repairs import repaired
from autotune.compiling.child.verify.work import OverBudgetError, WorkMeter
from autotune.domain.evidence import FailedCheck, ProofLevel
from autotune.domain.key import Chip


@contextmanager
def with_remains(remains: dict[Any, Any], *, floats: bool) -> Iterator[None]:
    """What a kernel does not set is what ``remains`` there of the run before, as on a TPU, or 0: a
    flag may be that of another call. In the first run it is NaN and the largest integer; without
    ``floats`` NaN in all. Integers that are not set are marked: the largest may be an input."""
    from jax._src.pallas.mosaic.interpret import utils
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    allocate, before = SharedMemory.allocate_buffer, dict(remains)
    unset_value = utils.get_uninitialized_value

    def mark(dtype: Any, how: Any) -> Any:
        unset = unset_value(dtype, how)
        return unset if unset != unset or unset is True else unset - unset // 3  # bits 0101...

    def allocated(
        memory: Any, key: Any, ref_count: int, value: Any, *args: Any, **more: Any
    ) -> None:
        unset, marked = (
            np.asarray(of(value.dtype, "nan"), value.dtype) for of in (unset_value, mark)
        )
        is_unset = unset != np.True_ and bool(((value == marked) | (value != value)).all())
        if is_unset:
            value = np.full_like(value, unset)
        if is_unset and before and (floats or unset == unset):
            old = getattr(before.get(key), "content", value)
            old = old if old.shape == value.shape and old.dtype == value.dtype else value
            value = np.where(old == unset, np.zeros_like(old), old)
        allocate(memory, key, ref_count, value, *args, **more)
        if is_unset:
            remains[key] = memory.mem[key]

    with (
        patched(SharedMemory, allocate_buffer=allocated),
        patched(utils, get_uninitialized_value=mark),
    ):
        yield


EAGER, LATE = "eager", "on_wait"
"""When a DMA moves its bytes: as it starts, or not before somebody waits for it."""

_DMA_THREADS = 128
"""DMAs of different ones are told apart by the race detector. JAX has one for each core, and misses
most races of a DMA that nobody waits for among others."""

_ERROR_LINE = re.compile(r"\s*[\w.]*(Error|Exception): ")
# The kernel's own Python has run by then: these are about what the interpreter cannot do.
_INTERPRETER_LACKS = re.compile(
    r"[\w.]*(NotImplementedError|AttributeError|TypeError|AssertionError):"
)
_ENDED_THREAD = re.compile(r"Error: Computation failed on .* with exception:")
_NAMED = {
    FailedCheck.BOUNDS: re.compile(r"out[- ]of[- ]bounds", re.IGNORECASE),
    FailedCheck.REVISITED: re.compile(r"Revisited block"),
}


class NotRunError(Exception):
    """Interpret mode cannot trace or run the kernel: it is not known to be wrong."""


class WrongRunError(Exception):
    """The run itself shows that the kernel is wrong; ``check`` as in ``Verdict``."""

    def __init__(self, check: FailedCheck, reason: str) -> None:
        super().__init__(reason)
        self.check = check


@dataclass(frozen=True, slots=True)
class Run:
    """``seed`` chooses the order of the parallel axes. ``unread``: buffers in HBM that nobody
    reads after the call, by their number among the kernel's arrays; they may be written twice.
    ``unchecked``: loads past the end of a buffer in VMEM are let through. ``remains``: what the
    runs before it have left in memory."""

    seed: int
    dmas: str
    unread: tuple[int, ...] = ()
    level: ProofLevel = ProofLevel.FULL
    unchecked: bool = False
    remains: dict[Any, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        dmas = f"DMAs {'early' if self.dmas == EAGER else 'late'}"
        return {
            ProofLevel.FULL: f"two cores, seed {self.seed}, {dmas}",
            ProofLevel.ONE_CORE: f"one core, seed {self.seed}, {dmas}",
            ProofLevel.PLAIN: f"plain interpret mode, seed {self.seed}",
        }[self.level]


def unsupported() -> str | None:
    """Why this JAX cannot run a kernel so, or None."""
    from jax.experimental.pallas import tpu as pltpu

    known = getattr(getattr(pltpu, "InterpretParams", None), "__dataclass_fields__", ())
    if not {"vector_clock_size", "detect_races"}.issubset(known):  # before jax 0.8
        return "this JAX has no way to run a kernel as it is in interpret mode"
    return None


def outputs(
    build: Callable[[], Callable[..., Any]],
    given: Sequence[Any],
    run: Run,
    chip: Chip | None,
    axes: Axes,
    meter: WorkMeter,
) -> list[Any]:
    """NumPy arrays of the function that ``build`` gives: a ``pallas_call`` takes up interpret mode
    as it is made. Raises ``NotRunError``, ``WrongRunError`` and ``OverBudgetError``."""
    import jax
    import numpy as np
    from jax.experimental.pallas import tpu as pltpu

    try:
        with (
            _forced(run, prod(axes.values())),
            repaired(unchecked=run.unchecked, count=meter.count),
            watched(run.unread) as raced,
            drained() as signalled,
            with_remains(run.remains, floats=run.seed > 1),
            _on_mesh(axes),
        ):
            compiled = _compiled(build, given, chip, axes)
            arrays = [np.asarray(array) for array in jax.tree_util.tree_leaves(compiled(*given))]
    except NotRunError:
        pltpu.reset_tpu_interpret_mode_state()
        raise
    except Exception as error:
        pltpu.reset_tpu_interpret_mode_state()
        if meter.is_over:
            raise OverBudgetError from error
        reason = _root_cause(error)
        if run.level is ProofLevel.PLAIN or _INTERPRETER_LACKS.match(reason):
            raise NotRunError(reason) from error
        check = next(
            (name for name, words in _NAMED.items() if words.search(reason)), FailedCheck.RUN
        )
        raise WrongRunError(check, reason) from error
    if raced:
        reason = f"a data race between grid steps, cores or DMAs: {raced[0]}"
        raise WrongRunError(FailedCheck.RACE, reason)
    if signalled:
        reason = f"{signalled[0]} when the kernel ends: what was signalled is not waited for"
        raise WrongRunError(FailedCheck.SEMAPHORE, reason)
    return arrays


def _on_mesh(axes: Axes) -> AbstractContextManager[Any]:
    """The mesh of a kernel, of CPU devices. Raises ``NotRunError`` where they are too few."""
    import jax

    if not axes:
        return nullcontext()
    count, here = prod(axes.values()), jax.devices("cpu")
    if count > len(here):
        raise NotRunError(f"its mesh has {count} devices, interpret mode here has {len(here)}")
    enter = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh
    context: AbstractContextManager[Any] = enter(mesh_of(here[:count], axes))
    return context


def _compiled(
    build: Callable[[], Callable[..., Any]], given: Sequence[Any], chip: Chip | None, axes: Axes
) -> Any:
    """The function for the CPU, made where there seems to be the TPU, as the one that is compiled:
    who asks may get another. As it is where that cannot be traced."""
    import jax

    lacks: list[Exception] = []
    for attached in dict.fromkeys((chip, None)):
        try:
            with told_of(attached, axes):
                traced = jax.jit(with_static_grids(build(), given)).trace(*given)
            lowered = traced.lower(lowering_platforms=("cpu",))
            known = inspect.signature(lowered.compile).parameters
            here = {"device_assignment": tuple(jax.devices("cpu")[: prod(axes.values())])}
            return lowered.compile(**{name: here[name] for name in here if name in known})
        except Exception as error:
            lacks.append(error)
    raise NotRunError(_root_cause(lacks[0])) from lacks[0]


def _root_cause(error: Exception) -> str:
    """The interpreter raises inside callbacks: what went wrong is the last error that is named.
    That a thread has ended says nothing: what ended it stands before or after."""
    text = f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in text.splitlines() if _ERROR_LINE.match(line)]
    named = [line for line in lines if not _ENDED_THREAD.search(line)] or lines
    return (named or text.splitlines())[-1][:240]


@contextmanager
def _forced(run: Run, devices: int) -> Iterator[None]:
    """Each ``pallas_call`` that is made takes up interpret mode. The switch for the plain one is
    JAX's own, but has no public name."""
    from jax.experimental.pallas import tpu as pltpu

    if run.level is not ProofLevel.PLAIN:
        with pltpu.force_tpu_interpret_mode(_params(pltpu, run, devices)):
            yield
        return
    try:
        from jax._src.config import pallas_tpu_interpret_mode_context_manager as switch

        before = switch.swap_local(True)
    except (ImportError, AttributeError) as error:
        raise NotRunError("this JAX has no switch for plain interpret mode") from error
    try:
        yield
    finally:
        switch.set_local(before)


def _params(pltpu: Any, run: Run, devices: int) -> Any:
    """Over JAX versions: 0.11 renamed the cores, 0.12 raises on a race unless told to warn."""
    full = run.level is ProofLevel.FULL
    known = {f.name for f in dataclasses.fields(pltpu.InterpretParams)}
    cores = "num_cores_or_threads" if "num_cores_or_threads" in known else "num_cores_per_device"
    return pltpu.InterpretParams(
        detect_races=full,
        out_of_bounds_reads="raise",
        uninitialized_memory="nan",
        dma_execution_mode=run.dmas,
        random_seed=run.seed,
        vector_clock_size=2 * devices + _DMA_THREADS,
        **{cores: 2 if full else 1},
        **({"on_race": "warn"} if "on_race" in known else {}),
    )
