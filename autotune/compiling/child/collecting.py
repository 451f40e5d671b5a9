"""The kernels that a model calls: traced with abstract values, nothing is compiled or run.

Each ``pallas_call`` is matched with a kernel of the catalogue, a problem and a config of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import signature, unwrap
from itertools import takewhile
from typing import Any, TypeVar

from autotune.compiling.child import chips
from autotune.compiling.child.call_sites import CallSites
from autotune.compiling.child.declarations import declared
from autotune.compiling.child.devices import meshed
from autotune.compiling.child.known_kernels import KnownKernels
from autotune.compiling.child.known_numbers import KnownNumbers
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.pallas_calls import MARK, ModelCalls
from autotune.declaring.calls.listening import LISTENER, MakeRef
from autotune.declaring.calls.text import AbstractArray, read_arguments
from autotune.domain.compilers import Collected, DeclaredCall
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Config, Problem
from autotune.domain.workload import UndeclaredKernel, WorkloadProblem, workload_problem

_Weighted = TypeVar("_Weighted", WorkloadProblem, UndeclaredKernel)


def collect(
    loader: Loader,
    ref: KernelRef,
    chip: Chip | None,
    catalogue: Mapping[str, KernelRef],
    *,
    declare: bool = False,
    likely: Sequence[Config] = (),
) -> Collected:
    """Each kernel with how often the function runs it; ``declare``: with a declaration of those
    that have none, where one can be made. Raises ``LoadError``."""
    function, given = called(loader, ref)
    return kernels_of(function, (), given, loader, catalogue, chip, likely, declare=declare)[1]


def called(loader: Loader, ref: KernelRef) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function at ``ref`` and its arguments. Raises ``LoadError``."""
    function, names = loader.function(ref)
    home = {**getattr(unwrap(function), "__globals__", {}), **names}
    given = {name: _abstract(value) for name, value in read_arguments(ref.call, home).items()}
    return function, given


def kernels_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loader: Loader,
    catalogue: Mapping[str, KernelRef],
    chip: Chip | None = None,
    likely: Sequence[Config] = (),
    *,
    declare: bool = False,
) -> tuple[Exception | None, Collected]:
    """Each kernel with how often such a call runs it, and what ended the trace before its end.
    What has no arrays among the arguments is static."""
    import jax

    placed = [str(place) for place in range(len(args))]
    given = {**dict(zip(placed, args, strict=True)), **kwargs}
    dynamic = {name: value for name, value in given.items() if has_arrays(value)}

    def step(arrays: Any) -> Any:
        every = given | arrays
        first = [every.pop(place) for place in placed]
        return function(*first, *by_place(function, len(first), every), **every)

    tries: list[tuple[Heard, Any]] = []
    for surroundings in _surroundings(chip):
        heard = Heard()
        sites = CallSites(heard.numbers) if declare else None
        with sites.noted() if sites is not None else nullcontext():
            tries.append((heard, _traced(step, dynamic, surroundings, heard)))
        if not isinstance(tries[-1][1], Exception):
            break
    heard, closed = tries[0 if isinstance(tries[-1][1], Exception) else -1]
    if isinstance(closed, Exception):
        errors = dict.fromkeys(f"{type(error).__name__}: {error}" for _, error in tries)
        error = "; or, told otherwise of the chip, ".join(errors)
        return closed, Collected(heard.untraced(), [], error)
    heard.numbers.learn(closed, jax.tree_util.tree_leaves(dynamic))
    calls = ModelCalls()
    calls.walk(closed, 1, counted=False)
    with chips.attached(chip), chips.told_of(chip, {}):  # some declarations ask for it, too
        known = KnownKernels(loader, catalogue, calls.runs_by_call, chip, likely)
        return None, _named(heard, calls, known, sites)


def by_place(function: Callable[..., Any], first: int, named: dict[str, Any]) -> list[Any]:
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
    step: Callable[[Any], Any],
    arrays: Any,
    surroundings: AbstractContextManager[Any],
    heard: "Heard",
) -> Any:
    """The jaxpr, or what it was ended by."""
    import jax

    token = LISTENER.set(heard)
    try:
        with surroundings, _meshes_in_trace():
            return jax.make_jaxpr(step)(arrays)
    except Exception as error:
        return error
    finally:
        LISTENER.reset(token)


