"""Blocks for a shape that nobody tuned: the arithmetic of a ``ShapeRule``.

Functions of plain values that import the standard library alone: they run in the service and in the
client, and ``autotune export --format rule`` writes them out as they are here.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import ceil, prod
from typing import Any

LANES = 128  # an array whose rows are not whole tiles costs more to move and to mask
NEAR = 1.1  # times the least of all that is legal: nothing slower is answered


def chosen(rule: Any, dims: Mapping[str, int]) -> tuple[dict[str, int], Any] | None:
    """The sizes that should be the fastest, and the compiled blocks that show that they are legal
    and within VMEM. None outside of the range that was seen, and where nothing is shown that is
    ``NEAR`` to the fastest of all legal ones."""
    least, most = dict(rule.least), dict(rule.most)
    if dims.keys() != least.keys():
        return None
    if not all(least[name] <= size <= most[name] for name, size in dims.items()):
        return None
    timed = [(predicted_us(rule, dims, sizes), sizes) for sizes in legal_sizes(rule, dims)]
    timed.sort(key=lambda pair: pair[0])
    for time_us, sizes in timed:
        if time_us > timed[0][0] * NEAR:
            break
        shown = proof(rule, dims, sizes)
        if shown is not None:
            return sizes, shown
    return None


def legal_sizes(rule: Any, dims: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Each axis has a size that was compiled and cuts its dimension, or is the whole of it; what
    always divided something does."""
    choices = []
    for axis in rule.axes:
        whole = dims.get(axis.dim, 0)
        own = [size for size in axis.sizes if not axis.dim or size < whole]
        if axis.whole and whole <= axis.most and whole % axis.whole == 0:
            own.append(whole)
        choices.append(own)
    for values in product(*choices):
        sizes = {axis.name: value for axis, value in zip(rule.axes, values, strict=True)}
        both = {**dims, **sizes}
        if all(both[other] % sizes[axis] == 0 for axis, other in rule.divides):
            yield sizes


def proof(rule: Any, dims: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
    """Compiled blocks that are nowhere smaller, with more than one block wherever these have: so
    order, semantics and buffers are theirs. Where a dimension that VMEM grows with is longer now,
    all of VMEM is taken to grow with it. None where there are none."""
    cut = {axis.dim for axis in rule.axes if axis.dim}
    for one in rule.compiled:
        own, before = dict(one.config.axes), dict(one.dims)
        grown = prod(ceil(size / before[name]) for name, size in dims.items() if name in rule.grows)
        if (
            all(size <= own[name] for name, size in sizes.items())
            and all(
                sizes[axis.name] >= dims[axis.dim] or own[axis.name] < before[axis.dim]
                for axis in rule.axes
                if axis.dim
            )
            and all(size <= before[name] for name, size in dims.items() if name not in cut)
            and all(before[name] > 1 or dims[name] == 1 for name in rule.runs)
            and (grown <= 1 or one.vmem_used_bytes * grown <= one.vmem_allowed_bytes)
        ):
            return one
    return None


def predicted_us(rule: Any, dims: Mapping[str, int], sizes: Mapping[str, int]) -> float:
    """The sum of the costs of a call, as work and transfers go with products of sizes."""
    both, steps = {**dims, **sizes}, grid_steps(rule, dims, sizes)
    return sum(term_us(one, both, steps) for one in rule.costs)


def term_us(term: Any, both: Mapping[str, int], steps: int) -> float:
    """One of the costs; ``both``: dimensions and sizes."""
    if term.axis:
        if both[term.dim] % both[term.axis] == 0:
            return 0.0
    elif term.dim and (both[term.dim] % LANES == 0) != term.aligned:
        return 0.0
    one_us: float = term.us * prod(both[name] for name in term.of)
    return one_us * steps if term.each_step else one_us


def grid_steps(rule: Any, dims: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Blocks of all that is cut, and all of what only the grid runs over."""
    cut = [ceil(dims[axis.dim] / sizes[axis.name]) for axis in rule.axes if axis.dim]
    return prod(cut) * prod(dims[name] for name in rule.runs)
