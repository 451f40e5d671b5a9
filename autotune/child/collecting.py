"""The kernels that a model calls: traced with abstract values, nothing is compiled or run."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod
from typing import Any, TypeVar

from autotune.calls.listening import LISTENER
from autotune.calls.text import AbstractArray, read_arguments
from autotune.child.chips import compile_only_device, told_of
from autotune.child.loading import Loader, LoadError
from autotune.child.trace.blocks import array_of, block_shape, memory_space
from autotune.child.trace.calls import inner_jaxprs
from autotune.child.trace.mapped import as_pallas_call
from autotune.child.trace.pallas_call import compiler_params, name_of
from autotune.child.trace.scalars import open_jaxpr
from autotune.compiler.protocol import Collected
from autotune.domain.chip import Chip
from autotune.domain.config import Config, make_config
from autotune.domain.dtype import bits
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.problem import Problem
from autotune.domain.workload import UndeclaredKernel, WorkloadProblem, workload_problem
from autotune.kernel import Kernel

_MARK = re.compile(r"autotune-call-(\d+)")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103)
_MOST_TRACED = 200  # configs of one kernel, for one call
_BUFFERS = 2

_Weighted = TypeVar("_Weighted", WorkloadProblem, UndeclaredKernel)


def collect(
    loader: Loader, ref: KernelRef, chip: Chip | None, catalogue: Mapping[str, KernelRef]
) -> Collected:
    """Each kernel with how often the function runs it. Raises ``LoadError``."""
    function = loader.function(ref)
    home = getattr(function, "__globals__", {})
    given = {name: _abstract(value) for name, value in read_arguments(ref.call, home).items()}
    return kernels_of(function, (), given, loader, catalogue, chip)[1]


def kernels_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loader: Loader,
    catalogue: Mapping[str, KernelRef],
    chip: Chip | None = None,
) -> tuple[Exception | None, Collected]:
    """Each kernel with how often such a call runs it, and what ended the trace before its end.
    What has no arrays among the arguments is static."""
    import jax

    placed = [str(place) for place in range(len(args))]
    given = {**dict(zip(placed, args, strict=True)), **kwargs}
    dynamic = {name: value for name, value in given.items() if _has_arrays(value)}

    def step(arrays: Any) -> Any:
        every = given | arrays
        first = [every.pop(place) for place in placed]
        return function(*first, **every)

    heard, closed = _traced(step, dynamic, told_of(chip, {}))
    if isinstance(closed, Exception) and chip is not None:
        # Some ask the default device what it can. Arrays cannot be made on one that is not there.
        with jax.default_device(compile_only_device(chip)):
            again, found = _traced(step, dynamic, told_of(chip, {}))
        if not isinstance(found, Exception):
            heard, closed = again, found
    if isinstance(closed, Exception):
        return closed, Collected(heard.untraced(), [], f"{type(closed).__name__}: {closed}")
    calls = _Calls()
    calls.walk(closed, 1, counted=False)
    return None, _named(heard, calls, _Catalogue(loader, catalogue))


def _traced(
    step: Callable[[Any], Any], arrays: Any, told: AbstractContextManager[Any]
) -> tuple["Heard", Any]:
    """What was heard, and the jaxpr, or what it was ended by."""
    import jax

    heard = Heard()
    token = LISTENER.set(heard)
    try:
        with told:
            return heard, jax.make_jaxpr(step)(arrays)
    except Exception as error:
        return heard, error
    finally:
        LISTENER.reset(token)


def _named(heard: "Heard", calls: "_Calls", known: "_Catalogue") -> Collected:
    problems = [
        _of_ref(heard.calls[number], weight=float(times)) for number, times in calls.marked.items()
    ]
    left = dict(calls.found)
    tuned = dict.fromkeys(heard.problems, 0)
    for is_of in (known.is_just, known.is_of):  # problems can differ in an option alone
        for ref, problem in tuned:
            for one in [one for one in left if is_of(ref, problem, one)]:
                tuned[ref, problem] += left.pop(one) * one.batch
    for (ref, problem), times in tuned.items():
        weight = float(times or heard.problems.count((ref, problem)))
        problems.append(workload_problem(f"{ref.path}:{ref.attribute}", problem, weight))
    undeclared = []
    for one, times in left.items():
        match = known.match(one)
        if match is not None:
            problems.append(replace(match, weight=float(times * one.batch)))
        else:
            undeclared.append(replace(one.undeclared, weight=float(times)))
    return Collected(merged(problems), undeclared)


def merged(found: Iterable[_Weighted]) -> list[_Weighted]:
    """Equal ones are one, with the sum of their weights."""
    weights: dict[_Weighted, float] = {}
    for one in found:
        alike = replace(one, weight=1.0)
        weights[alike] = weights.get(alike, 0.0) + one.weight
    return [replace(one, weight=weight) for one, weight in weights.items()]


def _of_ref(ref: KernelRef, weight: float) -> WorkloadProblem:
    return WorkloadProblem(kernel=f"{ref.path}:{ref.attribute}", args=ref.call, weight=weight)


class Heard:
    """A listener that marks what a decorated function does with the number of its call."""

    def __init__(self) -> None:
        self.calls: list[KernelRef] = []
        self.problems: list[tuple[KernelRef, Problem]] = []

    def called(self, ref: KernelRef) -> AbstractContextManager[Any]:
        import jax

        self.calls.append(ref)
        scope: AbstractContextManager[Any] = jax.named_scope(f"autotune-call-{len(self.calls) - 1}")
        return scope

    def asked(self, ref: KernelRef, problem: Problem) -> None:
        self.problems.append((ref, problem))

    def untraced(self) -> list[WorkloadProblem]:
        """What is known without the whole: loops are not counted."""
        named = [_of_ref(ref, 1.0) for ref in self.calls]
        asked = [workload_problem(f"{r.path}:{r.attribute}", p, 1.0) for r, p in self.problems]
        return merged([*named, *asked])


@dataclass(frozen=True, slots=True)
class _Operand:
    """``shape`` and ``block`` without what ``vmap`` has put ahead of them."""

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    space: str


@dataclass(frozen=True, slots=True)
class _PallasCall:
    """What two calls of one kernel for one problem and config have in common. ``batch``: how often
    ``vmap`` makes the grid run."""

    name: str
    grid: tuple[int, ...]
    operands: tuple[_Operand, ...]
    others: tuple[tuple[tuple[int, ...], str], ...]
    body: str
    batch: int
    limit_bytes: int | None

    @property
    def undeclared(self) -> UndeclaredKernel:
        moved = [one for one in self.operands if one.space not in ("any", "hbm", "smem")]
        return UndeclaredKernel(
            name=self.name,
            grid=self.grid if self.batch == 1 else (self.batch, *self.grid),
            blocks=tuple(one.block for one in self.operands),
            vmem_bytes=sum(_BUFFERS * prod(one.block) * bits(one.dtype) // 8 for one in moved),
            limit_bytes=self.limit_bytes,
        )

    def could_be(self, other: "_PallasCall") -> bool:
        """In another config: of the same name, on the same arrays."""
        arrays = [
            [(operand.shape, operand.dtype) for operand in one.operands if operand.space != "smem"]
            for one in (self, other)
        ]
        return self.name == other.name and arrays[0] == arrays[1]

    def same_as(self, other: "_PallasCall") -> bool:
        """The limit may be another one: it is no part of a kernel's problem."""
        return (self.grid, self.operands, self.others, self.body) == (
            other.grid,
            other.operands,
            other.others,
            other.body,
        )


