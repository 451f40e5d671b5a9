"""The small problems that a config is run on: they keep what can go wrong."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import lcm, prod

from autotune.declaring.kernel import Kernel
from autotune.domain.config import Config
from autotune.domain.problem import Problem

BLOCK_COUNTS = (2, 3)
"""Blocks on every axis that has as many. Two show what crosses a block, three what is right for
one count only and what is lost between the first and the last."""


SHORT = 256
"""Of a dimension that no axis cuts and no ``reduced`` makes small: whole tiles on every chip."""

_MOST_TIMES = 16
"""As many blocks, for a kernel that can do nothing with fewer: one that divides by a constant."""

_FEW = 2
"""Of one that only counts such tiles (sequences, heads, groups)."""

Accepts = Callable[[Problem], bool]


def reduced_problems(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    can_build: Accepts = lambda _: True,
    *,
    shorten: bool = False,
) -> list[Problem]:
    """The problem with :data:`BLOCK_COUNTS` blocks on each axis, without doubles.

    A small problem that the kernel's ``check`` refuses, or its ``constraint`` with this config, or
    that ``can_build`` says cannot be built with it, is made longer. ``shorten``: other long
    dimensions are made :data:`SHORT`, or two where they only count, or as much longer as the kernel
    wants them, where it has no ``reduced``.
    """
    small = kernel.reduced(problem) if kernel.reduced else problem
    blocks = _blocks_by_dim(kernel, config)

    def accepts(candidate: Problem) -> bool:
        is_legal = kernel.check is None or kernel.check(candidate) is None
        is_allowed = kernel.constraint is None or kernel.constraint(candidate, config) is None
        return is_legal and is_allowed and can_build(candidate)

    if shorten and not kernel.reduced:
        small = _shortened(kernel, small, blocks, accepts)
    devices = prod(kernel.mesh_axes(small).values())  # each has its own part of some dimension
    counts = [devices * count for count in BLOCK_COUNTS]
    problems = [_with_blocks(blocks, small, problem, accepts, count) for count in counts]
    return list(dict.fromkeys(problems))


def _shortened(
    kernel: Kernel, problem: Problem, blocks: Mapping[str, Sequence[int]], accepts: Accepts
) -> Problem:
    """One dimension after the other; each divides its real size, so that nothing is ragged that was
    not."""
    for dim, size in problem.dims:
        if dim not in blocks:
            least = _FEW if _only_counts(kernel, problem, dim) else SHORT
            lengths = [least << n for n in range(size.bit_length()) if size % (least << n) == 0]
            likely = (problem.with_dims(**{dim: length}) for length in lengths)
            problem = next(filter(accepts, likely), problem)
    return problem


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


def _blocks_by_dim(kernel: Kernel, config: Config) -> dict[str, list[int]]:
    """The block sizes that cut each dimension."""
    blocks: dict[str, list[int]] = {}
    values = dict(config.axes)
    for axis in kernel.axes:
        size = values[axis.name]
        if axis.dim is not None and isinstance(size, int):
            blocks.setdefault(axis.dim, []).append(size * axis.unit)
    return blocks


def _extent(extent: int, blocks: Iterable[int], count: int) -> int:
    """Whole blocks of every size where all divide the extent; else the largest block decides."""
    sizes = list(blocks)
    if all(extent % size == 0 for size in sizes):
        step, most = lcm(*sizes), max(sizes)
        return min(extent, -(-count * most // step) * step)
    return min(extent, max(size * (count - 1) + (extent % size or size) for size in sizes))
