"""What steps and calls cost by the sizes of their blocks: the costs of a ``ShapeRule``, fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from math import ceil, hypot, prod
from typing import Any

import numpy as np
from scipy.optimize import nnls

from autotune.answering import rules
from autotune.domain.rule import CostTerm, ShapeRule
from autotune.tables.rule_traffic import array_us

MOST_NAMES = 3  # in a product that costs: with all of them there are too many products
_OWN_LEVEL = 0.9  # of a problem's time, at most, says nothing of others; the rest tells terms apart
_LATENCIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # parts of the longest that is never above the time
_SAME = 1.001  # times as many operations: the same


def with_diagonal(rule: ShapeRule, rows: Sequence[Any]) -> ShapeRule:
    """With the diagonal behind which a kernel does nothing, where that alone explains what its
    matrix unit does for each of its blocks."""
    names = [axis.name for axis in rule.axes if axis.dim]
    sides = product(permutations(names, 2), (False, True))
    forms = [rule, *(replace(rule, diagonal=pair, clips=clips) for pair, clips in sides)]
    return next((form for form in forms if _explains(form, rows)), rule)


def _explains(rule: ShapeRule, rows: Sequence[Any]) -> bool:
    """Whether each element takes as many operations for all blocks of a problem. What is a single
    block says nothing of it."""
    each: dict[tuple[Any, ...], list[float]] = {}
    cutting = [axis for axis in rule.axes if axis.dim]
    elements = CostTerm(us=1.0, of=tuple(axis.name for axis in cutting), each_step=True)
    for dims, config, estimate, _ in rows:
        both = {**dims, **{axis.name: config[axis.name] for axis in rule.axes}}
        if any(both[axis.name] < both[axis.dim] for axis in cutting):
            own = each.setdefault(tuple(dims.items()), [])
            own.append(estimate.flops / term_us(rule, elements, both))
    return all(max(own) <= _SAME * min(own) for own in each.values())


class FittedCosts:
    """The costs by least squares of shares, none of them negative: of what the core does, and of
    what it waits for, each alone. Where the traffic is known, what it waits for beyond that, with
    the latency of a read that explains most, of those that are never above the time.

    What a problem takes whatever its blocks, such as XLA's copies around the call or arrays that it
    puts into VMEM ahead of it, is of any size: most of the level of each problem's rows is taken
    out of them, as in a model of random effects, and its median is one more cost."""

    def __init__(self, rule: ShapeRule, rows: Sequence[Any], *, each_block: bool) -> None:
        self._terms = _terms(rule, each_block=each_block)
        step = CostTerm(us=1.0, of=(), each_step=True)
        table, own = [], []
        places: dict[tuple[Any, ...], list[int]] = {}
        for number, (dims, config, estimate, _) in enumerate(rows):
            both = {**dims, **{axis.name: config[axis.name] for axis in rule.axes}}
            table.append([term_us(rule, term, both) for term in self._terms])
            busy_us = estimate.explanation.busy_us if estimate.explanation else 0.0
            moved_us = estimate.memory_us if rule.hbm else 0.0
            own.append((estimate.time_us, busy_us, moved_us, term_us(rule, step, both)))
            places.setdefault(tuple(dims.items()), []).append(number)
        costs = np.array(table, dtype=float)
        times_us, *others = np.array(own).T
        self._places, self._rates = list(places.values()), 1 / times_us
        busy, self._moved, self._steps = (other * self._rates for other in others)
        self._scale = np.maximum(costs.max(axis=0), 1e-9)
        self._shares = costs / self._scale * self._rates[:, None]
        self._within = self._without_level(self._shares)
        core, off = self._fit(busy)
        most_us = max(0.0, min((2 - busy - self._moved) / self._steps))
        tried_us = [most_us * part for part in _LATENCIES] if rule.hbm else [0.0]
        tried = [(self._fit(1 - self._together(busy, one)), one) for one in tried_us]
        (waits, waits_off), latency_us = min(tried, key=lambda one: one[0][1])
        self._found = (core, waits) if rule.hbm else (core + waits, 0 * waits)
        self.rule, self.off = replace(rule, latency_us=float(latency_us)), hypot(off, waits_off)

    def fitted(self) -> ShapeRule:
        """The rule with its costs."""
        core, waits = (self._shares @ found for found in self._found)
        left = 1 - self._together(core, self.rule.latency_us) - waits
        level = [left[own] @ rates / (rates @ rates) for own, rates in self._each_problem()]
        costs = [
            replace(term, us=float(us), waits=does_wait)
            for does_wait, found in zip((False, True), self._found, strict=True)
            for term, us in zip(self._terms, found / self._scale, strict=True)
            if us > 0
        ]
        if (us := float(np.median(level))) > 0:
            once = CostTerm(us=us, of=(), each_step=False, waits=bool(self.rule.hbm))
            costs.append(once)
        return replace(self.rule, costs=tuple(costs))

    def _fit(self, part: Any) -> tuple[Any, float]:
        most = 100 * self._within.shape[1]
        found, off = nnls(self._within, self._without_level(part), maxiter=most)
        return found, float(off)

    def _without_level(self, shares: Any) -> Any:
        within = shares.copy()
        for own, rates in self._each_problem():
            level = rates @ shares[own] / (rates @ rates)
            within[own] -= _OWN_LEVEL * np.multiply.outer(rates, level)
        return within

    def _each_problem(self) -> list[tuple[list[int], Any]]:
        return [(own, self._rates[own]) for own in self._places]

    def _together(self, busy: Any, latency_us: float) -> Any:
        """As ``rules.together_us``, of shares."""
        mean = (busy + self._moved + self._steps * latency_us) / 2
        return np.maximum(np.maximum(busy, self._moved), mean)


def call_us(rule: ShapeRule, both: Mapping[str, int]) -> float:
    """What a call takes by its costs; ``both``: dimensions and sizes."""
    dim_of = {axis.name: axis.dim for axis in rule.axes}
    core_us, waits_us = (
        sum(term_us(rule, term, both) for term in rule.costs if term.waits == waits)
        for waits in (False, True)
    )
    traffic_us = sum(array_us(term, dim_of, both) for term in rule.hbm)
    steps = term_us(rule, CostTerm(us=1.0, of=(), each_step=True), both)
    return rules.together_us(rule, core_us, traffic_us, steps) + waits_us


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
    products = [some for n in range(MOST_NAMES + 1) for some in combinations(names, n)]
    found = [
        CostTerm(us=1.0, of=of, each_step=each_step, dim=dim, aligned=aligned, axis=axis, cuts=cuts)
        for dim, aligned, axis, cuts in _where(rule)
        for each_step in (True, False)
        for of in products
        if dim or axis not in of
    ]
    found += [CostTerm(us=1.0, of=of, each_step=True, tiles=True) for of in products if of]
    diagonal = [of for of in products if rule.diagonal and set(rule.diagonal) <= set(of)]
    found += [CostTerm(us=1.0, of=of, each_step=True, odd=True) for of in diagonal]
    blocks = [axis.name for axis in rule.axes if axis.dim and each_block]
    found += [
        CostTerm(us=1.0, of=of, each_step=False, each_block=name)
        for name in blocks
        for of in products
    ]
    return found


def _where(rule: ShapeRule) -> list[tuple[str, bool, str, bool]]:
    """Where a cost may arise: the dimension, whether it is aligned, the axis, and whether that
    cuts it."""
    cut = [axis for axis in rule.axes if axis.dim]
    dims = dict.fromkeys(axis.dim for axis in cut)
    return [
        ("", True, "", False),
        *((dim, aligned, "", False) for dim in dims for aligned in (True, False)),
        *((axis.dim, True, axis.name, False) for axis in rule.axes),
        *((axis.dim, True, axis.name, True) for axis in cut),
    ]
