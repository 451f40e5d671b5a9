"""A ``ShapeRule`` from all that was compiled of a kernel. It is judged in ``rule_maker``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, permutations
from math import ceil, gcd, prod
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from autotune.cost_model.estimate import MODEL
from autotune.domain.config import ARBITRARY, PARALLEL, AxisValue, Config
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate
from autotune.domain.rule import BlockAxis, CompiledBlocks, CostTerm, ShapeRule
from autotune.domain.trial import Trial
from autotune.lookups import rules

FEWEST_PROBLEMS = 8
FEWEST_ANSWERED = 6  # of them, left out: the ends of the range never are
_NEAR = 1.5  # times the best of its problem: sizes of slower ones are not offered
_OWN_LEVEL = 0.9  # of a problem's time, at most, says nothing of others; the rest tells terms apart
_MOST_NAMES = 3  # in a product that costs: with all of them there are too many products

Known = Mapping[Key, Sequence[tuple[Config, Estimate]]]
"""What was compiled, by problem; the default first."""

Passed = Mapping[Key, Config]
"""What the gate has passed."""


class _Fixed(NamedTuple):
    """What a rule does not choose: what is no size, semantics that change the program, as between
    the cores of a megacore, and the order of the grid, which is that of what shows the sizes to be
    safe."""

    others: tuple[tuple[str, AxisValue], ...]
    semantics: tuple[str, ...]
    order: tuple[str, ...]


def known_of(found: Sequence[tuple[Key, Sequence[Trial]]]) -> Known:
    """Trials that teach: all but those of others, and those without a time of this model."""
    own = {
        key: [
            (t.config, t.estimate)
            for t in trials
            if t.estimate and t.estimate.model == MODEL and not t.pushed_by
        ]
        for key, trials in found
    }
    return {key: pairs for key, pairs in own.items() if pairs}


def make_rule(
    known: Known, passed: Passed, cuts: Sequence[tuple[str, str]], grows: Sequence[str] = ()
) -> ShapeRule | None:
    """None where too little is known. It is not judged yet.

    What compiled need not be right: it divides what all that ``passed`` divides."""
    if len(known) < FEWEST_PROBLEMS or not passed:
        return None
    rows, semantics = fitting_rows(known, passed), _semantics(passed)
    right = [(dict(k.problem.dims), c) for k, c in passed.items() if _fixed(k, c) in semantics]
    if not rows:
        return None
    names = [name for name, value in rows[0][1].axes if _is_size(value)]
    cut = dict(cuts)
    dims = list(rows[0][0])
    least = {name: min(own[name] for own, *_ in rows) for name in dims}
    most = {name: max(own[name] for own, *_ in rows) for name in dims}
    free = [name for name in dims if name not in cut.values() and least[name] < most[name]]
    blank = ShapeRule(
        made_at=datetime.now(UTC),
        least=tuple(least.items()),
        most=tuple(most.items()),
        axes=_few([_axis(name, cut.get(name, ""), rows) for name in names], rows),
        divides=tuple(_divides(right, names, cut)),
        grows=tuple(grows),
        runs=(),
        inside=(),
        compiled=_compiled(rows, cut),
        costs=(),
    )
    each = [
        _fitted(replace(blank, runs=runs, inside=tuple(n for n in free if n not in runs)), rows)
        for count in range(min(len(free), _MOST_NAMES) + 1)
        for runs in combinations(free, count)
    ]
    made = min(each, key=lambda pair: pair[0])[1]
    return made if rules.is_small(made) else None


def fitting_rows(
    known: Known, passed: Passed
) -> list[tuple[dict[str, int], Config, Estimate, bool]]:
    """What differs by sizes, and by the order of the grid, alone from what passed most often: with
    the semantics that hold for all that passed in that order, and whether its sizes are offered."""
    semantics = _semantics(passed)
    return [
        (dims, config.replace(dimension_semantics=weakest), estimate, estimate.time_us <= near_us)
        for key, pairs in known.items()
        for dims, near_us in [(dict(key.problem.dims), _NEAR * min(e.time_us for _, e in pairs))]
        for config, estimate in pairs
        if (weakest := semantics.get(_fixed(key, config))) is not None
        and _promises(config, weakest)
    ]


def _semantics(passed: Passed) -> dict[_Fixed, tuple[str, ...]]:
    usual = Counter(_fixed(*one) for one in passed.items()).most_common(1)[0][0]
    found: dict[_Fixed, tuple[str, ...]] = {}
    for key, config in passed.items():
        own, fixed = config.dimension_semantics, _fixed(key, config)
        if fixed[:2] == usual[:2]:  # in any order of the grid
            pairs = zip(own, found.get(fixed, own), strict=True)
            found[fixed] = tuple(PARALLEL if set(p) == {PARALLEL} else ARBITRARY for p in pairs)
    return found


def _fixed(key: Key, config: Config) -> _Fixed:
    others = tuple((name, value) for name, value in config.axes if not _is_size(value))
    own = config.dimension_semantics
    semantics = own if key.chip.is_megacore else (ARBITRARY,) * len(own)
    return _Fixed(others, semantics, config.grid_order)


def _promises(config: Config, semantics: Sequence[str]) -> bool:
    """Whether each axis that is parallel there is here: any may be arbitrary instead."""
    pairs = zip(config.dimension_semantics, semantics, strict=True)
    return all(own == PARALLEL or weak == ARBITRARY for own, weak in pairs)


def _is_size(value: AxisValue) -> bool:
    return type(value) is int and value > 0


def _axis(name: str, dim: str, rows: Sequence[Any]) -> BlockAxis:
    pairs = [(config[name], dims.get(dim, 0), is_good) for dims, config, _, is_good in rows]
    wholes = [size for size, whole, _ in pairs if size == whole]
    sizes = {size for size, whole, is_good in pairs if is_good and (not dim or size < whole)}
    return BlockAxis(
        name=name,
        dim=dim,
        sizes=tuple(sorted(sizes)),
        whole=gcd(*wholes, rules.LANES) if wholes else 0,
    )


def _few(axes: list[BlockAxis], rows: Sequence[Any]) -> tuple[BlockAxis, ...]:
    """Without the sizes that were good for the fewest problems, where all of them are too many to
    be tried while a model waits."""
    seen = Counter(
        (axis.name, config[axis.name]) for axis in axes for _, config, _, is_good in rows if is_good
    )
    while prod(len(axis.sizes) + bool(axis.whole) for axis in axes) > rules.MOST_SIZES:
        place, axis = max(enumerate(axes), key=lambda pair: len(pair[1].sizes))
        if not axis.sizes:
            break
        least = min(axis.sizes, key=lambda size: (seen[axis.name, size], size))
        axes[place] = replace(axis, sizes=tuple(size for size in axis.sizes if size != least))
    return tuple(axes)


def _divides(
    rows: Sequence[Any], names: Sequence[str], cut: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Axes of one array may be bound to each other, and an axis to what it cuts; those of different
    dimensions are not."""
    pairs = [
        (axis, other)
        for axis, other in permutations(names, 2)
        if cut.get(axis, "") == "" or cut.get(axis) == cut.get(other)
    ]
    pairs += [
        (axis, dim) for axis in names for dim in rows[0][0] if cut.get(axis, dim) in ("", dim)
    ]
    return [
        (axis, other)
        for axis, other in pairs
        if all({**dims, **dict(config.axes)}[other] % config[axis] == 0 for dims, config in rows)
    ]


