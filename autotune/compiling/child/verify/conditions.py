"""Which ways the comparisons of a kernel can go, by the ranges of what they compare: a small
problem that stays on one side of a number (the window of an attention, the step from which on
something is left out) says nothing of the other side."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from autotune.compiling.child.trace import scalars
from autotune.compiling.child.trace.calls import walked


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
_WORD = 4  # bytes
_RIGHT = ("shift_right_arithmetic", "shift_right_logical")


def _at_ends(function: Callable[..., float], *given: Range) -> Range:
    results = [function(*each) for each in product(*given)]
    return Range(min(results), max(results))


def _bit(number: float) -> float:
    return float(2 ** int(min(number, 64)))  # an integer has no more


def _quotient(a: Range, b: Range) -> Known:
    """Of integers that are not negative."""
    return Range(a.low // b.high, a.high // b.low) if a.low >= 0 and b.low > 0 else None


def _remainder(a: Range, b: Range) -> Known:
    if a.low < 0 or b.low <= 0:
        return None
    return a if a.high < b.low else Range(0, b.high - 1)


def _absolute(a: Range) -> Range:
    return Range(max(a.low, -a.high, 0), max(-a.low, a.high))


def _chosen(which: Range, *cases: Range) -> Range:
    taken = cases[int(which.low) : int(which.high) + 1]
    return Range(min(c.low for c in taken), max(c.high for c in taken))


def _common_bits(a: Range, b: Range) -> Known:
    """A mask that is negative takes the last bits away."""
    known = [each.high for each in (a, b) if each.low >= 0]
    return Range(0, min(known)) if known else None


def _all_bits(a: Range, b: Range) -> Known:
    most = int(max(a.high, b.high))
    return Range(0, 2 ** most.bit_length() - 1) if min(a.low, b.low) >= 0 else None


_AT_ENDS: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "shift_left": lambda a, b: a * _bit(b),
    **dict.fromkeys(_RIGHT, lambda a, b: a // _bit(b)),
    "neg": operator.neg,
    "max": max,
    "min": min,
    "clamp": lambda low, a, high: min(max(low, a), high),
    **{name: getattr(np, name) for name in ("sign", "floor", "ceil", "round")},
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "transpose", "copy",
                     "stop_gradient", "slice", "reduce_max", "reduce_min"), lambda a: a),
}  # fmt: skip
"""Functions whose least and largest results are at the ends of what they are given."""

_RANGES: dict[str, Callable[..., Known]] = {
    "abs": _absolute,
    "div": _quotient,
    "rem": _remainder,
    "select_n": _chosen,
    "and": _common_bits,
    **dict.fromkeys(("or", "xor"), _all_bits),
    **dict.fromkeys(("not", "eq", "ne", "lt", "le", "gt", "ge"), lambda *_: _BOOLEAN),
    **{name: partial(_at_ends, function) for name, function in _AT_ENDS.items()},
}

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


def narrow_sums(jaxpr: Any, terms: int) -> Iterator[frozenset[bool]]:
    """Of each sum that a body reads, adds to and stores: whether it has few ``terms`` for its type.
    One in bfloat16 is off by more with each, and stands still after some 256."""
    import jax.numpy as jnp

    none: tuple[frozenset[Any], frozenset[Any]] = frozenset(), frozenset()
    sources: dict[Any, tuple[frozenset[Any], frozenset[Any]]] = {}  # what is read, and added to
    for eqn in walked(scalars.open_jaxpr(jaxpr)):
        name = eqn.primitive.name
        given = [none if hasattr(var, "val") else sources.get(var, none) for var in eqn.invars]
        read, added = (none[0].union(*parts) for parts in zip(none, *given, strict=True))
        if name == "addupdate" or (name == "swap" and eqn.invars[0] in given[1][1]):
            dtype = eqn.invars[0].aval.dtype
            if jnp.issubdtype(dtype, jnp.floating):
                yield frozenset({True, terms <= 2 ** int(jnp.finfo(dtype).nmant) // 4})
            else:
                yield frozenset({True, terms <= jnp.iinfo(dtype).max // 127})
        read |= {eqn.invars[0]} if name == "get" else none[0]
        added |= read if name in ("add", "sub") else none[0]
        sources.update(dict.fromkeys(eqn.outvars, (read, added)))


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
        plain = scalars.open_jaxpr(jaxpr)
        env: dict[Any, Known] = {var: _of_value(value) for var, value in scalars.constants(jaxpr)}
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
        if name in _RANGES or name == "convert_element_type":
            return [self._compared(eqn, given)]
        if (called := scalars.called_jaxpr(eqn)) is not None:
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
            self.walk(body, _in_loop(eqn, scalars.open_jaxpr(body), given, read))
        elif name == "run_scoped":
            self.walk(params["jaxpr"], given, scalars.parameters(eqn, params["jaxpr"]))
        return []

    def _compared(self, eqn: Any, given: Sequence[Known]) -> Known:
        name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
        if name == "convert_element_type":
            return self._rounded(dtype, given[0])
        if name in _ORDERED or name in ("eq", "ne"):
            ways = self._compare(name, *given)
            if ways and dtype == np.bool_:
                truths = [way is (name in ("lt", "le", "eq")) for way in ways]
                return Range(min(truths), max(truths))
        for compared, a, b in _limits(name, given) if dtype != np.bool_ else ():
            self._compare(compared, a, b)
        result = None if None in given else _RANGES[name](*given)
        if name in _GROWING:
            self._wrap(dtype, result)
        return result

    def _wrap(self, dtype: Any, result: Known) -> None:
        """Whether integers stay below the end of their type; nothing is asked of others."""
        self.ways.append(frozenset([True]))
        if result is not None and np.issubdtype(dtype, np.integer):
            self.ways.pop()
            self._compare("le", result, _of_value(np.iinfo(dtype).max))

    def _compare(self, name: str, a: Known, b: Known) -> frozenset[bool]:
        if a is None or b is None:
            self.ways.append(frozenset())
            return self.ways[-1]
        low, high = (end - _ORDERED.get(name, 0) for end in (a.low - b.high, a.high - b.low))
        ways = {low < 0, high < 0} if name in _ORDERED else {low <= 0 <= high, low == high == 0}
        if name in ("min", "max") and high == 0:
            ways.discard(False)  # equal numbers are no other way
        self.ways.append(frozenset(ways))
        return self.ways[-1]

    def _rounded(self, dtype: Any, value: Known) -> Known:
        """Whether a type has all these integers: bfloat16 has those up to 256, int8 up to 127."""
        import jax.numpy as jnp

        if jnp.issubdtype(dtype, jnp.floating):
            self._compare("le", value, _of_value(2 ** (int(jnp.finfo(dtype).nmant) + 1)))
        elif jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize < _WORD:
            fits = self._compare("le", value, _of_value(jnp.iinfo(dtype).max)) == {True}
            return value if fits else None
        return value


def _limits(name: str, given: Sequence[Known]) -> Iterator[tuple[str, Known, Known]]:
    """What else than a comparison has two ways, as one, with the number where they part."""
    if name == "clamp":
        low, number, high = given
        yield from (("max", low, number), ("min", number, high))
    elif name in _RIGHT:
        yield "div", given[0], given[1] and _at_ends(_bit, given[1])
    elif name == "abs":
        yield "ge", given[0], Range(0, 0)
    elif name == "and":
        number, mask = sorted(given, key=lambda each: each is not None and each.low == each.high)
        first = mask and _of_value(mask.low + 1 if mask.low >= 0 else -mask.low)
        yield "rem", number, first


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
        first, limit = map(read, scalars.counter_ends(eqn) or (None, None))
        turns = first and limit and limit.high - first.low
    else:
        consts = _alike(body.invars, eqn.invars) - count
    inside = list(given[skipped : skipped + consts + count])
    for place, start in enumerate(inside[consts:]):
        if scalars.stays(body, consts, place):
            continue
        if start is None or turns is None or not scalars.adds_one(body, consts, place):
            inside[consts + place] = None
        else:
            inside[consts + place] = Range(start.low, start.high + max(turns - 1, 0))
    return inside


def _alike(inner: Sequence[Any], outer: Sequence[Any]) -> int:
    return sum(a.aval.shape == b.aval.shape for a, b in zip(inner, outer, strict=True))
