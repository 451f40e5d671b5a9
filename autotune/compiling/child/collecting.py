"""The kernels that a model calls: traced with abstract values, nothing is compiled or run.

Each ``pallas_call`` is matched with a kernel of the catalogue, a problem and a config of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from inspect import signature
from itertools import chain, islice, product, takewhile
from typing import Any, TypeVar

from autotune.compiling.child import chips
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.loading import Loader, LoadError
from autotune.compiling.child.pallas_calls import MARK, BlockedArray, ModelCalls, PallasCall
from autotune.declaring.calls.listening import LISTENER
from autotune.declaring.calls.text import AbstractArray, read_arguments
from autotune.declaring.kernel import Kernel
from autotune.domain.compilers import Collected
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Config, Problem, make_config
from autotune.domain.workload import UndeclaredKernel, WorkloadProblem, workload_problem

_PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103)
_MOST_TRACED = 200  # configs of one kernel, for one call


class KnownKernels:
    """Finds the declaration, problem and config of a call. A match is sure: what the declaration
    builds for them is the same call to the last instruction of its body, but for constants."""

    def __init__(self, loader: Loader, refs: Mapping[str, KernelRef]) -> None:
        self._loader, self._refs = loader, refs
        self._built: dict[Any, list[PallasCall]] = {}

    def match(self, call: PallasCall) -> WorkloadProblem | None:
        for name, ref in self._refs.items():
            try:
                kernel = self._loader.kernel(ref)
            except LoadError:  # its package is not installed
                continue
            alike: list[list[PallasCall]] = []
            tries = iter(range(_MOST_TRACED))
            for problem in _problems(kernel, call):
                configs = _configs(kernel, problem, call)
                default = self._made(ref, problem, next(configs))
                if default in alike or not any(made.could_be(call) for made in default):
                    continue  # an option that changes nothing, or another kernel
                alike.append(default)
                for config, _ in zip(
                    chain([_default(kernel, problem)], configs), tries, strict=False
                ):
                    if any(made.alike(call) for made in self._made(ref, problem, config)):
                        axes = ",".join(f"{axis}={value}" for axis, value in config.axes)
                        return replace(workload_problem(name, problem, 1.0), config=axes)
        return None

    def is_just(self, ref: KernelRef, problem: Problem, call: PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem in one of the configs that are tried, to
        the last instruction."""
        if not self.is_of(ref, problem, call):
            return False
        configs = islice(_configs(self._loader.kernel(ref), problem, call), _MOST_TRACED)
        return any(made.same_as(call) for c in configs for made in self._made(ref, problem, c))

    def is_of(self, ref: KernelRef, problem: Problem, call: PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem, in some config: by its name, and its
        arrays."""
        try:
            config = _default(self._loader.kernel(ref), problem)
        except Exception:  # a declaration that is not where it was said to be
            return False
        return any(made.could_be(call) for made in self._made(ref, problem, config))

    def _made(self, ref: KernelRef, problem: Problem, config: Config) -> list[PallasCall]:
        import jax

        key = ref, problem, config
        if key not in self._built:
            kernel, calls = self._loader.kernel(ref), ModelCalls()
            with suppress(Exception):  # what a declaration refuses is no match
                arrays = [
                    jax.ShapeDtypeStruct(array.shape, array.dtype)
                    for array in kernel.inputs(problem)
                ]
                closed = jax.make_jaxpr(kernel.build(problem, config))(*arrays)
                calls.walk(closed, 1, counted=False)
            self._built[key] = list(calls.found)
        return self._built[key]


def _problems(kernel: Kernel, call: PallasCall) -> Iterator[Problem]:
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
    operands: Sequence[BlockedArray],
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
        bindings = dict(known)
        pairs = list(zip(shape, operand.shape, strict=True))
        if all(
            bindings.setdefault(names[size], have) == have if size in names else size == have
            for size, have in pairs
        ):
            yield from _sizes(rest, operands[place + 1 :], primes, bindings)
    yield from _sizes(rest, operands, primes, known)  # it is reshaped ahead of the call


def _default(kernel: Kernel, problem: Problem) -> Config:
    return make_config(kernel.default_axes(problem, None), grid_order=kernel.grid)


def _configs(kernel: Kernel, problem: Problem, call: PallasCall) -> Iterator[Config]:
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


_Weighted = TypeVar("_Weighted", WorkloadProblem, UndeclaredKernel)


def collect(
    loader: Loader, ref: KernelRef, chip: Chip | None, catalogue: Mapping[str, KernelRef]
) -> Collected:
    """Each kernel with how often the function runs it. Raises ``LoadError``."""
    function, given = called(loader, ref)
    return kernels_of(function, (), given, loader, catalogue, chip)[1]


def called(loader: Loader, ref: KernelRef) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function at ``ref`` and its arguments. Raises ``LoadError``."""
    function = loader.function(ref)
    home = getattr(function, "__globals__", {})
    given = {name: _abstract(value) for name, value in read_arguments(ref.call, home).items()}
    return function, given


@contextmanager
def compile_only(
    function: Callable[..., Any], given: Mapping[str, Any], chip: Chip
) -> Iterator[Any]:
    """What JAX has traced of a call for one device, to be lowered here. What has no arrays is
    static."""
    import jax
    from jax.sharding import SingleDeviceSharding

    device = chips.compile_only_device(chip)
    arrays = jax.tree_util.tree_map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SingleDeviceSharding(device)),
        {name: value for name, value in given.items() if _has_arrays(value)},
    )
    with chips.told_of(chip, {}):
        traced = jax.jit(lambda arrays: function(**{**given, **arrays})).trace(arrays)
    with abstract_mesh(device):
        yield traced


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
    placed = [str(place) for place in range(len(args))]
    given = {**dict(zip(placed, args, strict=True)), **kwargs}
    dynamic = {name: value for name, value in given.items() if _has_arrays(value)}

    def step(arrays: Any) -> Any:
        every = given | arrays
        first = [every.pop(place) for place in placed]
        return function(*first, *_by_place(function, len(first), every), **every)

    tries: list[tuple[Heard, Any]] = []
    for surroundings in _surroundings(chip):
        tries.append(_traced(step, dynamic, surroundings))
        if not isinstance(tries[-1][1], Exception):
            break
    traced = [attempt for attempt in tries if not isinstance(attempt[1], Exception)]
    heard, closed = (traced or tries)[0]
    if isinstance(closed, Exception):
        errors = dict.fromkeys(f"{type(error).__name__}: {error}" for _, error in tries)
        return closed, Collected(
            heard.untraced(), [], "; or, told otherwise of the chip, ".join(errors)
        )
    calls = ModelCalls()
    calls.walk(closed, 1, counted=False)
    with chips.told_of(chip, {}):  # some declarations ask for it, too
        return None, _named(heard, calls, KnownKernels(loader, catalogue))


