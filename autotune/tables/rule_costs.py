"""What steps and calls cost by the sizes of their blocks, and what they move through HBM: the
costs and the traffic of a ``ShapeRule``, fitted to what was compiled."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, permutations, product
from math import ceil, hypot, prod
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from autotune.answering import rules
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config
from autotune.domain.rule import CostTerm, HbmTerm, ShapeRule

MOST_NAMES = 3  # in a product that costs: with all of them there are too many products
_LEVEL_SHARE = 0.9  # of a problem's time says nothing of others; by the rest terms are told apart
_LATENCIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # parts of the longest that is never above the time
_SAME = 1.001  # times as many operations: the same
_EXACT = 0.005  # of the traffic: a sum of arrays and how often each is read again is no fit
_MOST_DIMS = 3  # dimensions of an array
_MOST_AGAIN = 2  # axes that an array is read again for
_MOST_FORMS = 500
_LEAST_SHARE = 1e-4  # of the traffic of any row: what is less is rounding


class FitRow(NamedTuple):
    """A config that compiled for the problem ``dims``. ``is_good``: its sizes are offered."""

    dims: dict[str, int]
    config: Config
    estimate: Estimate
    is_good: bool

    @property
    def sizes(self) -> dict[str, Any]:
        """Of dimensions and of axes."""
        return {**self.dims, **dict(self.config.axes)}


def fitted_weights(table: Any, target: Any) -> tuple[Any, float]:
    """The weights of the columns by least squares, none of them negative, and how far they are
    off."""
    weights, off = nnls(table, target, maxiter=100 * table.shape[1])
    return weights, float(off)


def with_diagonal(rule: ShapeRule, rows: Sequence[FitRow]) -> ShapeRule:
    """With the diagonal behind which a kernel does nothing, where that alone explains what its
    matrix unit does for each of its blocks."""
    names = [axis.name for axis in rule.axes if axis.dim]
    sides = product(permutations(names, 2), (False, True))
    forms = [rule, *(replace(rule, diagonal=pair, clips=clips) for pair, clips in sides)]
    return next((form for form in forms if _explains(form, rows)), rule)


def _explains(rule: ShapeRule, rows: Sequence[FitRow]) -> bool:
    """Whether each element takes as many operations for all blocks of a problem. A single block
    says nothing of it."""
    each: dict[tuple[Any, ...], list[float]] = {}
    cutting = [axis for axis in rule.axes if axis.dim]
    elements = CostTerm(us=1.0, of=tuple(axis.name for axis in cutting), each_step=True)
    for row in rows:
        sizes = row.sizes
        if any(sizes[axis.name] < sizes[axis.dim] for axis in cutting):
            flops = row.estimate.flops / term_us(rule, elements, sizes)
            each.setdefault(tuple(row.dims.items()), []).append(flops)
    return all(max(flops) <= _SAME * min(flops) for flops in each.values())


class FittedCosts:
    """The costs by least squares of shares, none of them negative: of what the core does, and of
    what it waits for, each alone. Where the traffic is known, what it waits for beyond that, with
    the latency of a read that explains most, of those that are never above the time.

    What a problem takes whatever its blocks, such as XLA's copies around the call or arrays that it
    puts into VMEM ahead of it, is of any size: most of the level of each problem's rows is taken
    out of them, as in a model of random effects, and its median is one more cost."""

    def __init__(self, rule: ShapeRule, rows: Sequence[FitRow], *, each_block: bool) -> None:
        self._terms = _terms(rule, each_block=each_block)
        step = CostTerm(us=1.0, of=(), each_step=True)
        table, known = [], []
        places: dict[tuple[Any, ...], list[int]] = {}
        for number, row in enumerate(rows):
            estimate, sizes = row.estimate, row.sizes
            table.append([term_us(rule, term, sizes) for term in self._terms])
            busy_us = estimate.explanation.busy_us if estimate.explanation else 0.0
            moved_us = estimate.memory_us if rule.hbm else 0.0
            known.append((estimate.time_us, busy_us, moved_us, term_us(rule, step, sizes)))
            places.setdefault(tuple(row.dims.items()), []).append(number)
        costs = np.array(table, dtype=float)
        times_us, *others = np.array(known).T
        self._places, self._rates = list(places.values()), 1 / times_us
        busy, self._moved, self._steps = (other * self._rates for other in others)
        self._scale = np.maximum(costs.max(axis=0), 1e-9)
        self._shares = costs / self._scale * self._rates[:, None]
        self._within = self._without_level(self._shares)
        core, off = self._fit(busy)
        most_us = max(0.0, min((2 - busy - self._moved) / self._steps))
        tried_us = [most_us * part for part in _LATENCIES] if rule.hbm else [0.0]
        tried = [(self._fit(1 - self._together(busy, us)), us) for us in tried_us]
        (waits, waits_off), latency_us = min(tried, key=lambda fit: fit[0][1])
        self._weights = (core, waits) if rule.hbm else (core + waits, 0 * waits)
        self.rule, self.off = replace(rule, latency_us=float(latency_us)), hypot(off, waits_off)

    def fitted(self) -> ShapeRule:
        """The rule with its costs."""
        core, waits = (self._shares @ weights for weights in self._weights)
        left = 1 - self._together(core, self.rule.latency_us) - waits
        level = [left[places] @ rates / (rates @ rates) for places, rates in self._each_problem()]
        costs = [
            replace(term, us=float(us), waits=does_wait)
            for does_wait, weights in zip((False, True), self._weights, strict=True)
            for term, us in zip(self._terms, weights / self._scale, strict=True)
            if us > 0
        ]
        if (us := float(np.median(level))) > 0:
            once = CostTerm(us=us, of=(), each_step=False, waits=bool(self.rule.hbm))
            costs.append(once)
        return replace(self.rule, costs=tuple(costs))

    def _fit(self, part: Any) -> tuple[Any, float]:
        return fitted_weights(self._within, self._without_level(part))

    def _without_level(self, shares: Any) -> Any:
        within = shares.copy()
        for places, rates in self._each_problem():
            level = rates @ shares[places] / (rates @ rates)
            within[places] -= _LEVEL_SHARE * np.multiply.outer(rates, level)
        return within

    def _each_problem(self) -> list[tuple[list[int], Any]]:
        return [(places, self._rates[places]) for places in self._places]

    def _together(self, busy: Any, latency_us: float) -> Any:
        """As ``rules.together_us``, of shares."""
        mean = (busy + self._moved + self._steps * latency_us) / 2
        return np.maximum(np.maximum(busy, self._moved), mean)


def term_us(rule: ShapeRule, term: CostTerm, both: Mapping[str, int]) -> float:
    """One of the costs of a call; ``both``: dimensions and sizes."""
    if not _counts(term, both):
        return 0.0
    sizes = {axis.name: rules.in_tiles(both[axis.name]) for axis in rule.axes} if term.tiles else {}
    us: float = term.us * prod({**both, **sizes}[name] for name in term.of)
    if term.axis and not term.dim:
        us /= both[term.axis]
    if not term.each_step and not term.each_block:
        return us
    blocks = (
        ceil(both[axis.dim] / both[axis.name])
        for axis in rule.axes
        if axis.dim and (term.each_step or axis.name == term.each_block)
    )
    if term.each_step:
        sides = [both[name] for name in rule.diagonal]
        us *= rules.done_shares(rule, both, sides)[rules.share_of(rule, term)]
    return us * prod(blocks) * prod(both[name] for name in rule.runs)


def _counts(term: CostTerm, both: Mapping[str, int]) -> bool:
    """Whether a problem has such a cost at all."""
    if not term.dim:
        return True
    whole = both[term.dim]
    if not term.axis:
        return (whole % rules.LANES == 0) == term.aligned
    return both[term.axis] < whole if term.cuts else whole % both[term.axis] != 0


def _terms(rule: ShapeRule, *, each_block: bool) -> list[CostTerm]:
    """Of a microsecond each: for products of sizes, each step and once, for all problems and
    for those with an array whose edge is a tile's, or is not; by what an axis that cuts no array
    does in turns inside a block; of whole tiles, each step; and for ``each_block`` of an axis."""
    names = [*(axis.name for axis in rule.axes), *rule.inside]
    products = products_of(names, MOST_NAMES)
    term = partial(CostTerm, us=1.0)
    blocks = [axis.name for axis in rule.axes if axis.dim and each_block]
    diagonal = [of for of in products if rule.diagonal and set(rule.diagonal) <= set(of)]
    return [
        *(
            term(of=of, each_step=each_step, **where)
            for where in _where(rule)
            for each_step in (True, False)
            for of in products
            if where.get("dim") or where.get("axis") not in of
        ),
        *(term(of=of, each_step=True, tiles=True) for of in products if of),
        *(term(of=of, each_step=True, odd=True) for of in diagonal),
        *(term(of=of, each_step=False, each_block=name) for name in blocks for of in products),
    ]


def products_of(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """The names of each product of up to ``most`` of them, the shortest first."""
    return list(chain.from_iterable(combinations(names, n) for n in range(most + 1)))


def _where(rule: ShapeRule) -> list[dict[str, Any]]:
    """Where a cost may arise, as fields of a ``CostTerm``."""
    cutting = [axis for axis in rule.axes if axis.dim]
    dims = dict.fromkeys(axis.dim for axis in cutting)
    return [
        {},
        *({"dim": dim, "aligned": aligned} for dim in dims for aligned in (True, False)),
        *({"dim": axis.dim, "axis": axis.name} for axis in rule.axes),
        *({"dim": axis.dim, "axis": axis.name, "cuts": True} for axis in cutting),
    ]


def with_traffic(rule: ShapeRule, rows: Sequence[FitRow]) -> ShapeRule:
    """With the arrays that cross HBM, where they explain the traffic of all that was compiled in
    the usual order of the grid. They do not where XLA puts some into VMEM ahead of the call, or
    blocks are skipped."""
    usual = Counter(row.config.grid_order for row in rows).most_common(1)[0][0]
    usual_rows = [row for row in rows if row.config.grid_order == usual]
    moved_us = np.array([row.estimate.memory_us for row in usual_rows])
    forms = list(_array_forms(rule))
    if len(forms) > _MOST_FORMS or not moved_us.all():
        return rule
    dim_of = {axis.name: axis.dim for axis in rule.axes}
    table = np.array([[array_us(form, dim_of, row.sizes) for form in forms] for row in usual_rows])
    table /= moved_us[:, None]
    scale = table.max(axis=0)
    # where rows do not tell forms apart, the first one moves the least
    places = np.sort(np.unique((table / scale).round(9), axis=1, return_index=True)[1])
    table, scale = table[:, places], scale[places]
    weights, _ = fitted_weights(table / scale, np.ones(len(usual_rows)))
    if np.abs(table / scale @ weights - 1).max() > _EXACT:
        return rule
    terms = tuple(
        replace(forms[place], us=float(us))
        for place, us, share in zip(places, weights / scale, weights, strict=True)
        if share > _LEAST_SHARE
    )
    return replace(rule, hbm=terms) if len(terms) <= rules.MOST_MOVED else rule


def _array_forms(rule: ShapeRule) -> Iterator[HbmTerm]:
    """Of a microsecond each."""
    cutting = [axis for axis in rule.axes if axis.dim]
    most = dict(rule.most)
    names = [name for name, least in rule.least if least < most[name]]
    for of in products_of(names, _MOST_DIMS):
        yield HbmTerm(us=1.0, of=of)
        inner = [axis.name for axis in cutting if axis.dim in of]
        outer = [axis.name for axis in cutting if axis.dim not in of]
        for count in range(1, _MOST_AGAIN + 1):
            for again in combinations(outer, count):
                for where in dict.fromkeys((*((name,) for name in inner), tuple(inner), again)):
                    if where:
                        yield HbmTerm(us=1.0, of=of, again=again, where=where)


def array_us(term: HbmTerm, dim_of: Mapping[str, str], both: Mapping[str, Any]) -> float:
    """One of the arrays of a call; ``both``: dimensions and sizes."""
    us: float = term.us * prod(both[name] for name in term.of)
    if any(both[name] < both[dim_of[name]] for name in term.where):
        us *= prod(ceil(both[dim_of[name]] / both[name]) for name in term.again)
    return us
