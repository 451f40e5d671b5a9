"""Pallas TPU interpret mode: two cores, random orders of the parallel axes, race detection,
uninitialised memory is NaN, out-of-bounds reads raise, DMAs early or late. Races are JAX's, found
with less work: it compares each access with each one before it in Python, which was a third of what
a loop over rows took."""

import dataclasses
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import wraps
from itertools import count
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from autotune.compiling.child.chips import Axes, mesh_of, patched, told_of
from autotune.compiling.child.verify.grids import with_static_grids
from autotune.compiling.child.verify.repairs import repaired
from autotune.compiling.child.verify.work import OverBudgetError, WorkMeter
from autotune.domain.evidence import FailedCheck, ProofLevel
from autotune.domain.key import Chip

_FIRST = 4  # dimensions, of pages and rows, that are compared for many accesses at once


@contextmanager
def watched(unread: Sequence[int]) -> Iterator[list[str]]:
    """The first race in any of the calls: JAX itself remembers whether the last has one. Without
    DMAs that move nothing, which up to jax 0.12 race with all others, and without ``unread`` arrays
    in HBM, which are numbered as they are allocated: the inputs, then the outputs that share no
    memory with an input."""
    from jax._src.pallas.mosaic.interpret.race_detection_state import RaceDetectionState
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    ids = _buffer_ids(unread) if unread else frozenset()
    raced: list[str] = []
    dmas = count()

    def thread_of_dma(memory: Any) -> int:
        """In turn, not at random: a race is found, or missed, each time."""
        cores = int(memory.num_cores)
        return cores + next(dmas) % (int(memory.vector_clock_size) - cores)

    checks = {
        name: _check(getattr(RaceDetectionState, name), ids, raced)
        for name in ("check_read", "check_write")
    }
    with (
        patched(RaceDetectionState, **checks),
        patched(SharedMemory, get_random_virtual_device_id=thread_of_dma),
    ):
        yield raced


@contextmanager
def drained() -> Iterator[list[str]]:
    """What each call leaves signalled on a device when all have ended, which JAX only prints: who
    takes that semaphore next does not wait."""
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as calls

    left: list[str] = []
    clear = calls._clear_shared_memory

    def cleared() -> None:
        memory = calls._get_shared_memory()
        for number, semaphore in (memory.sem | memory.fixed_id_sem).items():
            counts = semaphore.count_by_core.reshape(-1, memory.num_cores_per_device).max(1)
            name = f"semaphore {number - min(memory.sem, default=0)} of those that it allocates"
            name = name if number in memory.sem else "the barrier semaphore"
            left.extend(f"{name} is {n} on device {at}" for at, n in enumerate(counts) if n)
        clear()

    with patched(calls, _clear_shared_memory=cleared):
        yield left


@contextmanager
def reused(left: dict[Any, Any], *, floats: bool) -> Iterator[None]:
    """What a kernel does not set is what was ``left`` there by the run before, as on a TPU, or 0: a
    flag may be that of another call. In the first run it is NaN and the largest integer; without
    ``floats`` NaN in all."""
    from jax._src.pallas.mosaic.interpret import utils
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    allocate, before = SharedMemory.allocate_buffer, dict(left)

    def allocated(
        memory: Any, key: Any, ref_count: int, value: Any, *args: Any, **more: Any
    ) -> None:
        unset = np.asarray(utils.get_uninitialized_value(value.dtype, "nan"), value.dtype)
        is_unset = unset != np.True_ and bool(((value == unset) | (value != value)).all())
        if is_unset and before and (floats or unset == unset):
            old = getattr(before.get(key), "content", value)
            old = old if old.shape == value.shape and old.dtype == value.dtype else value
            value = np.where(old == unset, np.zeros_like(old), old)
        allocate(memory, key, ref_count, value, *args, **more)
        if is_unset:
            left[key] = memory.mem[key]

    with patched(SharedMemory, allocate_buffer=allocated):
        yield


def _buffer_ids(buffers: Sequence[int]) -> frozenset[int]:
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    counters: Any = {f.name: f for f in fields(SharedMemory)}["next_buffer_id"].default_factory
    first = counters()[None]
    return frozenset(first + number for number in buffers)


