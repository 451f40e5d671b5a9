"""Blocks for a shape that nobody tuned: the arithmetic of a ``ShapeRule``.

Plain values and the standard library alone: it runs in the service and in the client.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, prod
from operator import or_
from typing import Any

LANES = 128  # an array whose rows are not whole tiles costs more to move and to mask
TILE = 256  # what the widest matrix unit takes at once
NEAR = 1.01  # times the least of all that seems to fit: nothing slower is answered
ODD = 0.1  # of a call: what columns take more for being no whole tiles is not known well enough
FAR = 2  # times as long, or as short, as any problem with the same of what nothing cuts

# A question takes less than half a millisecond so: one call asks a thousand.
MOST_SIZES = 100  # combinations of those of all axes
MOST_AXES = 6
MOST_COMPILED = 200
MOST_COSTS = 150
MOST_MOVED = 6

_Costs = Sequence[Sequence[float]]
_Partial = tuple[tuple[int, ...], int, tuple[int, ...], _Costs]
"""Sizes of the first axes, what shows them, the counts of their blocks, and the costs."""

_Timed = tuple[float, int, tuple[int, ...]]
"""What legal blocks cost, what shows them, and their sizes."""


class Chooser:
    """A rule with lookup tables. A set of compiled blocks is a bit mask: bit ``i`` stands for
    ``rule.compiled[i]``."""

    def __init__(self, rule: Any) -> None:
        """Raises ``ValueError`` for a rule that is too large, or names an unknown axis."""
        self._rule = rule
        self._names = [axis.name for axis in rule.axes]
        self._least, self._most = dict(rule.least), dict(rule.most)
        self._before = [dict(blocks.dims) for blocks in rule.compiled]
        self._allowed = max((blocks.vmem_allowed_bytes for blocks in rule.compiled), default=0)
        if not is_small(rule) or not _names_of(rule) <= {"", *self._names, *self._least}:
            raise ValueError("the rule offers too many sizes, or rests on too much")
        self._axes = [_AxisTable(rule, axis, self._before) for axis in rule.axes]
        self._sides = [self._names.index(name) for name in rule.diagonal]
        self._hbm = [
            (term, *(list(map(self._names.index, names)) for names in (term.again, term.where)))
            for term in rule.hbm
        ]
        cut = {axis.dim for axis in rule.axes}
        self._same = {n: _masks(n, self._before) for n in self._least if n not in cut}
        self._alike = {
            tuple(dict(seen.uncut)[name] for name in self._same): {
                name: (least, dict(seen.most)[name]) for name, least in seen.least
            }
            for seen in rule.seen
        }

    def choose(self, dims: Mapping[str, int]) -> tuple[dict[str, int], Any] | None:
        """The fastest sizes that are known to be safe, and the compiled blocks that prove it.
        Compiled blocks prove sizes to be legal and within VMEM when the uncut dimensions are the
        same, no size is larger than theirs, and each axis that they cut is cut: grid order,
        semantics and buffers are then theirs. None outside of the range that the rule was made
        from, and when sizes without a proof, that seem to fit VMEM, are faster by ``NEAR``."""
        timed = self._timed(dims)
        time, shown, sizes = min(
            (candidate for candidate in timed if candidate[1]), default=(0.0, 0, ())
        )
        if not shown or self._fitting(
            dims, [candidate for candidate in timed if candidate[0] < time / NEAR]
        ):
            return None
        first = (shown & -shown).bit_length() - 1
        return dict(zip(self._names, sizes, strict=True)), self._rule.compiled[first]

    def unshown(self, dims: Mapping[str, int]) -> tuple[dict[str, int], Any] | None:
        """Sizes that should be faster than ``choose`` and are not known to be safe; with them
        compiled blocks whose VMEM limit they seem to keep. None where there are no such sizes."""
        timed = self._timed(dims)
        time = min((time for time, shown, _ in timed if shown), default=float("inf"))
        fitting = self._fitting(dims, [candidate for candidate in timed if candidate[0] < time])
        if not fitting:
            return None
        sizes = dict(zip(self._names, min(fitting)[2], strict=True))
        need = self._vmem_bytes({**dims, **sizes})
        return sizes, next(c for c in self._rule.compiled if c.vmem_allowed_bytes >= need)

    def _timed(self, dims: Mapping[str, int]) -> list[_Timed]:
        """All legal sizes, with the mask of what proves each to be safe; it may be empty."""
        shown = self._shown(dims)
        return self._by_costs(dims, shown) if shown else []

    def _fitting(self, dims: Mapping[str, int], timed: Iterable[_Timed]) -> list[_Timed]:
        """The candidates that should fit VMEM."""
        return [
            candidate
            for candidate in timed
            for sizes in [dict(zip(self._names, candidate[2], strict=True))]
            if self._vmem_bytes({**dims, **sizes}) <= self._allowed
        ]

    def _vmem_bytes(self, both: Mapping[str, int]) -> float:
        total: float = sum(
            term.bytes_each * prod(both[name] for name in term.of) for term in self._rule.vmem
        )
        return total

    def _by_costs(self, dims: Mapping[str, int], shown: int) -> list[_Timed]:
        """All legal sizes with the cost of each, built up axis by axis."""
        runs = prod(dims[name] for name in self._rule.runs)
        start: _Partial = ((), shown, (), self._costs(dims))
        partial = [start]
        for axis in self._axes:
            options = axis.options(dims)
            partial = [
                ((*sizes, size), shown & mask, (*counts, count), _bound(costs, size, count, share))
                for sizes, shown, counts, costs in partial
                for size, mask, count, share in options
                if axis.divides(sizes, size)
            ]
        moved = [(term.us * prod(dims[n] for n in term.of), *at) for term, *at in self._hbm]
        shares: dict[tuple[int, ...], tuple[float, ...]] = {}
        timed: list[_Timed] = []
        for sizes, shown, counts, (general, *others) in partial:
            sides = tuple(sizes[place] for place in self._sides)
            if sides not in shares:
                shares[sides] = done_shares(self._rule, dims, sides)
            steps = runs * prod(counts)
            each = [steps * share for share in shares[sides]]
            parts = [us * cost[0] if cost else 0.0 for us, cost in zip(each, others, strict=True)]
            us = each[0] * general[0] + sum(parts) + general[1]
            if moved:
                waits = [
                    us * cost[2] if cost else 0.0 for us, cost in zip(each, others, strict=True)
                ]
                us = together_us(self._rule, us, _moved_us(moved, counts), each[0])
                us += each[0] * general[2] + sum(waits) + general[3]
                parts[-1] += waits[-1]
            timed.append((us, shown if parts[-1] <= ODD * us else 0, sizes))
        return timed

    def _shown(self, dims: Mapping[str, int]) -> int:
        """The mask of the compiled blocks that can prove anything for this shape.

        They have the same uncut dimensions, and no dimension is more than ``FAR`` times as long,
        or as short, as in problems of that kind. Where dimensions in ``grows`` are longer now, all
        of VMEM is taken to grow with them, and must still be allowed."""
        least, most = self._least, self._most
        if dims.keys() != least.keys() or any(
            not least[name] <= size <= most[name] for name, size in dims.items()
        ):
            return 0
        shown = (1 << len(self._before)) - 1
        for name, masks in self._same.items():
            shown &= masks.get(dims[name], 0)
        alike = self._alike.get(tuple(dims[name] for name in self._same), {})
        if any(
            dims[name] * FAR < least or most * FAR < dims[name]
            for name, (least, most) in alike.items()
        ):
            return 0
        for number, blocks in enumerate(self._rule.compiled if shown and self._rule.grows else ()):
            before = self._before[number]
            grown = prod(ceil(dims[name] / before[name]) for name in self._rule.grows)
            if grown > 1 and blocks.vmem_used_bytes * grown > blocks.vmem_allowed_bytes:
                shown &= ~(1 << number)
        return shown

    def _costs(self, dims: Mapping[str, int]) -> _Costs:
        """The costs for this shape, as lists to be reduced axis by axis (``_bound``).

        The first four lists: costs by sizes; by sizes in whole tiles; by the area that a diagonal
        leaves; by the part of it that is no whole tiles. Then three lists for each axis: added for
        each block, added when there are several blocks, and added by the ``share`` of ``options``.
        The place of a cost in a list says which sizes multiply it: the first axis is the highest
        bit. The lowest bit is 0 for a cost of each step, 1 for a cost of the call."""
        count, width = len(self._names), 4 if self._hbm else 2
        costs = [[0.0] * (width << count) for _ in range(3 * count + 4)]
        runs = prod(dims[name] for name in self._rule.runs)
        for cost in self._rule.costs:
            if not cost.axis and cost.dim and (dims[cost.dim] % LANES == 0) != cost.aligned:
                continue
            place, us = (width - 2) * cost.waits + (not cost.each_step), cost.us
            for name in cost.of:
                if name in dims:
                    us *= dims[name]
                else:
                    place |= (width << count - 1) >> self._names.index(name)
            share = share_of(self._rule, cost)
            kind = share + 1 if share else int(cost.tiles)
            if cost.each_block:
                kind, us = 3 * self._names.index(cost.each_block) + 4, us * runs
            elif cost.axis:
                kind = 3 * self._names.index(cost.axis) + 6 - cost.cuts
            costs[kind][place] += us
        return [costs[0], *(listed if any(listed) else [] for listed in costs[1:])]


def _names_of(rule: Any) -> set[str]:
    """All axes and dimensions that a rule names."""
    costs = {name for term in rule.costs for name in (term.dim, term.axis, term.each_block)}
    terms = {name for term in (*rule.costs, *rule.vmem, *rule.hbm) for name in term.of}
    pairs = {name for pair in rule.divides for name in pair}
    return {*rule.grows, *rule.runs, *(axis.dim for axis in rule.axes), *costs, *terms, *pairs}


def _masks(name: str, before: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """For each size of a dimension, a mask of the compiled blocks that had it."""
    masks: dict[int, int] = {}
    for number, dims in enumerate(before):
        masks[dims[name]] = masks.get(dims[name], 0) | 1 << number
    return masks


class _AxisTable:
    """The sizes of an axis. ``_dims``: dimensions that each size must divide. ``_multiples`` and
    ``_divisors``: places of the earlier axes that it must divide, and that must divide it."""

    def __init__(self, rule: Any, axis: Any, before: Sequence[Mapping[str, int]]) -> None:
        compiled_sizes = [dict(blocks.config.axes)[axis.name] for blocks in rule.compiled]
        pairs = zip(compiled_sizes, before, strict=True)
        cutting = [not axis.dim or size < dims[axis.dim] for size, dims in pairs]
        names, dims = [other.name for other in rule.axes], dict(rule.least)
        earlier = {name: place for place, name in enumerate(names[: names.index(axis.name)])}
        of_it = [other for name, other in rule.divides if name == axis.name]
        by_it = [name for name, other in rule.divides if other == axis.name]
        self._axis, self._dims = axis, [name for name in of_it if name in dims]
        self._multiples = _places(of_it, earlier)
        self._divisors = _places(by_it, earlier)
        self._sizes = [
            (
                size,
                _mask(
                    is_cut and compiled >= size
                    for compiled, is_cut in zip(compiled_sizes, cutting, strict=True)
                ),
            )
            for size in axis.sizes
        ]
        largest_first = sorted(
            ((size, 1 << n) for n, size in enumerate(compiled_sizes)), reverse=True
        )
        self._largest = [-size for size, _ in largest_first]
        self._at_least = [0, *accumulate((bit for _, bit in largest_first), or_)]

    def options(self, dims: Mapping[str, int]) -> list[tuple[int, int, int, float]]:
        """Compiled sizes that cut their dimension, and the whole dimension: each with the mask of
        what proves it, the count of its blocks, and its share of the axis' third list of costs.

        The share is 1 where the last block hangs over, else 0; for an axis that cuts no dimension
        it is the inverse of the size."""
        axis = self._axis
        whole = dims[axis.dim] if axis.dim else 0
        offers = [
            (size, mask, ceil(whole / size) or 1, whole % size > 0 if whole else 1 / size)
            for size, mask in self._sizes
            if (not whole or size < whole) and all(dims[name] % size == 0 for name in self._dims)
        ]
        # larger compiled blocks prove the whole dimension, whether they cut theirs or not
        larger = self._at_least[bisect_left(self._largest, 1 - whole)]
        is_seen = axis.whole and whole % axis.whole == 0
        if (
            whole
            and (whole <= axis.most or (is_seen and larger))
            and all(dims[name] % whole == 0 for name in self._dims)
        ):
            offers.append((whole, larger if is_seen else 0, 1, 0.0))
        return offers

    def divides(self, earlier: Sequence[int], size: int) -> bool:
        """Whether sizes that divide each other in all that was compiled still do."""
        if not self._multiples and not self._divisors:
            return True
        return all(earlier[place] % size == 0 for place in self._multiples) and all(
            size % earlier[place] == 0 for place in self._divisors
        )


def _places(names: Iterable[str], earlier: Mapping[str, int]) -> list[int]:
    return [earlier[name] for name in names if name in earlier]


def is_small(rule: Any) -> bool:
    """Whether it may be asked while a model waits."""
    return (
        len(rule.costs) > 0  # older versions made rules without
        and offered(rule.axes) <= MOST_SIZES
        and len(rule.axes) <= MOST_AXES
        and len(rule.compiled) <= MOST_COMPILED
        and max(len(rule.costs), len(rule.vmem)) <= MOST_COSTS
        and len(rule.seen) <= MOST_COMPILED
        and len(rule.hbm) <= MOST_MOVED
        and all(size > 0 for axis in rule.axes for size in axis.sizes)
        and len(rule.diagonal) in (0, 2)
        and {*rule.diagonal} <= {axis.name for axis in rule.axes if axis.dim}
    )


def offered(axes: Iterable[Any]) -> int:
    """How many combinations of sizes there are at most."""
    return prod(len(axis.sizes) + (1 if axis.whole or axis.most else 0) for axis in axes)


def together_us(rule: Any, core_us: float, moved_us: float, steps: float) -> float:
    """The time of core work and HBM traffic that overlap: the longer of the two. Blocks are fetched
    one step ahead, so two steps take at least one step's work, traffic and read latency."""
    both_us: float = core_us + moved_us + steps * rule.latency_us
    return max(core_us, moved_us, both_us / 2)


