"""The small problems that a config is run on: they keep what can go wrong."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import lcm, prod

from autotune.compiling.child.verify.coverage import Coverage
from autotune.declaring.kernel import Kernel
from autotune.domain.problem import Config, Problem

BLOCK_COUNTS = (2, 3)
"""Blocks on every axis that has as many. Two show what crosses a block, three what is right for
one count only and what is lost between the first and the last."""


SHORT = 256
"""Of a dimension that no axis cuts and no ``reduced`` makes small: whole tiles on every chip."""

_MOST_TIMES = 16
"""As many blocks, for a kernel that can do nothing with fewer: one that divides by a constant."""

_FEW = 2
"""Of one that only counts such tiles (sequences, heads, groups)."""

_FEWEST = (3, 4)
"""Of those that a declaration makes smaller than can be walked from the first to the last."""

Accepts = Callable[[Problem], bool]


def reduced_problems(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    coverage: Coverage,
    *,
    shorten: bool = False,
    together: bool = False,
) -> list[Problem]:
    """The problem with :data:`BLOCK_COUNTS` blocks on each axis, without doubles.

    A small problem that the kernel's ``check`` refuses, or its ``constraint`` with this config, or
    that cannot be built with it, or that walks fewer blocks than the real one and than were asked
    for (``coverage``), is made longer. ``shorten``: other long dimensions are made :data:`SHORT`,
    or two where they only count, or as much longer as the kernel wants them, where it has no
    ``reduced``. ``together``: all dimensions are, and ``keeps_lengths`` is true of all problems.
    """
    blocks = _blocks_by_dim(kernel, problem, config)

    def is_allowed(candidate: Problem) -> bool:
        is_legal = kernel.check is None or kernel.check(candidate) is None
        is_legal = is_legal and (not together or keeps_lengths(candidate, problem))
        return is_legal and (
            kernel.constraint is None or kernel.constraint(candidate, config) is None
        )

    def accepting(count: int) -> Accepts:
        return lambda candidate: is_allowed(candidate) and coverage.covers(candidate, count)

    crosses_all = accepting(max(BLOCK_COUNTS))
    small = problem if together else _as_declared(kernel, problem, crosses_all)
    shortened = partial(_shortened, kernel, problem, blocks, coverage)
    if shorten and small is problem:
        free = [dim for dim, _ in problem.dims if dim not in blocks]
        alike = [dims for dims in _alike(problem, free) if len(dims) > 1]
        small = shortened([*alike, *([dim] for dim in free)], crosses_all)
    devices = prod(kernel.mesh_axes(small).values())  # each has its own part of some dimension
    placed = _placed(problem)
    groups = [*_alike(problem, placed), *([d] for d, _ in problem.dims if d not in placed)]
    problems = [
        shortened(groups, accepting(count), devices * count)
        if together
        else _with_blocks(blocks, small, problem, accepting(count), devices * count)
        for count in BLOCK_COUNTS
    ]
    return list(dict.fromkeys(problems))


def _as_declared(kernel: Kernel, problem: Problem, accepts: Accepts) -> Problem:
    """What the declaration's ``reduced`` makes small, as small as it says or, where that leaves too
    few of them (heads, sequences) to walk from one to the next, a few, or with one dimension two,
    four … times as long, of which a block of this config holds more; else the problem itself."""
    if kernel.reduced is None:
        return problem
    small = kernel.reduced(problem)
    for least in (1, *_FEWEST):
        dims = {d: max(size, min(least, problem[d])) for d, size in small.dims}
        if accepts(small.with_dims(**dims)):
            return small.with_dims(**dims)
    longer = (
        small.with_dims(**{d: min(size, small[d] << n)})
        for d, size in problem.dims
        for n in range(1, (-(-size // small[d]) - 1).bit_length() + 1)
    )
    return next(filter(accepts, longer), problem)


def keeps_lengths(small: Problem, real: Problem) -> bool:
    """Whether what is as long as something else in a call is so in a small problem. Where
    dimensions have no names, only places (``x.1``, ``y.0``), nothing else says which of them are
    one, and a kernel need not check it. Numbers that a call gives stay as they are."""
    pairs = {(real[dim], small[dim]) for dim in _placed(real)}
    pairs |= {(value, value) for _, value in real.options if type(value) is int}
    return len(pairs) == len({length for length, _ in pairs})


def _placed(problem: Problem) -> list[str]:
    return [dim for dim, _ in problem.dims if dim.rpartition(".")[2].isdigit()]


def _alike(problem: Problem, dims: Sequence[str]) -> list[list[str]]:
    """Those of them that are as long as each other."""
    sizes = dict.fromkeys(problem[dim] for dim in dims)
    return [[dim for dim in dims if problem[dim] == size] for size in sizes]


def _shortened(
    kernel: Kernel,
    problem: Problem,
    blocks: Mapping[str, Sequence[int]],
    coverage: Coverage,
    groups: Iterable[Sequence[str]],
    accepts: Accepts,
    count: int = max(BLOCK_COUNTS),
) -> Problem:
    """The dimensions of each group are made as short as each other, where the kernel allows it."""
    for dims in groups:
        size, cut = problem[dims[0]], [block for dim in dims for block in blocks.get(dim, ())]
        lengths = set.intersection(*(_lengths(kernel, problem, d, coverage) for d in dims))
        lengths |= {_extent(size, cut, count)} if cut else set()
        likely = (problem.with_dims(**dict.fromkeys(dims, n)) for n in sorted(lengths))
        problem = next(filter(accepts, likely), problem)
    return problem


def _lengths(kernel: Kernel, problem: Problem, dim: str, coverage: Coverage) -> set[int]:
    """Shorter lengths of a dimension that are worth trying: those that divide its real size, so
    that nothing is ragged that was not, and whole blocks of what it is cut into, with the real
    rest and halo."""
    size = problem[dim]
    counts = _only_counts(kernel, problem, dim)
    least = _FEW if counts else SHORT
    lengths = {least << n for n in range(size.bit_length()) if size % (least << n) == 0}
    cuts = coverage.cuts_near(size)
    cut = {_extent(whole, [block], max(BLOCK_COUNTS)) + size - whole for block, whole in cuts}
    return {length for length in lengths | cut if length < size}


def _only_counts(kernel: Kernel, problem: Problem, dim: str) -> bool:
    """Whether arrays of numbers have it, and all before their last two dimensions, which are tiles.
    Integers (lengths, page tables) are as long as there is something to say it of."""
    fewer = problem.with_dims(**{dim: max(1, problem[dim] // 2)})
    pairs = [
        (array.shape, other.shape)
        for array, other in zip(kernel.inputs(problem), kernel.inputs(fewer), strict=True)
        if not array.dtype.startswith("int")
    ]
    is_there = any(shape != other for shape, other in pairs)
    return is_there and all(shape[-2:] == other[-2:] for shape, other in pairs)


def _with_blocks(
    blocks: Mapping[str, Sequence[int]],
    small: Problem,
    problem: Problem,
    accepts: Accepts,
    count: int,
) -> Problem:
    """``count`` blocks on each axis that has as many, the last one ragged where the real one is.

    Where the kernel refuses that, there is one more; or (causal attention needs as many keys as
    queries) one dimension gets as long as the longest; failing that, there are up to
    :data:`_MOST_TIMES` as many, or dimensions keep their full size.
    """
    doubled = [count << n for n in range(1, _MOST_TIMES.bit_length())]
    reduced, more, *longer_ones = (
        small.with_dims(**{d: _extent(problem[d], blocks[d], n) for d in blocks})
        for n in (count, count + 1, *doubled)
    )
    for likely in (reduced, *_followed(reduced, blocks, problem), more):
        if accepts(likely):
            return likely
    longest = max((reduced[dim] for dim in blocks), default=0)
    for dim in blocks:
        enough = -(-longest // max(blocks[dim]))
        longer = reduced.with_dims(**{dim: _extent(problem[dim], blocks[dim], enough)})
        for likely in (longer, *_followed(longer, blocks, problem)):
            if accepts(likely):
                return likely
    for likely in longer_ones:
        if accepts(likely):
            return likely
    for dim in blocks:
        reduced = reduced.with_dims(**{dim: problem[dim]})
        if accepts(reduced):
            break
    return reduced


def _followed(
    candidate: Problem, blocks: Mapping[str, Sequence[int]], problem: Problem
) -> Iterator[Problem]:
    """Dimensions that no axis cuts, and that are as long as one that is cut, made as short: values
    have as many rows as keys, whatever their dimensions are called."""
    alike = {
        name: [dim for dim in blocks if dim in sizes and sizes[dim] == size]
        for sizes in [dict(problem.dims)]
        for name, size in problem.dims
        if name not in blocks
    }
    for place in (-1, 0):
        yield candidate.with_dims(
            **{n: candidate[dims[place]] for n, dims in alike.items() if dims}
        )


def _blocks_by_dim(kernel: Kernel, problem: Problem, config: Config) -> dict[str, list[int]]:
    """The block sizes that cut each dimension, in its elements."""
    blocks: dict[str, list[int]] = {}
    values = dict(config.axes)
    for axis in kernel.axes:
        size = values[axis.name]
        dim = axis.dim or axis.longest
        if dim is not None and isinstance(size, int):
            blocks.setdefault(dim, []).append(axis.elements(size, problem))
    return blocks


def _extent(extent: int, blocks: Iterable[int], count: int) -> int:
    """Whole blocks of every size where all divide the extent; else the largest block decides."""
    sizes = list(blocks)
    if all(extent % size == 0 for size in sizes):
        step, most = lcm(*sizes), max(sizes)
        return min(extent, -(-count * most // step) * step)
    return min(extent, max(size * (count - 1) + (extent % size or size) for size in sizes))