def _by_place(function: Callable[..., Any], first: int, named: dict[str, Any]) -> list[Any]:
    """Takes those out of ``named`` that can be given by their place, behind the ``first`` ones: a
    ``jit`` with ``in_shardings`` takes none by name."""
    try:
        parameters = list(signature(function).parameters.values())[first:]
    except (TypeError, ValueError):
        return []
    names = [p.name if p.kind is p.POSITIONAL_OR_KEYWORD else "" for p in parameters]
    return [named.pop(name) for name in takewhile(named.__contains__, names)]


def _surroundings(chip: Chip | None) -> Iterator[AbstractContextManager[Any]]:
    """What a model may need to be told of the chip. Which of it was right is known when it is
    traced: a mesh of its own contradicts the ambient one; some ask the default device what it can,
    but arrays cannot be made on one that is not there."""
    import jax

    with chips.attached(chip):
        yield chips.told_of(chip, {})
        if chip is not None:
            yield nullcontext()
            with jax.default_device(chips.compile_only_device(chip)):
                yield chips.told_of(chip, {})


def _traced(
    step: Callable[[Any], Any], arrays: Any, surroundings: AbstractContextManager[Any]
) -> tuple["Heard", Any]:
    """What was heard, and the jaxpr, or what it was ended by."""
    import jax

    heard = Heard()
    token = LISTENER.set(heard)
    try:
        with surroundings, _meshes_in_trace():
            return heard, jax.make_jaxpr(step)(arrays)
    except Exception as error:
        return heard, error
    finally:
        LISTENER.reset(token)


def _meshes_in_trace() -> AbstractContextManager[Any]:
    """A model may set its mesh, which JAX refuses in a trace: there the mesh is an abstract one."""
    import jax

    if not hasattr(jax, "set_mesh"):  # before jax 0.7
        return nullcontext()
    enter = jax.sharding.use_abstract_mesh
    return chips.patched(jax, set_mesh=lambda mesh: enter(getattr(mesh, "abstract_mesh", mesh)))


def _named(heard: "Heard", calls: ModelCalls, known: KnownKernels) -> Collected:
    problems = [
        _of_ref(heard.calls[number], weight=float(times)) for number, times in calls.marked.items()
    ]
    left = dict(calls.found)
    tuned = dict.fromkeys(heard.problems, 0)
    for is_of in (known.is_just, known.is_of):  # problems can differ in an option alone
        for ref, problem in tuned:
            for call in [undeclared for undeclared in left if is_of(ref, problem, undeclared)]:
                tuned[ref, problem] += left.pop(call) * call.batch
    for (ref, problem), times in tuned.items():
        weight = float(times or heard.problems.count((ref, problem)))
        problems.append(workload_problem(f"{ref.path}:{ref.attribute}", problem, weight))
    undeclared = []
    for call, times in left.items():
        match = known.match(call)
        if match is not None:
            problems.append(replace(match, weight=float(times * call.batch)))
        else:
            undeclared.append(replace(call.undeclared, weight=float(times)))
    return Collected(merged(problems), undeclared)


def merged(weighted: Iterable[_Weighted]) -> list[_Weighted]:
    """Equal ones are one, with the sum of their weights."""
    weights: dict[_Weighted, float] = {}
    for problem in weighted:
        alike = replace(problem, weight=1.0)
        weights[alike] = weights.get(alike, 0.0) + problem.weight
    return [replace(problem, weight=weight) for problem, weight in weights.items()]


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
        scope: AbstractContextManager[Any] = jax.named_scope(f"{MARK}{len(self.calls) - 1}")
        return scope

    def asked(self, ref: KernelRef, problem: Problem) -> None:
        self.problems.append((ref, problem))

    def untraced(self) -> list[WorkloadProblem]:
        """What is known without the whole: loops are not counted."""
        named = [_of_ref(ref, 1.0) for ref in self.calls]
        asked = [workload_problem(f"{r.path}:{r.attribute}", p, 1.0) for r, p in self.problems]
        return merged([*named, *asked])


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