def _read(eqn: Any) -> _PallasCall:
    mapping = eqn.params["grid_mapping"]
    added = tuple(getattr(mapping, "vmapped_dims", ()))
    grid = [size if isinstance(size, int) else 0 for size in mapping.grid]
    first = mapping.num_dynamic_grid_bounds
    scalars = eqn.invars[first : first + mapping.num_index_operands]
    params = compiler_params(eqn)
    return _PallasCall(
        name=name_of(eqn),
        grid=tuple(size for axis, size in enumerate(grid) if axis not in added),
        operands=tuple(_operand(one, added) for one in mapping.block_mappings),
        others=tuple((tuple(var.aval.shape), str(var.aval.dtype)) for var in scalars),
        body=_ADDRESS.sub("", str(open_jaxpr(eqn.params["jaxpr"]))),
        batch=prod(grid[axis] for axis in added),
        limit_bytes=params.get("vmem_limit_bytes"),
    )


def _batch(eqn: Any, around: int) -> int:
    """How often the ``vmap`` around a decorated function makes its grids run, of so many; others
    are its own."""
    call = as_pallas_call(eqn)
    if call is None:
        inner = inner_jaxprs(eqn, [None] * max(1, len(eqn.invars)))
        within = (one for jaxpr, _ in inner for one in open_jaxpr(jaxpr).eqns)
        return max((_batch(one, around) for one in within), default=1)
    mapping = call.params["grid_mapping"]
    added = sorted(getattr(mapping, "vmapped_dims", ()))[:around]
    return prod(mapping.grid[axis] for axis in added)