def _meshes_in_trace() -> AbstractContextManager[Any]:
    """A model may set its mesh, which JAX refuses in a trace: there the mesh is an abstract one."""
    import jax

    if not hasattr(jax, "set_mesh"):  # before jax 0.7
        return nullcontext()
    return chips.patched(jax, set_mesh=lambda mesh: meshed(getattr(mesh, "abstract_mesh", mesh)))


def _named(
    heard: "Heard", calls: ModelCalls, known: KnownKernels, sites: CallSites | None
) -> Collected:
    problems = [
        _of_ref(heard.call(number), weight=float(times)) for number, times in calls.marked.items()
    ]
    left = dict(calls.runs_by_call)
    tuned = dict.fromkeys(heard.problems, 0)
    for is_of in (known.is_just, known.is_of):  # problems can differ in an option alone
        for ref, problem in tuned:
            for call in [undeclared for undeclared in left if is_of(ref, problem, undeclared)]:
                tuned[ref, problem] += left.pop(call) * call.batch
    for (ref, problem), times in tuned.items():
        weight = float(times or heard.problems.count((ref, problem)))
        problems.append(workload_problem(f"{ref.path}:{ref.attribute}", problem, weight))
    undeclared, made = [], dict[DeclaredCall, float]()
    matched: dict[WorkloadProblem, dict[int, float]] = {}
    for call, times in left.items():
        match, runs = known.match(call), float(times * call.batch)
        declaration = None if match or sites is None else declared(sites.of(call), call)
        if match is not None:
            places = matched.setdefault(match[0], {})
            places[match[1]] = places.get(match[1], 0.0) + runs
        elif declaration is not None:  # of another kernel that its function makes, too
            made[declaration] = max(made.get(declaration, 0.0), runs)
        else:
            undeclared.append(replace(call.undeclared, weight=float(times)))
    problems += [replace(p, weight=max(runs.values())) for p, runs in matched.items()]
    declarations = [call._replace(weight=runs) for call, runs in made.items()]
    return Collected(merged(problems), undeclared, "", declarations)


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
        self.numbers = KnownNumbers()
        self.calls: list[tuple[KernelRef, MakeRef, Any]] = []
        self.problems: list[tuple[KernelRef, Problem]] = []

    def called(self, ref: MakeRef, args: Any, kwargs: Any) -> AbstractContextManager[Any]:
        import jax

        self.calls.append((ref(*args, **kwargs), ref, (args, kwargs)))
        self.numbers.note(args, kwargs)
        scope: AbstractContextManager[Any] = jax.named_scope(f"{MARK}{len(self.calls) - 1}")
        return scope

    def call(self, number: int) -> KernelRef:
        """With the numbers that are known at the end of the trace."""
        ref, make, given = self.calls[number]
        args, kwargs = filled = self.numbers.filled(given)
        return ref if filled is given else make(*args, **kwargs)

    def asked(self, ref: KernelRef, problem: Problem) -> None:
        self.problems.append((ref, problem))

    def untraced(self) -> list[WorkloadProblem]:
        """What is known without the whole: loops are not counted."""
        named = [_of_ref(ref, 1.0) for ref, *_ in self.calls]
        asked = [workload_problem(f"{r.path}:{r.attribute}", p, 1.0) for r, p in self.problems]
        return merged([*named, *asked])


def _abstract(value: Any) -> Any:
    """With JAX's abstract arrays, or known integers, in dataclasses that JAX knows as trees too."""
    import jax

    def leaf(part: Any) -> Any:
        is_array = isinstance(part, AbstractArray)
        if is_array and part.contents is not None:
            return part.integers()
        return jax.ShapeDtypeStruct(part.shape, part.dtype) if is_array else part

    return jax.tree_util.tree_map(leaf, value)


def has_arrays(value: Any) -> bool:
    import jax

    return any(hasattr(leaf, "shape") for leaf in jax.tree_util.tree_leaves(value))
