"""Which kernel of the catalogue a ``pallas_call`` is, for which problem and in which config.

A match is sure: what the declaration builds is the same call to the last instruction of its body,
but for constants. The rest decides only what is tried, as each try is a trace.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any

from autotune.compiling.child.loading import Loader, LoadError
from autotune.compiling.child.pallas_calls import Arrays, BlockedArray, ModelCalls, PallasCall
from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Config, Problem, make_config
from autotune.domain.workload import WorkloadProblem, workload_problem

_PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103)
_DEFAULTS = 2  # configs that come first
_MOST_TRACED = 200  # configs of all problems, for one call


class KnownKernels:
    """Finds the declaration, problem and config of a call."""

    def __init__(
        self,
        loader: Loader,
        refs: Mapping[str, KernelRef],
        calls: Collection[PallasCall],
        chip: Chip | None = None,
        likely: Sequence[Config] = (),
    ) -> None:
        """``calls``: all of the model; ``likely``: configs that are tried first."""
        self._loader, self._refs, self._calls, self._chip = loader, refs, calls, chip
        self._tried_first = likely
        self._built: dict[Any, list[PallasCall]] = {}

    def match(self, call: PallasCall) -> tuple[WorkloadProblem, int] | None:
        """And which of the calls of the declaration it is."""
        for name, ref in self._refs.items():
            try:
                kernel = self._loader.kernel(ref)
            except LoadError:  # its package is not installed
                continue
            for given in (None,) if kernel.sizes is None else call.given:
                matched = self._match(ref, kernel, call, given)
                if matched is not None:
                    problem, config, place = matched
                    axes = ",".join(f"{axis}={value}" for axis, value in config.axes)
                    return replace(workload_problem(name, problem, 1.0), config=axes), place
        return None

    def _match(
        self, ref: KernelRef, kernel: Kernel, call: PallasCall, given: Arrays | None
    ) -> tuple[Problem, Config, int] | None:
        """Defaults first: problems whose options differ in a number alone are many."""
        alike, problems, cut = list[list[PallasCall]](), list[Problem](), dict[str, Any]()
        for problem in self._likely(ref, kernel, call, given):
            config = _default(kernel, problem)
            default = self._made(ref, problem, config, given)
            if default in alike or not any(_could_be(problem, config, m, call) for m in default):
                continue  # an option that changes nothing, or another kernel
            alike.append(default)
            problems.append(problem)
            matched = self._config(ref, problem, call, cut, given, _DEFAULTS)
            if matched is not None:
                return problem, *matched
        for place, problem in enumerate(problems):  # the first says which axes cut its blocks
            share = _MOST_TRACED // (len(problems) if place else min(2, len(problems)))
            matched = self._config(ref, problem, call, cut, given, max(_DEFAULTS + 1, share))
            if matched is not None:
                return problem, *matched
        return None

    def _likely(
        self, ref: KernelRef, kernel: Kernel, call: PallasCall, given: Arrays | None
    ) -> Iterator[Problem]:
        """Problems whose call is like this one outside of its body, as far as it is known: what an
        option changes of that is traced once, for it alone. The fewest options that are no default
        come first."""
        default = dict.fromkeys((option.name, option.default) for option in kernel.options)
        groups: dict[Any, list[Problem]] = {}
        for problem in dict.fromkeys(_problems(kernel, call, given)):
            groups.setdefault((problem.dims, problem.dtype), []).append(problem)
        for problems in groups.values():
            problems.sort(key=lambda problem: sum(o not in default for o in problem.options))
            features = {
                p: [made.features for made in self._made(ref, p, _default(kernel, p), given)]
                for p in _tested(problems)
            }
            for problem in problems:
                expected = _expected(problem, problems[0], features)
                if not expected or call.features in expected:
                    yield problem

    def _config(
        self,
        ref: KernelRef,
        problem: Problem,
        call: PallasCall,
        cut: dict[str, Any],
        given: Arrays | None,
        most: int,
    ) -> tuple[Config, int] | None:
        """Of so many, the config that makes the call, and no other than the model has; and which of
        its calls that is. Of all, any that makes it, where there is no such. ``cut``: the axes that
        cut its blocks, once they are known: they are the same for each problem."""
        kernel, first = self._loader.kernel(ref), None
        cutting = [axis.name for axis in kernel.axes if axis.dim]
        names = {axis.name for axis in kernel.axes}
        likely = [dict(c.axes) for c in self._tried_first if {name for name, _ in c.axes} == names]
        first_ones = [make_config(axes, grid_order=kernel.grid) for axes in likely[:_MOST_TRACED]]
        configs = chain(first_ones, _configs(kernel, problem, call, self._chip))
        fitting = (c for c in configs if all(c[axis] == size for axis, size in cut.items()))
        for config in islice(fitting, most + len(likely)):
            made = self._made(ref, problem, config, given)
            place = next((n for n, same in enumerate(made) if same.alike(call)), None)
            if place is not None:
                if all(any(map(same.alike, self._calls)) for same in made):
                    return config, place
                first = first or (config, place)
            if cut and not any(same.grid == call.grid for same in made):
                break  # what else there is changes no grid
            if any(same.blocks == call.blocks for same in made):
                cut |= {axis: config[axis] for axis in cutting}
        return first if most > _DEFAULTS else None

    def is_just(self, ref: KernelRef, problem: Problem, call: PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem in one of the configs that are tried, to
        the last instruction."""
        if not self.is_of(ref, problem, call):
            return False
        configs = islice(_configs(self._loader.kernel(ref), problem, call), _MOST_TRACED)
        return any(
            made.alike(call) and made.body == call.body  # the limit is no part of a problem
            for c in configs
            for made in self._made(ref, problem, c)
        )

    def is_of(self, ref: KernelRef, problem: Problem, call: PallasCall) -> bool:
        """Whether a call is that of a kernel for a problem, in some config: by its name, and its
        arrays."""
        try:
            config = _default(self._loader.kernel(ref), problem)
        except Exception:  # a declaration that is not where it was said to be
            return False
        return any(made.features == call.features for made in self._made(ref, problem, config))

    def _made(
        self, ref: KernelRef, problem: Problem, config: Config, given: Arrays | None = None
    ) -> list[PallasCall]:
        """``given``: of these arrays; what is no dimension, as the pages of a cache, is theirs."""
        import jax

        key = ref, problem, config, given
        if key not in self._built:
            kernel, calls = self._loader.kernel(ref), ModelCalls()
            with suppress(Exception):  # what a declaration refuses is no match
                arrays = [
                    jax.ShapeDtypeStruct(*array) for array in given or _inputs(kernel, problem)
                ]
                closed = jax.make_jaxpr(kernel.build(problem, config))(*arrays)
                calls.walk(closed, 1, counted=False)
            self._built[key] = list(calls.runs_by_call)
        return self._built[key]


