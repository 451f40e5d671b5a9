"""A ``ShapeRule`` from all that was compiled of a kernel. It is judged in ``rule_maker``."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from autotune.answering import rules
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config
from autotune.domain.record import Trial
from autotune.domain.rule import BlockAxis, CompiledBlocks, SeenRange, ShapeRule, VmemTerm
from autotune.estimating.simulator import MODEL
from autotune.tables.rule_costs import (
    MOST_NAMES,
    FitRow,
    FittedCosts,
    fitted_weights,
    products_of,
    with_diagonal,
    with_traffic,
)

FEWEST_PROBLEMS = 8
FEWEST_ANSWERED = 6  # of them, left out: the ends of the range never are
_NEAR = 1.5  # times the best of its problem: sizes of slower ones are not offered
_VMEM_NAMES = 2  # in a product that takes room
_UNDIVIDED = 2  # problems for each pair, for the gate: one of them may be left out

Known = Mapping[Key, Sequence[tuple[Config, Estimate]]]
"""What was compiled, by problem; the default first."""

Passed = Collection[tuple[Key, Config]]
"""What the gate has passed."""


class _Fixed(NamedTuple):
    """What a rule does not choose: what is no size, semantics that change the program, as between
    the cores of a megacore, and the order of the grid, which is that of what shows the sizes to be
    safe."""

    others: tuple[tuple[str, AxisValue], ...]
    semantics: tuple[str, ...]
    order: tuple[str, ...]


def known_of(trials_of: Sequence[tuple[Key, Sequence[Trial]]]) -> Known:
    """Trials that teach: all but those that were pushed, and those without a time of this model."""
    known = {
        key: [
            (t.config, t.estimate)
            for t in trials
            if t.estimate and t.estimate.model == MODEL and not t.pushed_by
        ]
        for key, trials in trials_of
    }
    return {key: pairs for key, pairs in known.items() if pairs}


def make_rule(
    known: Known,
    passed: Passed,
    cuts: Sequence[tuple[str, str]],
    grows: Sequence[str] = (),
    most_of: Mapping[str, int] | None = None,
    *,
    each_block: bool = False,
    traffic: bool = True,
) -> ShapeRule | None:
    """None where too little is known. It is not judged yet. ``most_of``: the largest that the
    kernel declares of each axis. ``each_block``: with costs of that kind, too: they fit more, where
    more is known. ``traffic``: with what crosses HBM, where that is known.

    What compiled need not be right: it divides what all that ``passed`` divides."""
    if len(known) < FEWEST_PROBLEMS or not passed:
        return None
    rows, semantics = _fitting_rows(known, passed), _semantics(passed)
    right = [(dict(k.problem.dims), c) for k, c in passed if _fixed(k, c) in semantics]
    if not rows:
        return None
    names = [name for name, value in rows[0][1].axes if _is_size(value)]
    cut = dict(cuts)
    least, most = _ranges([sizes for sizes, *_ in rows])
    dims = list(least)
    free = [name for name in dims if name not in cut.values() and least[name] < most[name]]
    blank = ShapeRule(
        made_at=datetime.now(UTC),
        least=tuple(least.items()),
        most=tuple(most.items()),
        axes=_few([_axis(name, cut.get(name, ""), most_of or {}, rows) for name in names], rows),
        divides=tuple(_divides(right, names, cut)),
        grows=tuple(grows),
        runs=(),
        inside=(),
        compiled=_compiled(rows, cut),
        costs=(),
        vmem=_vmem(rows, [*names, *free, *grows]),
        seen=_seen(rows, cut.values()),
    )
    blank = with_diagonal(blank, rows)
    blank = with_traffic(blank, rows) if traffic else blank
    # With each choice of dimensions that the grid alone runs over; the others are inside.
    insides = ((runs, [n for n in free if n not in runs]) for runs in products_of(free, MOST_NAMES))
    kinds = (replace(blank, runs=runs, inside=tuple(inside)) for runs, inside in insides)
    fits = [FittedCosts(kind, rows, each_block=each_block) for kind in kinds]
    made = min(fits, key=lambda fit: fit.off).fitted()
    return made if rules.is_small(made) else None


def _ranges(problems: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], dict[str, int]]:
    least = {name: min(dims[name] for dims in problems) for name in problems[0]}
    return least, {name: max(dims[name] for dims in problems) for name in problems[0]}


def _fitting_rows(known: Known, passed: Passed) -> list[FitRow]:
    """What differs by sizes, and by the order of the grid, alone from what passed most often: with
    the semantics that hold for all that passed in that order, and whether its sizes are offered."""
    semantics = _semantics(passed)
    return [
        FitRow(
            dims,
            config.replace(dimension_semantics=weakest),
            estimate,
            is_good=estimate.time_us <= near_us,
        )
        for key, pairs in known.items()
        for dims, near_us in [(dict(key.problem.dims), _NEAR * min(e.time_us for _, e in pairs))]
        for config, estimate in pairs
        if (weakest := semantics.get(_fixed(key, config))) is not None
        and _promises(config, weakest)
    ]


def _semantics(passed: Passed) -> dict[_Fixed, tuple[str, ...]]:
    usual = Counter(_fixed(*pair) for pair in passed).most_common(1)[0][0]
    weakest: dict[_Fixed, tuple[str, ...]] = {}
    for key, config in passed:
        semantics, fixed = config.dimension_semantics, _fixed(key, config)
        if fixed[:2] == usual[:2]:  # in any order of the grid
            pairs = zip(semantics, weakest.get(fixed, semantics), strict=True)
            weakest[fixed] = tuple(PARALLEL if set(p) == {PARALLEL} else ARBITRARY for p in pairs)
    return weakest


def _fixed(key: Key, config: Config) -> _Fixed:
    others = tuple((name, value) for name, value in config.axes if not _is_size(value))
    semantics = config.dimension_semantics
    if not key.chip.is_megacore:
        semantics = (ARBITRARY,) * len(semantics)
    return _Fixed(others, semantics, config.grid_order)


def _promises(config: Config, semantics: Sequence[str]) -> bool:
    """Whether each axis that is parallel there is here: any may be arbitrary instead."""
    pairs = zip(config.dimension_semantics, semantics, strict=True)
    return all(here == PARALLEL or weak == ARBITRARY for here, weak in pairs)


def _is_size(value: AxisValue) -> bool:
    return type(value) is int and value > 0


def _axis(name: str, dim: str, most_of: Mapping[str, int], rows: Sequence[FitRow]) -> BlockAxis:
    pairs = [(row.config[name], row.dims.get(dim, 0), row.is_good) for row in rows]
    wholes = [size for size, whole, _ in pairs if size == whole]
    sizes = {size for size, whole, is_good in pairs if is_good and (not dim or size < whole)}
    return BlockAxis(
        name=name,
        dim=dim,
        sizes=tuple(sorted(sizes)),
        whole=gcd(*wholes, rules.LANES) if wholes else 0,
        most=most_of.get(name, 0) if dim else 0,
    )


def _few(axes: list[BlockAxis], rows: Sequence[FitRow]) -> tuple[BlockAxis, ...]:
    """Without the sizes that were good for the fewest problems, where all of them are too many to
    be tried while a model waits."""
    seen = Counter(
        (axis.name, row.config[axis.name]) for axis in axes for row in rows if row.is_good
    )
    while rules.offered(axes) > rules.MOST_SIZES:
        place, axis = max(enumerate(axes), key=lambda pair: len(pair[1].sizes))
        if not axis.sizes:
            break
        least = min(axis.sizes, key=lambda size: (seen[axis.name, size], size))
        axes[place] = replace(axis, sizes=tuple(size for size in axis.sizes if size != least))
    return tuple(axes)


def undivided(
    known: Known, passed: Passed, cuts: Sequence[tuple[str, str]]
) -> list[tuple[Key, Config]]:
    """What compiled although an axis does not divide what all that passed may divide by chance: of
    each such pair the fastest of some problems. Where these pass, too, it need not."""
    semantics = _semantics(passed)
    rows: list[tuple[Key, Config, dict[str, Any]]] = [
        (key, config, {**dict(key.problem.dims), **dict(config.axes)})
        for key, pairs in known.items()
        for config, _ in sorted(pairs, key=lambda pair: pair[1].time_us)
        if _fixed(key, config) in semantics
    ]
    if not rows:
        return []
    names = [name for name, value in rows[0][1].axes if _is_size(value)]
    asked: list[tuple[Key, Config]] = []
    for axis, other in _may_divide(names, list(dict(rows[0][0].problem.dims)), dict(cuts)):
        broken = {
            key: config for key, config, sizes in reversed(rows) if sizes[other] % sizes[axis]
        }
        asked += list(broken.items())[-_UNDIVIDED:]
    return [pair for pair in dict.fromkeys(asked) if pair not in passed]


def _may_divide(
    names: Sequence[str], dims: Sequence[str], cut: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Axes of one array may be bound to each other, and an axis to what it cuts; those of different
    dimensions are not."""
    pairs = [
        (axis, other)
        for axis, other in permutations(names, 2)
        if cut.get(axis, "") == "" or cut.get(axis) == cut.get(other)
    ]
    return [
        *pairs,
        *((axis, dim) for axis in names for dim in dims if cut.get(axis, dim) in ("", dim)),
    ]


