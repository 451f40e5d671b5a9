"""What a call moves through HBM by its dimensions and blocks: read from what was compiled."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from math import ceil, prod
from typing import Any

import numpy as np
from scipy.optimize import nnls

from autotune.answering import rules
from autotune.domain.rule import HbmTerm, ShapeRule

_EXACT = 0.005  # of the traffic: a sum of arrays and how often each is read again is no fit
_MOST_NAMES = 3  # dimensions of an array
_MOST_AGAIN = 2  # axes that an array is read again for
_MOST_FORMS = 500
_LEAST_SHARE = 1e-4  # of the traffic of any row: what is less is rounding


def with_traffic(rule: ShapeRule, rows: Sequence[Any]) -> ShapeRule:
    """With the arrays that cross HBM, where they explain the traffic of all that was compiled in
    the usual order of the grid. They do not where XLA puts some into VMEM ahead of the call, or
    blocks are skipped."""
    usual = Counter(config.grid_order for _, config, *_ in rows).most_common(1)[0][0]
    own = [
        ({**dims, **dict(config.axes)}, estimate.memory_us)
        for dims, config, estimate, _ in rows
        if config.grid_order == usual
    ]
    forms = list(_forms(rule))
    if len(forms) > _MOST_FORMS or not all(us for _, us in own):
        return rule
    dim_of = {axis.name: axis.dim for axis in rule.axes}
    table = np.array([[array_us(form, dim_of, both) for form in forms] for both, _ in own])
    table /= np.array([us for _, us in own])[:, None]
    scale = table.max(axis=0)
    # where rows do not tell forms apart, the first one moves the least
    places = np.sort(np.unique((table / scale).round(9), axis=1, return_index=True)[1])
    table, scale = table[:, places], scale[places]
    found, _ = nnls(table / scale, np.ones(len(own)), maxiter=100 * len(places))
    if np.abs(table / scale @ found - 1).max() > _EXACT:
        return rule
    terms = tuple(
        replace(forms[place], us=float(us))
        for place, us, share in zip(places, found / scale, found, strict=True)
        if share > _LEAST_SHARE
    )
    return replace(rule, hbm=terms) if len(terms) <= rules.MOST_MOVED else rule


def _forms(rule: ShapeRule) -> Iterator[HbmTerm]:
    """Of a microsecond each."""
    cutting = [axis for axis in rule.axes if axis.dim]
    most = dict(rule.most)
    names = [name for name, least in rule.least if least < most[name]]
    for of in chain.from_iterable(combinations(names, n) for n in range(_MOST_NAMES + 1)):
        yield HbmTerm(us=1.0, of=of)
        inner = [axis.name for axis in cutting if axis.dim in of]
        outer = [axis.name for axis in cutting if axis.dim not in of]
        for count in range(1, _MOST_AGAIN + 1):
            for again in combinations(outer, count):
                for where in dict.fromkeys((*((one,) for one in inner), tuple(inner), again)):
                    if where:
                        yield HbmTerm(us=1.0, of=of, again=again, where=where)


def array_us(term: HbmTerm, dim_of: Mapping[str, str], both: Mapping[str, Any]) -> float:
    """One of the arrays of a call; ``both``: dimensions and sizes."""
    us: float = term.us * prod(both[name] for name in term.of)
    if any(both[name] < both[dim_of[name]] for name in term.where):
        us *= prod(ceil(both[dim_of[name]] / both[name]) for name in term.again)
    return us