def _could_be(problem: Problem, config: Config, made: PallasCall, call: PallasCall) -> bool:
    """Whether a call is what ``config`` makes of the problem, in another config: a number of an
    option that stands in the name, as that of a window, is the same."""
    options = {str(value) for _, value in problem.options if type(value) is int}
    named = options & made.numbers - {str(size) for _, size in config.axes}
    return made.features == call.features and named <= call.numbers


def _problems(kernel: Kernel, call: PallasCall, given: Arrays | None) -> Iterator[Problem]:
    """Problems whose inputs are those, as the declaration says; or are among the operands, in their
    order: where each dimension stands is read from the inputs of a problem whose sizes are primes.
    """
    primes = dict(zip(kernel.dims, _PRIMES, strict=False))
    choices = [dict.fromkeys((option.default, *option.choices)) for option in kernel.options]
    sizes_of: dict[Any, list[tuple[int, ...]]] = {}  # few options change what the inputs are
    for values in product(*choices):
        options = tuple(zip((option.name for option in kernel.options), values, strict=True))
        for dtype in kernel.dtypes:
            probe = Problem(dims=tuple(primes.items()), dtype=dtype, options=options)
            with suppress(Exception):
                if given is not None and kernel.sizes is not None:
                    problem = probe.with_dims(**kernel.sizes(*(shape for shape, _ in given)))
                    is_of = _kinds(_inputs(kernel, problem)) == _kinds(given)
                    if is_of and not (kernel.check and kernel.check(problem)):
                        yield problem
                    continue
                arrays = tuple(_arrays(kernel, probe))
                if arrays not in sizes_of:
                    sizes_of[arrays] = _whole_sizes(arrays, call.operands, primes)
                for sizes in sizes_of[arrays]:
                    problem = probe.with_dims(**dict(zip(primes, sizes, strict=True)))
                    if not (kernel.check and kernel.check(problem)):
                        yield problem