def _divides(
    rows: Sequence[Any], names: Sequence[str], cut: Mapping[str, str]
) -> list[tuple[str, str]]:
    return [
        (axis, other)
        for axis, other in _may_divide(names, list(rows[0][0]), cut)
        if all({**dims, **dict(config.axes)}[other] % config[axis] == 0 for dims, config in rows)
    ]


def _compiled(rows: Sequence[FitRow], cut: Mapping[str, str]) -> tuple[CompiledBlocks, ...]:
    """Those that no other one proves to be safe as well; the largest first."""
    orders = Counter(row.config.grid_order for row in rows)
    largest_first = sorted(
        rows,
        key=lambda row: (
            row.config.vmem_limit_bytes or 0,
            -orders[row.config.grid_order],
            -row.estimate.vmem_used_bytes,
        ),
    )
    proofs: list[CompiledBlocks] = []
    for dims, config, estimate, _ in largest_first:
        blocks = CompiledBlocks(
            config=config,
            dims=tuple(dims.items()),
            vmem_used_bytes=estimate.vmem_used_bytes,
            vmem_allowed_bytes=estimate.vmem_allowed_bytes,
        )
        if not any(_shows(proof, blocks, cut) for proof in proofs):
            proofs.append(blocks)
    return tuple(proofs[: rules.MOST_COMPILED])


