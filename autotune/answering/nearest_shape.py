"""Which record of another shape answers a question: the closest that can be shown to work there, by
arithmetic alone."""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from math import log2, prod
from typing import Any

from autotune.domain.problem import ARBITRARY, Config, Problem
from autotune.domain.record import Record

Cuts = tuple[tuple[str, str], ...]
BySize = Sequence[tuple[float, tuple[tuple[str, int], ...], Record]]
"""Records with the size of their problems, the smallest first."""

_MOST_LOOKED_AT = 500  # records, the closest in size, some microseconds each
_ROUNDING = 1e-6
_ALIGNED = 128  # elements: as part of a dimension legal for every dtype, wherever it stands


def size_of(problem: Problem) -> float:
    return sum(log2(size) for _, size in problem.dims)


def by_size(records: Iterable[Record]) -> BySize:
    """Ready to be asked by ``nearest``."""
    entries = ((record.key.problem, record) for record in records)
    sized = ((size_of(problem), tuple(sorted(problem.dims)), record) for problem, record in entries)
    return sorted(sized, key=lambda entry: entry[:2])


def nearest(
    asked: Problem, entries: BySize, cuts: Cuts, broken: Collection[Config]
) -> dict[bool, tuple[Record, Config]]:
    """The safe record of another shape that is closest, among those that are closest in size: a
    distance is never less than the difference of the sizes. With its config; the key says whether
    that has other blocks than the record's. ``broken``: configs that do not work there."""
    size, best = size_of(asked), dict[bool, tuple[Record, Config]]()
    least: dict[bool, Any] = dict.fromkeys((False, True), (float("inf"), ()))
    for other, dims, record in islice(_outward(entries, size), _MOST_LOOKED_AT):
        if abs(other - size) > least[False][0] + _ROUNDING:
            break
        # The sum of |log2 ratio| over the dimensions.
        sizes = dict(record.key.problem.dims)
        ratios = (log2(sizes[name] / size) for name, size in sorted(asked.dims))
        gap: tuple[float, Any] = (round(sum(map(abs, ratios)), 9), dims)
        if not gap[0] or gap >= least[False] or record.config in broken:
            continue
        config = safe_config(record, asked, cuts)
        if config and config not in broken and gap < least[is_fitted := config != record.config]:
            best[is_fitted], least[is_fitted] = (record, config), gap
    return best


def _outward(entries: BySize, size: float) -> Iterator[tuple[float, Any, Record]]:
    """From the one that is closest in size to the farthest."""
    middle = bisect(entries, size, key=lambda entry: entry[0])
    smaller = map(entries.__getitem__, range(middle - 1, -1, -1))
    larger = map(entries.__getitem__, range(middle, len(entries)))
    return merge(smaller, larger, key=lambda entry: abs(entry[0] - size))


def safe_config(record: Record, problem: Problem, cuts: Cuts) -> Config | None:
    """What can be shown to be legal and feasible for another shape of the same kernel, dtype,
    options, chip and toolchain: the config of a record, or with other blocks where that took a
    dimension whole. None where nothing can.

    Legal: a dimension that no axis cuts must be the same. A block must not exceed the dimension,
    and must divide it where it did. One that was the whole may be misaligned as a part, and with a
    second block its axis may no longer be parallel, nor stand where it does in the grid: a smaller
    dimension is taken whole again; a larger one is cut where the default cuts it, too, with the
    default's order and nothing parallel.

    Feasible: the blocks are no larger, so the buffers of what is cut are not. What a kernel keeps
    whole grows with the dimensions that grew, at most by their ratios: so much more than was used
    must be allowed.
    """
    tuned, asked = dict(record.key.problem.dims), dict(problem.dims)
    changed = {name for name, size in asked.items() if size != tuned.get(name)}
    if not changed <= {dim for _, dim in cuts} & tuned.keys():
        return None
    growth = prod(-(-asked[name] // tuned[name]) for name in changed)  # tiles are padded
    estimate = record.estimate
    if growth > 1 and estimate.vmem_used_bytes * growth > estimate.vmem_allowed_bytes:
        return None
    blocks, is_split = dict(record.config.axes), False
    for axis, dim in cuts:
        if dim in changed:
            block = _block(blocks.get(axis), tuned[dim], asked[dim])
            if block is None:
                return None
            is_split |= block == tuned[dim] < asked[dim]
            blocks[axis] = block
    config = record.config.replace(axes=tuple(blocks.items()))
    return _cut_as_default(record, config, asked, cuts) if is_split else config


def _block(block: Any, before: int, asked: int) -> int | None:
    """In the place of this one, which cut a dimension that was so long ``before``."""
    if type(block) is not int or not 0 < block <= before:
        return None
    if block == before > asked:
        return asked
    is_part = block < before or block % _ALIGNED == 0
    divides = before % block != 0 or asked % block == 0
    return block if block <= asked and divides and is_part else None


def _cut_as_default(
    record: Record, config: Config, asked: Mapping[str, int], cuts: Cuts
) -> Config | None:
    """None where the default takes whole what is cut: nobody has seen that order of the grid."""
    if record.default.config is None or record.default.time_us is None:
        return None
    default, tuned = record.default.config, dict(record.key.problem.dims)
    blocks, seen = dict(config.axes), dict(default.axes)
    for axis, dim in cuts:
        block = seen.get(axis)
        if blocks.get(axis) != asked[dim] and not (type(block) is int and 0 < block < tuned[dim]):
            return None
    semantics = (ARBITRARY,) * len(config.dimension_semantics)
    return config.replace(grid_order=default.grid_order, dimension_semantics=semantics)
