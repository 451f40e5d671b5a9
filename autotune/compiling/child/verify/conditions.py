"""Which ways the comparisons of a kernel can go, by the ranges of what they compare: a small
problem that stays on one side of a number (the window of an attention, the step from which on
something is left out) says nothing of the other side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from autotune.compiling.child.trace.scalars import (
    adds_one,
    called_jaxpr,
    constants,
    counter_ends,
    open_jaxpr,
    parameters,
    stays,
)


class Range(NamedTuple):
    """Least and largest value of a number over all grid steps, turns of loops and elements."""

    low: float
    high: float


Known = Range | None
Read = Callable[[Any], Known]
Ways = tuple[frozenset[bool], ...]
"""Of each comparison, in the order of the program; empty where it depends on data."""

Ends = tuple[int | None, ...]
"""Of each access to an array, and each slice of one, by dimension: whether it stops short of the
end (-1), is at it (0), or goes on (1); None where that depends on data."""

_BOOLEAN = Range(0, 1)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x, y in product(a, b)]
    return Range(min(corners), max(corners))


def _quotient(a: Range, b: Range) -> Known:
    """Of integers that are not negative."""
    return Range(a.low // b.high, a.high // b.low) if a.low >= 0 and b.low > 0 else None


def _remainder(a: Range, b: Range) -> Known:
    if a.low < 0 or b.low <= 0:
        return None
    return a if a.high < b.low else Range(0, b.high - 1)


_RANGES: dict[str, Callable[..., Known]] = {
    "add": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "mul": _product,
    "div": _quotient,
    "rem": _remainder,
    "shift_left": lambda a, b: _product(a, Range(2.0**b.low, 2.0**b.high)),
    "neg": lambda a: Range(-a.high, -a.low),
    "max": lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)),
    "min": lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)),
    "sign": lambda a: Range(*np.sign(a)),
    "select_n": lambda _, *cases: Range(min(c.low for c in cases), max(c.high for c in cases)),
    **dict.fromkeys(("and", "or", "not", "xor", "eq", "ne", "lt", "le", "gt", "ge"),
                    lambda *_: _BOOLEAN),
    **dict.fromkeys(("convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "transpose",
                     "copy", "stop_gradient", "slice"), lambda a: a),
}  # fmt: skip

_ORDERED = {"lt": 0, "ge": 0, "min": 0, "max": 0, "div": 0, "rem": 0, "gt": 1, "le": 1}
"""Comparisons, and whether equal numbers go with the smaller ones."""


_GROWING = ("mul", "shift_left")


def ways_of(
    bodies: Iterable[tuple[Any, Sequence[Known]]], grid: Sequence[int | None] = ()
) -> tuple[Ways, Ends]:
    """Of functions, kernel bodies and index maps, each with what is known of its arguments."""
    walker = _ConditionWalker(grid)
    for jaxpr, given in bodies:
        walker.walk(jaxpr, given)
    return tuple(walker.ways), tuple(walker.ends)


def results_of(jaxpr: Any, given: Sequence[Known]) -> list[Known]:
    """Of an index map."""
    return _ConditionWalker(()).walk(jaxpr, given)


def goes_all_ways(small: Ways, real: Ways) -> bool:
    """Whether each comparison goes all ways that it goes in the real problem; True for another
    program."""
    return len(small) != len(real) or all(r <= s or not s for s, r in zip(small, real, strict=True))


def ends_alike(small: Ends, real: Ends) -> bool:
    """Whether what stops short of an end does so in a small problem, and what reaches it reaches
    it: a constant that is half of a real block may be all of a small one. True for another
    program."""
    return len(small) != len(real) or all(
        s is None or r is None or r > 0 or s == r for s, r in zip(small, real, strict=True)
    )


def end_of(last: Known, size: int) -> int | None:
    """``last``: the index of what comes last."""
    return None if last is None else int(np.sign(last.high + 1 - size))


def up_to(size: int | None) -> Known:
    """An index into so many."""
    return None if size is None else Range(0, max(size - 1, 0))


class _ConditionWalker:
    def __init__(self, grid: Sequence[int | None]) -> None:
        self.grid, self.ways, self.ends = grid, list[frozenset[bool]](), list[int | None]()

    def walk(
        self, jaxpr: Any, given: Sequence[Known], taken: Sequence[Any] | None = None
    ) -> list[Known]:
        """What is known of the results. ``taken``: the variables that are ``given``, its arguments
        by default."""
        plain = open_jaxpr(jaxpr)
        env: dict[Any, Known] = {var: _of_value(value) for var, value in constants(jaxpr)}
        env.update(zip(plain.invars if taken is None else taken, given, strict=False))

        def read(var: Any) -> Known:
            return _of_value(var.val) if hasattr(var, "val") else env.get(var)

        for eqn in plain.eqns:
            results = self._results(eqn, read)
            env.update(zip(eqn.outvars, results, strict=False))
        return [read(var) for var in plain.outvars]

    def _results(self, eqn: Any, read: Read) -> list[Known]:
        name, params, given = eqn.primitive.name, eqn.params, [read(var) for var in eqn.invars]
        self.ends += [end_of(last, size) for last, size in _accesses(eqn, read)]
        if name in _RANGES:
            return [self._compared(eqn, given)]
        if (called := called_jaxpr(eqn)) is not None:
            return self.walk(called, given)
        if name == "program_id":
            return [up_to(self.grid[params["axis"]])]
        if name == "num_programs":
            return [_of_value(self.grid[params["axis"]])]
        if name == "iota":
            return [self._rounded(params["dtype"], up_to(params["shape"][params["dimension"]]))]
        if name == "cond":
            for branch in params["branches"]:
                self.walk(branch, given[1:])
        elif name in ("scan", "while"):
            body = params["jaxpr" if name == "scan" else "body_jaxpr"]
            self.walk(body, _in_loop(eqn, open_jaxpr(body), given, read))
        elif name == "run_scoped":
            self.walk(params["jaxpr"], given, parameters(eqn, params["jaxpr"]))
        return []

    def _compared(self, eqn: Any, given: Sequence[Known]) -> Known:
        name = eqn.primitive.name
        if name == "convert_element_type":
            return self._rounded(eqn.params["new_dtype"], given[0])
        if name in _ORDERED or name in ("eq", "ne"):
            self._compare(name, *given)
        result = None if None in given else _RANGES[name](*given)
        if name in _GROWING:
            self._wrap(eqn.outvars[0].aval.dtype, result)
        return result

    def _wrap(self, dtype: Any, result: Known) -> None:
        """Whether integers stay below the end of their type; nothing is asked of others."""
        self.ways.append(frozenset([True]))
        if result is not None and np.issubdtype(dtype, np.integer):
            self.ways.pop()
            self._compare("le", result, _of_value(np.iinfo(dtype).max))

    def _compare(self, name: str, a: Known, b: Known) -> None:
        if a is None or b is None:
            self.ways.append(frozenset())
            return
        low, high = (end - _ORDERED.get(name, 0) for end in (a.low - b.high, a.high - b.low))
        ways = {low < 0, high < 0} if name in _ORDERED else {low <= 0 <= high, low == high == 0}
        if name in ("min", "max") and high == 0:
            ways.discard(False)  # equal numbers are no other way
        self.ways.append(frozenset(ways))

    def _rounded(self, dtype: Any, value: Known) -> Known:
        """Whether a type has all these integers: bfloat16 has those up to 256."""
        import jax.numpy as jnp

        if jnp.issubdtype(dtype, jnp.floating):
            self._compare("le", value, _of_value(2 ** (int(jnp.finfo(dtype).nmant) + 1)))
        return value


def _accesses(eqn: Any, read: Read) -> Iterator[tuple[Known, int]]:
    """The last index of each dimension that is accessed, and the size of that."""
    import jax
    from jax._src.state.indexing import NDIndexer

    if eqn.primitive.name == "slice":
        limits = map(_of_value, np.subtract(eqn.params["limit_indices"], 1))
        yield from zip(limits, eqn.invars[0].aval.shape, strict=True)
    tree = eqn.params.get("tree", eqn.params.get("args_tree"))
    if not hasattr(tree, "num_leaves"):
        return
    given = jax.tree_util.tree_unflatten(tree, eqn.invars[len(eqn.invars) - tree.num_leaves :])
    parts = jax.tree_util.tree_leaves(given, is_leaf=lambda each: isinstance(each, NDIndexer))
    for indexer in (part for part in parts if isinstance(part, NDIndexer)):
        for index, size in zip(indexer.indices, indexer.shape, strict=True):
            first, more = getattr(index, "start", index), getattr(index, "size", 1) - 1
            at = read(first) if hasattr(first, "aval") else _of_value(first)
            yield at and Range(at.low, at.high + more * getattr(index, "stride", 1)), size


def _of_value(value: Any) -> Known:
    numbers = np.asarray(value)
    if not numbers.size or not np.issubdtype(numbers.dtype, np.number):
        return None
    return Range(float(numbers.min()), float(numbers.max()))


def _in_loop(eqn: Any, body: Any, given: Sequence[Known], read: Read) -> list[Known]:
    """What is known of the arguments of its body: what stays, and what counts up by one. What a
    scan carries keeps its shape: the names of its parameters differ between versions of JAX."""
    count, skipped, turns = _alike(body.outvars, eqn.outvars), 0, eqn.params.get("length")
    if turns is None:
        skipped, consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        first, limit = map(read, counter_ends(eqn) or (None, None))
        turns = first and limit and limit.high - first.low
    else:
        consts = _alike(body.invars, eqn.invars) - count
    inside = list(given[skipped : skipped + consts + count])
    for place, start in enumerate(inside[consts:]):
        if stays(body, consts, place):
            continue
        if start is None or turns is None or not adds_one(body, consts, place):
            inside[consts + place] = None
        else:
            inside[consts + place] = Range(start.low, start.high + max(turns - 1, 0))
    return inside


def _alike(inner: Sequence[Any], outer: Sequence[Any]) -> int:
    return sum(a.aval.shape == b.aval.shape for a, b in zip(inner, outer, strict=True))
