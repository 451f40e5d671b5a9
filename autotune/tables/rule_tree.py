"""The second form of a ``ShapeRule``: a small decision tree in the place of its costs."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from math import inf, log, log2
from statistics import median
from typing import Any

import numpy as np

from autotune.answering import rules
from autotune.domain.config import Config
from autotune.domain.rule import ShapeRule, TreeNode
from autotune.tables.rule_costs import call_us
from autotune.tables.shape_rule import Known, Passed, fitting_rows

_FEWEST_IN_LEAF = 3  # problems: fewer are chance
_MOST_NAMES = 3  # in a product that decides
_LEAST_US = 1e-3
_NEAR = 1.1  # times the best of its problem: slower blocks are not offered

_Sizes = tuple[int, ...]


def make_tree(rule: ShapeRule, known: Known, passed: Passed) -> ShapeRule | None:
    """A ``rule`` of the same, with a tree that says which of the blocks that were fast for one
    problem are for those like another one: each leaf has them by the mean of the logarithms of
    their times for its problems. A time that nobody compiled is what the costs of that rule say, at
    the level of what was compiled for the same problem."""
    from sklearn.tree import DecisionTreeRegressor

    timed: dict[tuple[tuple[str, int], ...], dict[_Sizes, float]] = {}
    for dims, config, estimate, _ in fitting_rows(known, passed):
        own = timed.setdefault(tuple(dims.items()), {})
        sizes = _sizes(rule, config)
        own[sizes] = min(estimate.time_us, own.get(sizes, inf))
    offered = sorted({sizes for own in timed.values() for sizes in _fastest(own)}, reverse=True)
    problems = [dict(dims) for dims in timed]
    costs = [
        _costs(rule, dims, own, offered) for dims, own in zip(problems, timed.values(), strict=True)
    ]
    names = [name for name, least in rule.least if least < dict(rule.most)[name]]
    features = [c for n in range(1, _MOST_NAMES + 1) for c in combinations(names, n)]
    if not features:
        return None
    table = [[sum(log2(dims[name]) for name in of) for of in features] for dims in problems]
    fitted = DecisionTreeRegressor(min_samples_leaf=_FEWEST_IN_LEAF, random_state=0)
    found = fitted.fit(np.array(table), np.array(costs)).tree_
    nodes = [
        TreeNode(
            of=features[found.feature[place]],
            most=int(2 ** found.threshold[place]),
            below=int(found.children_left[place]),
            above=int(found.children_right[place]),
        )
        if found.children_left[place] > 0
        else _leaf(offered, found.value[place, :, 0])
        for place in range(found.node_count)
    ]
    made = replace(rule, costs=(), hbm=(), latency_us=0.0, tree=tuple(nodes))
    return made if rules.is_small(made) else None


def _sizes(rule: ShapeRule, config: Config) -> _Sizes:
    return tuple(config[axis.name] for axis in rule.axes)


def _fastest(own: Mapping[_Sizes, float]) -> list[_Sizes]:
    return [sizes for sizes, us in own.items() if us <= _NEAR * min(own.values())]


def _costs(
    rule: ShapeRule, dims: Mapping[str, int], own: Mapping[_Sizes, float], offered: list[_Sizes]
) -> list[float]:
    """Of all blocks that are offered, for one problem: logarithms of times, the least is 0."""

    def fitted(sizes: _Sizes) -> float:
        both = {**dims, **{axis.name: size for axis, size in zip(rule.axes, sizes, strict=True)}}
        return log(max(_LEAST_US, call_us(rule, both)))

    level = median(log(us) - fitted(sizes) for sizes, us in own.items())
    clipped = [
        tuple(
            min(size, dims.get(axis.dim, size)) for axis, size in zip(rule.axes, sizes, strict=True)
        )
        for sizes in offered
    ]
    times = [log(own[sizes]) if sizes in own else fitted(sizes) + level for sizes in clipped]
    return [one - min(times) for one in times]


def _leaf(offered: list[_Sizes], costs: Any) -> TreeNode:
    places = np.argsort(costs, kind="stable")[: rules.MOST_BLOCKS]
    times = tuple(np.exp(costs[places]).tolist())
    return TreeNode(blocks=tuple(offered[place] for place in places), times=times)