def _moved_us(moved: Iterable[Sequence[Any]], counts: Sequence[int]) -> float:
    """The time of all HBM traffic at the peak rate."""
    total = 0.0
    for us, again, where in moved:
        for place in where:
            if counts[place] > 1:
                us *= prod([counts[other] for other in again])
                break
        total += us
    return total


def _bound(costs: _Costs, size: int, count: int, share: float) -> _Costs:
    """The costs with the first axis fixed to ``size``, which gives ``count`` blocks."""
    general, tiled, worked, odd, each, cutting, by_size, *others = costs
    for more, part in ((each, count), (cutting, count > 1), (by_size, share)):
        if more and part:
            general = [cost + part * us for cost, us in zip(general, more, strict=True)]
    tiled = tiled and _times(tiled, in_tiles(size))
    return (
        _times(general, size),
        tiled,
        *(listed and _times(listed, size) for listed in (worked, odd, *others)),
    )


def share_of(rule: Any, term: Any) -> int:
    """Which number of ``done_shares`` scales a cost of each step."""
    by_area = set(rule.diagonal) <= set(term.of) and not term.axis and not term.tiles
    return 1 + term.odd if rule.diagonal and term.each_step and by_area else 0


def done_shares(rule: Any, dims: Mapping[str, int], sides: Sequence[int]) -> tuple[float, ...]:
    """What a diagonal mask leaves of the grid: the share of steps that do anything, the share of
    the area that they compute, and the part of that in blocks of columns that are no whole tiles.

    Without a diagonal: 1, 1 and 0. A single block is compiled without what the mask hides.
    ``sides``: sizes of the axes of the diagonal."""
    if not rule.diagonal:
        return 1.0, 1.0, 0.0
    height, width = sides
    dim_of = {axis.name: axis.dim for axis in rule.axes}
    rows, columns = (dims[dim_of[name]] for name in rule.diagonal)
    down, across = ceil(rows / height), ceil(columns / width)
    if down == across == 1:
        short = min(rows, columns)
        part = short * (2 * columns - short + 1) / (2 * rows * columns)
        return 1.0, part, part if columns % TILE else 0.0
    before = columns - rows  # columns that the row ahead of the first one would see
    blind = min(down - 1, max(0, -before // height))  # blocks of rows that see nothing
    count, start = down - 1 - blind, before + (blind + 1) * height
    steps = across + _floors(count, height, start + width - 1, width)
    to_last = down - min(down - 1, max(0, ((across - 1) * width - before) // height))
    over = across * width - columns if rule.clips else 0
    area = steps - to_last * over / width
    odd = area if width % TILE else to_last * (1 - over / width) if over % TILE else 0.0
    return steps / (down * across), area / (down * across), odd / (down * across)


def _floors(count: int, slope: int, start: int, by: int) -> int:
    """The sum of ``(slope * i + start) // by`` for each i below ``count``, as Euclid divides."""
    total = 0
    while count > 0 and by > 0:
        total += count * (count - 1) // 2 * (slope // by) + count * (start // by)
        slope, start = slope % by, start % by
        end = slope * count + start
        count, start, slope, by = end // by, end % by, by, slope
    return total


def in_tiles(size: int) -> int:
    """``size`` rounded up to a multiple of ``TILE``."""
    return ceil(size / TILE) * TILE


def _times(costs: Sequence[float], size: int) -> list[float]:
    half = len(costs) // 2
    return [base + size * more for base, more in zip(costs, costs[half:], strict=False)]


def _mask(bits: Iterable[bool]) -> int:
    return sum(1 << number for number, is_set in enumerate(bits) if is_set)