@dataclass(slots=True)
class _Accesses:
    """Of each a column, its vector clock and where it begins and ends along the first dimensions,
    and its place in the buffer."""

    columns: Any = None
    places: list[Any] = field(default_factory=list)

    def add(self, clock: Any, place: Any) -> None:
        column, count = np.concatenate([clock, *_ends(place)]), len(self.places)
        if self.columns is None:
            self.columns = np.zeros((len(column), 64), np.int64)
        elif count == self.columns.shape[1]:
            self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)], axis=1)
        self.columns[:, count] = column
        self.places.append(place)

    def unordered(self, clock: Any, place: Any) -> list[Any]:
        """The places, along the first dimensions in this one, of those that come neither before
        nor after."""
        if not self.places:
            return []
        columns, (start, stop) = self.columns[:, : len(self.places)], _ends(place)
        starts, stops = columns[len(clock) :].reshape(2, _FIRST, -1)
        near = np.flatnonzero(((starts < stop[:, None]) & (start[:, None] < stops)).all(0))
        known, now = columns[: len(clock), near], clock[:, None]
        is_before, is_after = (known <= now).all(0), (known >= now).all(0)
        return [self.places[number] for number in near[is_before == is_after]]


@dataclass(slots=True)
class _History:
    """Of the buffers of one simulated memory."""

    reads: dict[Any, _Accesses] = field(default_factory=lambda: defaultdict(_Accesses))
    writes: dict[Any, _Accesses] = field(default_factory=lambda: defaultdict(_Accesses))
    lock: Any = field(default_factory=Lock)


def _check(
    check: Callable[..., None], ids: frozenset[int], raced: list[str]
) -> Callable[..., None]:
    from jax._src.pallas.mosaic.interpret.race_detection_state import _ranges_overlap

    signature, is_write = inspect.signature(check), check.__name__ == "check_write"

    @wraps(check)
    def checked(state: Any, *args: Any, **more: Any) -> None:
        given = signature.bind(state, *args, **more).arguments
        buffer, place = given["buffer_key"], given["rnge"]
        is_unwatched = str(buffer[0]).lower() in ("hbm", "any") and int(buffer[1]) in ids
        if is_unwatched or any(map(_is_empty, place)):
            return
        clock = getattr(given["clock"], "clock", given["clock"])
        history = vars(state).setdefault("autotune_history", _History())
        with history.lock:
            reads, writes = history.reads[buffer], history.writes[buffer]
            before = (writes, reads) if is_write else (writes,)
            others = [other for each in before for other in each.unordered(clock, place)]
            (writes if is_write else reads).add(clock, place)
        if not raced and any(_ranges_overlap(place, other) for other in others):
            kind = "write" if is_write else "read"
            parts = [f"{p.start or 0}:{p.stop}" if isinstance(p, slice) else str(p) for p in place]
            where = f"[{', '.join(parts)}] in {buffer[0]}"
            raced.append(f"a {kind} of {where} is not ordered with another access")

    return checked


def _ends(place: Sequence[Any]) -> Any:
    """Where it begins and ends along each of the first dimensions."""
    ends = np.zeros((2, _FIRST), np.int64)
    ends[1] = np.iinfo(np.int64).max
    for number, part in enumerate(place[:_FIRST]):
        if not isinstance(part, slice):
            ends[:, number] = part, part + 1
        elif part.stop is not None:
            ends[:, number] = part.start or 0, part.stop
    return ends


def _is_empty(part: Any) -> bool:
    return isinstance(part, slice) and part.stop is not None and part.stop <= (part.start or 0)


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
    ``unchecked``: loads past the end of a buffer in VMEM are let through. ``left``: what the runs
    before it have left in memory."""

    seed: int
    dmas: str
    unread: tuple[int, ...] = ()
    level: ProofLevel = ProofLevel.FULL
    unchecked: bool = False
    left: dict[Any, Any] = field(default_factory=dict, compare=False)

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
            drained() as left,
            reused(run.left, floats=run.seed > 1),
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
    if left:
        reason = f"{left[0]} when the kernel ends: what was signalled is not waited for"
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

    chips: tuple[Chip | None, ...] = (None,) if chip is None else (chip, None)
    for told in chips:
        try:
            with told_of(told, axes):
                traced = jax.jit(with_static_grids(build(), given)).trace(*given)
            lowered = traced.lower(lowering_platforms=("cpu",))
            known = inspect.signature(lowered.compile).parameters
            here = {"device_assignment": tuple(jax.devices("cpu")[: prod(axes.values())])}
            return lowered.compile(**{name: here[name] for name in here if name in known})
        except Exception as error:
            lacks = error
    raise NotRunError(_root_cause(lacks)) from lacks


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