def _compiled(rows: Sequence[Any], cut: Mapping[str, str]) -> tuple[CompiledBlocks, ...]:
    """Without those that another one shows more than; the largest first."""
    found = [
        CompiledBlocks(
            config=config,
            dims=tuple(dims.items()),
            vmem_used_bytes=estimate.vmem_used_bytes,
            vmem_allowed_bytes=estimate.vmem_allowed_bytes,
        )
        for dims, config, estimate, _ in rows
    ]
    orders = Counter(config.grid_order for _, config, *_ in rows)
    found.sort(
        key=lambda one: (
            one.config.vmem_limit_bytes or 0,
            -orders[one.config.grid_order],
            -one.vmem_used_bytes,
        )
    )
    kept: list[CompiledBlocks] = []
    for one in found:
        if not any(_shows(other, one, cut) for other in kept):
            kept.append(one)
    return tuple(kept[: rules.MOST_COMPILED])


def _shows(more: CompiledBlocks, less: CompiledBlocks, cut: Mapping[str, str]) -> bool:
    own: dict[str, Any] = dict(more.config.axes)
    its: dict[str, Any] = dict(less.config.axes)
    large, small = dict(more.dims), dict(less.dims)
    return (
        more.config.grid_order == less.config.grid_order
        and all(its[name] <= value for name, value in own.items() if _is_size(value))
        and all(small[name] == size for name, size in large.items() if name not in cut.values())
        and all(small[name] <= size for name, size in large.items())
        and all(its[a] >= small[d] or own[a] < large[d] for a, d in cut.items())
    )