def _operand(mapping: Any, added: Sequence[int]) -> _Operand:
    """``added``: grid axes of ``vmap``; what it maps has one of them as the first index."""
    array, index = array_of(mapping), open_jaxpr(mapping.index_map_jaxpr)
    mapped = [index.invars[axis] for axis in added]
    skipped = 0
    while skipped < len(index.outvars) and any(index.outvars[skipped] is one for one in mapped):
        skipped += 1
    shape, block = tuple(array.shape)[skipped:], tuple(block_shape(mapping))[skipped:]
    return _Operand(shape, str(array.dtype), block, memory_space(mapping.block_aval))


class _Calls:
    """Walks what a model does. ``found``: how often each ``pallas_call`` is made that is in no
    decorated function."""

    def __init__(self) -> None:
        self._marked: Counter[tuple[int, bool]] = Counter()
        self.found: Counter[_PallasCall] = Counter()

    @property
    def marked(self) -> dict[int, int]:
        """How often each call of a decorated function is made. What a gradient makes of one is no
        call of its own; one that stands only there is."""
        forward = {number: times for (number, back), times in self._marked.items() if not back}
        return {number: times for (number, _), times in self._marked.items()} | forward

    def walk(self, jaxpr: Any, times: int, *, counted: bool, around: str = "") -> None:
        """``counted``: it is inside of a decorated function; ``around``: names of what it is in.
        How often a ``while`` turns and which branch of a ``cond`` is taken is not known: each
        counts once."""
        here: dict[tuple[int, bool], int] = {}
        for eqn in open_jaxpr(jaxpr).eqns:
            stack = str(eqn.source_info.name_stack)
            mark = None if counted else _MARK.search(stack)
            if mark:
                before = stack[: mark.start()]
                back = "transpose(" in before and "rematted_computation" not in before
                which = int(mark[1]), back
                mapped = (around + before).count("vmap(")
                here[which] = max(here.get(which, 1), _batch(eqn, mapped))
            call = as_pallas_call(eqn)
            if call is not None:
                if not (counted or mark):
                    self.found[_read(call)] += times
                continue
            for inner, turns in inner_jaxprs(eqn, [None] * max(1, len(eqn.invars))):
                often = times * (1 if turns is None else turns)
                inside = counted or mark is not None
                self.walk(inner, often, counted=inside, around=f"{around}{stack}/")
        for one, batch in here.items():
            self._marked[one] += times * batch