def _seen(rows: Sequence[FitRow], cut: Collection[str]) -> tuple[SeenRange, ...]:
    groups: dict[tuple[tuple[str, int], ...], list[dict[str, int]]] = {}
    for dims in (row.dims for row in rows):
        uncut = tuple((name, size) for name, size in dims.items() if name not in cut)
        groups.setdefault(uncut, []).append(dims)
    return tuple(
        SeenRange(
            uncut=uncut,
            least=tuple((name, size) for name, size in least.items() if name in cut),
            most=tuple((name, size) for name, size in most.items() if name in cut),
        )
        for uncut, problems in groups.items()
        for least, most in [_ranges(problems)]
    )


def _vmem(rows: Sequence[FitRow], names: Sequence[str]) -> tuple[VmemTerm, ...]:
    """By least squares of shares, none negative: an array has rows and columns."""
    products = products_of(names, _VMEM_NAMES)
    sizes = [row.sizes for row in rows]
    table = np.array(
        [[prod(row_sizes[name] for name in of) for of in products] for row_sizes in sizes], float
    )
    rates = 1 / np.array([row.estimate.vmem_used_bytes for row in rows])
    scale = table.max(axis=0)
    weights, _ = fitted_weights(table / scale * rates[:, None], np.ones(len(rows)))
    each = zip(products, weights / scale, strict=True)
    return tuple(VmemTerm(bytes_each=float(size), of=of) for of, size in each if size > 0)


def _shows(more: CompiledBlocks, less: CompiledBlocks, cut: Mapping[str, str]) -> bool:
    """Whether ``less`` is safe because ``more`` compiled."""
    more_axes: dict[str, Any] = dict(more.config.axes)
    less_axes: dict[str, Any] = dict(less.config.axes)
    large, small = dict(more.dims), dict(less.dims)
    return (
        more.config.grid_order == less.config.grid_order
        and all(less_axes[name] <= size for name, size in more_axes.items() if _is_size(size))
        and all(small[name] == size for name, size in large.items() if name not in cut.values())
        and all(small[name] <= size for name, size in large.items())
        and all(less_axes[a] >= small[d] or more_axes[a] < large[d] for a, d in cut.items())
    )