def _fitted(blank: ShapeRule, rows: Sequence[Any]) -> tuple[float, ShapeRule]:
    """The costs by least squares of shares, none of them negative, and how far off they are.

    What a problem takes whatever its blocks, such as XLA's copies around the call or arrays that it
    puts into VMEM ahead of it, is of any size: most of the level of each problem's rows is taken
    out of them, as in a model of random effects, and its median is one more cost."""
    table, times_us = [], []
    terms = _terms(blank)
    places: dict[tuple[Any, ...], list[int]] = {}
    for number, (dims, config, estimate, _) in enumerate(rows):
        both = {**dims, **{axis.name: config[axis.name] for axis in blank.axes}}
        table.append([term_us(blank, term, both) for term in terms])
        times_us.append(estimate.time_us)
        places.setdefault(tuple(dims.items()), []).append(number)
    costs, rates = np.array(table, dtype=float), 1 / np.array(times_us)
    scale = np.maximum(costs.max(axis=0), 1e-9)
    shares = np.column_stack([costs / scale * rates[:, None], np.ones(len(rows))])
    within = shares.copy()
    for own in places.values():
        part = rates[own] / (rates[own] @ rates[own])
        within[own] -= _OWN_LEVEL * np.outer(rates[own], part @ shares[own])
    found, off = nnls(within[:, :-1], within[:, -1], maxiter=100 * costs.shape[1])
    left = shares[:, -1] - shares[:, :-1] @ found
    whatever = [left[own] @ rates[own] / (rates[own] @ rates[own]) for own in places.values()]
    terms.append(CostTerm(us=1.0, of=(), each_step=False))
    each = zip(terms, [*(found / scale), np.median(whatever)], strict=True)
    return off, replace(
        blank, costs=tuple(replace(term, us=float(us)) for term, us in each if us > 0)
    )


def term_us(rule: ShapeRule, term: CostTerm, both: Mapping[str, int]) -> float:
    """One of the costs of a call; ``both``: dimensions and sizes."""
    if term.axis and term.dim:
        if both[term.dim] % both[term.axis] == 0:
            return 0.0
    elif term.dim and (both[term.dim] % rules.LANES == 0) != term.aligned:
        return 0.0
    us: float = term.us * prod(both[name] for name in term.of)
    if term.axis and not term.dim:
        us /= both[term.axis]
    if not term.each_step:
        return us
    blocks = (ceil(both[axis.dim] / both[axis.name]) for axis in rule.axes if axis.dim)
    return us * prod(blocks) * prod(both[name] for name in rule.runs)


def _terms(rule: ShapeRule) -> list[CostTerm]:
    """Of a microsecond each: for products of sizes, each step and once, for all problems and
    for those with an array whose edge is a tile's, or is not; by what an axis that cuts no array
    does in turns inside a block."""
    names = [*(axis.name for axis in rule.axes), *rule.inside]
    products = [some for n in range(_MOST_NAMES + 1) for some in combinations(names, n)]
    dims = dict.fromkeys(axis.dim for axis in rule.axes if axis.dim)
    where = [
        ("", True, ""),
        *((dim, aligned, "") for dim in dims for aligned in (True, False)),
        *((axis.dim, True, axis.name) for axis in rule.axes),
    ]
    return [
        CostTerm(us=1.0, of=of, each_step=each_step, dim=dim, aligned=aligned, axis=axis)
        for dim, aligned, axis in where
        for each_step in (True, False)
        for of in products
        if dim or axis not in of
    ]