class _Catalogue:
    """Finds the declaration, problem and config of a call. A match is sure: what the declaration
    builds for them is the same call to the last instruction of its body."""

    def __init__(self, loader: Loader, refs: Mapping[str, KernelRef]) -> None:
        self._loader, self._refs = loader, refs
        self._built: dict[Any, list[_PallasCall]] = {}

    def match(self, call: _PallasCall) -> WorkloadProblem | None:
        for name, ref in self._refs.items():
            try:
                kernel = self._loader.kernel(ref)
            except LoadError:  # its package is not installed
                continue
            alike: list[list[_PallasCall]] = []
            for problem in _problems(kernel, call):
                configs = islice(_configs(kernel, problem, call), _MOST_TRACED)
                default = self._made(ref, problem, next(configs))
                if default in alike or not any(one.could_be(call) for one in default):
                    continue  # an option that changes nothing, or another kernel
                alike.append(default)
                for config in (_default(kernel, problem), *configs):
                    if any(one.same_as(call) for one in self._made(ref, problem, config)):
                        axes = ",".join(f"{axis}={value}" for axis, value in config.axes)
                        return replace(workload_problem(name, problem, 1.0), config=axes)
        return None

    def is_just(self, ref: KernelRef, problem: Problem, call: _PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem in one of the configs that are tried, to
        the last instruction."""
        if not self.is_of(ref, problem, call):
            return False
        configs = islice(_configs(self._loader.kernel(ref), problem, call), _MOST_TRACED)
        return any(one.same_as(call) for c in configs for one in self._made(ref, problem, c))

    def is_of(self, ref: KernelRef, problem: Problem, call: _PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem, in some config: by its name, and its
        arrays."""
        try:
            config = _default(self._loader.kernel(ref), problem)
        except Exception:  # a declaration that is not where it was said to be
            return False
        return any(one.could_be(call) for one in self._made(ref, problem, config))

    def _made(self, ref: KernelRef, problem: Problem, config: Config) -> list[_PallasCall]:
        import jax

        key = ref, problem, config
        if key not in self._built:
            kernel, calls = self._loader.kernel(ref), _Calls()
            with suppress(Exception):  # what a declaration refuses is no match
                arrays = [
                    jax.ShapeDtypeStruct(array.shape, array.dtype)
                    for array in kernel.inputs(problem)
                ]
                closed = jax.make_jaxpr(kernel.build(problem, config))(*arrays)
                calls.walk(closed, 1, counted=False)
            self._built[key] = list(calls.found)
        return self._built[key]


def _problems(kernel: Kernel, call: _PallasCall) -> Iterator[Problem]:
    """Problems whose inputs are among the operands, in their order: where each dimension stands is
    read from the inputs of a problem whose sizes are primes."""
    primes = dict(zip(kernel.dims, _PRIMES, strict=False))
    choices = [dict.fromkeys((option.default, *option.choices)) for option in kernel.options]
    for values in product(*choices):
        options = tuple(zip((option.name for option in kernel.options), values, strict=True))
        for dtype in kernel.dtypes:
            probe = Problem(dims=tuple(primes.items()), dtype=dtype, options=options)
            with suppress(Exception):
                arrays = [(array.shape, array.dtype) for array in kernel.inputs(probe)]
                for sizes in _sizes(arrays, list(call.operands), primes, {}):
                    problem = probe.with_dims(**sizes)
                    if set(sizes) == set(primes) and not (kernel.check and kernel.check(problem)):
                        yield problem


def _sizes(
    arrays: Sequence[tuple[tuple[int, ...], str]],
    operands: Sequence[_Operand],
    primes: Mapping[str, int],
    known: dict[str, int],
) -> Iterator[dict[str, int]]:
    if not arrays:
        yield known
        return
    (shape, dtype), *rest = arrays
    names = {prime: name for name, prime in primes.items()}
    for place, operand in enumerate(operands):
        if len(operand.shape) != len(shape) or operand.dtype != str(dtype):
            continue
        found = dict(known)
        pairs = list(zip(shape, operand.shape, strict=True))
        if all(
            found.setdefault(names[size], have) == have if size in names else size == have
            for size, have in pairs
        ):
            yield from _sizes(rest, operands[place + 1 :], primes, found)
    yield from _sizes(rest, operands, primes, known)  # it is reshaped ahead of the call


def _default(kernel: Kernel, problem: Problem) -> Config:
    return make_config(kernel.default_axes(problem, None), grid_order=kernel.grid)


def _configs(kernel: Kernel, problem: Problem, call: _PallasCall) -> Iterator[Config]:
    """The default, then those with the sizes of the call's blocks."""
    yield _default(kernel, problem)
    sizes = {size for operand in call.operands for size in operand.block}
    columns = []
    for axis in kernel.axes:
        values = list(axis.choices(problem))
        shown = [value for value in values if value in sizes]
        rest = [value for value in values if value not in sizes]
        columns.append(shown if shown and axis.dim else [*shown, *rest])
    for chosen in product(*columns):
        axes = dict(zip((axis.name for axis in kernel.axes), chosen, strict=True))
        yield make_config(axes, grid_order=kernel.grid)


def _abstract(value: Any) -> Any:
    """With JAX's abstract arrays."""
    import jax

    if isinstance(value, AbstractArray):
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    if isinstance(value, dict):
        return {key: _abstract(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_abstract, value))
    return value


def _has_arrays(value: Any) -> bool:
    import jax

    return any(hasattr(leaf, "shape") for leaf in jax.tree_util.tree_leaves(value))