def _arrays(kernel: Kernel, probe: Problem) -> list[tuple[tuple[int, ...], str]]:
    """Its inputs; and its results, where only they show a dimension: group sizes are made into
    scalars ahead of the call."""
    import jax

    inputs = _inputs(kernel, probe)
    shown = {size for shape, dtype in inputs if "float" in dtype for size in shape}
    if kernel.reference is None or shown.issuperset(size for _, size in probe.dims):
        return inputs
    given = [jax.ShapeDtypeStruct(*array) for array in inputs]
    results = jax.tree_util.tree_leaves(jax.eval_shape(kernel.reference(probe), *given))
    return inputs + [(tuple(result.shape), str(result.dtype)) for result in results]


def _inputs(kernel: Kernel, problem: Problem) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(array.shape), str(array.dtype)) for array in kernel.inputs(problem)]


def _kinds(arrays: Iterable[tuple[tuple[int, ...], str]]) -> list[tuple[int, str]]:
    return [(len(shape), dtype) for shape, dtype in arrays]


def _whole_sizes(
    arrays: Sequence[tuple[tuple[int, ...], str]],
    operands: Sequence[BlockedArray],
    primes: Mapping[str, int],
) -> list[tuple[int, ...]]:
    """Of all dimensions, in their order: once each."""
    whole = [known for known in _sizes(arrays, operands, primes, {}) if len(known) == len(primes)]
    return list(dict.fromkeys(tuple(known[name] for name in primes) for known in whole))


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


def _tested(problems: Sequence[Problem]) -> list[Problem]:
    """The first problem, and those that differ from it in one option; of an option with many sizes,
    the first of them."""
    base, *others = problems
    seen, tested = Counter[str](), [base]
    for problem in others:
        changed = set(problem.options) - set(base.options)
        for name, value in changed if len(changed) == 1 else ():
            seen[name] += 1
            if seen[name] == 1 or not isinstance(value, int):
                tested.append(problem)
    return tested


def _expected(
    problem: Problem, base: Problem, features: Mapping[Problem, list[Counter[Any]]]
) -> list[Counter[Any]]:
    """Of each call of a problem: that of ``base``, with what each of its options changes."""
    expected = [Counter(of_call) for of_call in features[base]]
    for name, value in set(problem.options) - set(base.options):
        exact = base.with_options(**{name: value})
        others = (tested for tested in features if tested.option(name) != base.option(name))
        alone = features.get(exact if exact in features else next(others, base), [])
        if len(alone) != len(expected):  # it cannot be alone
            continue
        for total, before, after in zip(expected, features[base], alone, strict=True):
            total.update(after)
            total.subtract(before)
    return expected


def _default(kernel: Kernel, problem: Problem, chip: Chip | None = None) -> Config:
    axes = kernel.default_axes(problem, chip and chip.value)
    return make_config(axes, grid_order=kernel.grid)


def _values_by_likelihood(
    axis: Axis, problem: Problem, values: Sequence[Any], sizes: Set[int], beyond: Iterable[int]
) -> list[Any]:
    """The values that the sizes of the blocks show first, or alone where the axis cuts."""
    shown: list[Any] = [value for value in values if type(value) is int and value in sizes]
    rest = [value for value in values if value not in shown]
    shown += [size for size in beyond if axis.dim and size > problem[axis.dim]]
    return shown if shown and axis.dim else [*shown, *rest]


def _configs(
    kernel: Kernel, problem: Problem, call: PallasCall, chip: Chip | None = None
) -> Iterator[Config]:
    """The defaults, then those with the sizes of the call's blocks; axes that cut nothing change
    last."""
    for where in dict.fromkeys((chip, None)):
        with suppress(Exception):  # of another chip
            yield _default(kernel, problem, where)
    cuts = [pair for o in call.operands for pair in zip(o.block, o.shape, strict=True)]
    sizes = {size for size, _ in cuts}
    beyond = sorted({size for size, extent in cuts if size > extent})  # of the whole dimension
    ordered = sorted(kernel.axes, key=lambda axis: axis.dim is not None)
    columns = []
    for axis in ordered:
        values = list(axis.choices(problem)) or [_default(kernel, problem)[axis.name]]
        columns.append(_values_by_likelihood(axis, problem, values, sizes, beyond))
    for chosen in product(*columns):
        of_axis = dict(zip((axis.name for axis in ordered), chosen, strict=True))
        axes = {axis.name: of_axis[axis.name] for axis in kernel.axes}
        yield make_config(axes, grid_order=kernel.grid)
