"""The untried candidates next to the best: one axis moved a little, or another grid order."""

from collections.abc import Collection, Sequence
from itertools import takewhile
from math import log2

from autotune.domain.problem import AxisValue, Config
from autotune.domain.trace import Trace
from autotune.estimating.space import Candidate

# In doublings of a size: how far another grid order, or another value that is no size, is away.
_ANOTHER_KIND = 1.0


class Neighbours:
    """Of candidates that do not change."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._near: tuple[int, list[tuple[float, int]]] = -1, []

    def of(self, best: int, untried: Collection[int]) -> list[int]:
        """Indices of the nearest untried candidates that differ from ``best`` in one axis or in the
        grid order alone. Nearness is in doublings, whatever is known of what lies between. Blocks
        that fit their arrays have no neighbours that reach over the edge."""
        if self._near[0] != best:
            self._near = best, self._by_distance(best)
        near = (pair for pair in self._near[1] if pair[1] in untried)
        nearest = next(near, None)
        if nearest is None:
            return []
        alike = takewhile(lambda pair: pair[0] == nearest[0], near)
        return [nearest[1], *(number for _, number in alike)]

    def _by_distance(self, best: int) -> list[tuple[float, int]]:
        here, whole = self._candidates[best].config, not is_ragged(self._candidates[best].trace)
        steps = ((_step(here, candidate.config), n) for n, candidate in enumerate(self._candidates))
        near = sorted((step, number) for step, number in steps if step is not None)
        return [pair for pair in near if not (whole and is_ragged(self._candidates[pair[1]].trace))]


def is_ragged(trace: Trace) -> bool:
    """Whether some block reaches over the edge of its array: masks, or code for two sizes."""
    return any(
        size % block
        for op in trace.operands
        if op.is_pipelined
        for size, block in zip(op.shape, op.block, strict=True)
    )


def _step(here: Config, there: Config) -> float | None:
    """None where more than one thing differs."""
    pairs = zip(here.axes, there.axes, strict=True)
    moved = [(old, new) for (_, old), (_, new) in pairs if old != new]
    reordered = here.grid_order != there.grid_order
    if len(moved) + reordered > 1:
        return None
    return _distance(*moved[0]) if moved else _ANOTHER_KIND * reordered


def _distance(old: AxisValue, new: AxisValue) -> float:
    if isinstance(old, str | bool) or isinstance(new, str | bool) or old <= 0 or new <= 0:
        return _ANOTHER_KIND
    return abs(log2(new / old))
