"""What a kernel body does, from its jaxpr: arithmetic, and which scratch outlives a grid step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Self

import numpy as np

from autotune.compiling.child.trace import scalars as jaxprs
from autotune.domain.problem import bits

# Columns of a product that all matrix units of a chip hold at a time (4 x 128 or 2 x 256). Narrower
# rows come out whole, and the compiler can finish one before it starts the next.
_MXU_COLUMNS = 512

_Tags = set[int]


def kept_bytes(jaxpr: Any) -> int:
    """Bytes of the largest matrix product that is used again together with its own reduction.

    Softmax is the example: all scores are needed for their maximum, and once more after it. Wide
    rows come out of the matrix unit piece by piece, all first pieces before any second one, so the
    compiler keeps them in VMEM, though they are no buffer of the kernel. Looks at the equations of
    ``jaxpr`` itself, not into what they call.
    """
    return max(_product_bytes(jaxprs.open_jaxpr(jaxpr)), default=0)


def _product_bytes(jaxpr: Any) -> Iterator[int]:
    """Follows each product (by the number of its equation) and what its reductions lead to."""
    same: dict[Any, _Tags] = {}  # variable → products that it is, element by element
    reduced: dict[Any, _Tags] = {}  # variable → products whose reduction it depends on
    for number, eqn in enumerate(jaxpr.eqns):
        given = [v for v in eqn.invars if not hasattr(v, "val")]
        before = set().union(*(same.get(v, ()) for v in given))
        after = set().union(*(reduced.get(v, ()) for v in given))
        if not eqn.primitive.name.startswith("reduce_"):
            yield from (_bytes(jaxpr.eqns[product]) for product in before & after)
        for var in eqn.outvars:
            shape = getattr(var.aval, "shape", None)
            same[var] = {p for p in before if shape == jaxpr.eqns[p].outvars[0].aval.shape}
            reduced[var] = after | (before if eqn.primitive.name.startswith("reduce_") else set())
        if eqn.primitive.name == "dot_general":
            same[eqn.outvars[0]] = {number}


def _bytes(eqn: Any) -> int:
    aval = eqn.outvars[0].aval
    if aval.shape[-1] <= _MXU_COLUMNS:
        return 0
    return int(prod(aval.shape)) * bits(str(aval.dtype)) // 8


_TRANSCENDENTAL = {
    "exp",
    "exp2",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "logistic",
    "erf",
    "erf_inv",
    "rsqrt",
    "sqrt",
    "pow",
    "sin",
    "cos",
    "cbrt",
    "tan",
    "atan2",
}

_ARITHMETIC = {
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "neg",
    "abs",
    "select_n",
    "integer_pow",
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "eq",
    "lt",
    "le",
    "gt",
    "ge",
    "ne",
    "and",
    "or",
    "cumsum",
}

_ACCESSES = ("get", "swap", "load", "store", "dma", "semaphore")  # in names of primitives

_WRITTEN: tuple[int, ...] = ()  # a reference written at every step; otherwise: reset axes


@dataclass(slots=True)
class Body:
    """Totals over the whole grid; ``sure_flops``: what runs for certain, by dtype of its product.
    ``transcendentals``: of the ``vector_ops``.
    ``accesses``: loads, stores, and operations of DMAs and semaphores. ``carried``: scratch number
    → reset axes (None: no reset). ``is_bounded``: the length of every loop is known."""

    is_bounded: bool = True
    accesses: float = 0.0
    mxu_flops: float = 0.0
    sure_flops: dict[str, float] = field(default_factory=dict)
    vector_ops: float = 0.0
    transcendentals: float = 0.0
    mxu_dtype: str | None = None
    kept_bytes: int = 0
    carried: dict[int, tuple[int, ...] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def analyse(
    jaxpr: Any,
    grid: Sequence[int],
    scalars: Sequence[Any],
    scratch: Sequence[int],
    named: Sequence[int] | None = None,
) -> Body:
    """Walk a kernel body. ``scalars``: contents of the leading references, scalar prefetch and
    inputs (None when unknown); ``scratch``: positions of the scratch references among the body's
    arguments; ``named``: the grid axes that the body counts (``vmap`` adds others), all by default.

    A reference counts as written by a step when all of it is stored, or a part whose place does
    not depend on the grid; what is left unwritten then is found by verification, not here.
    """
    body = Body()
    if not prod(grid):  # of no sequence that decodes, say
        return body
    env = jaxprs.ScalarEnvironment(jaxpr, [], dict(enumerate(scalars)), len(grid))
    names = {var: n for n, var in enumerate(jaxprs.open_jaxpr(jaxpr).invars) if n in set(scratch)}
    _Walker(body, grid, named).walk(jaxprs.open_jaxpr(jaxpr), _Scope(env, names, {}))
    body.accesses *= prod(grid)
    body.mxu_flops *= prod(grid)
    body.sure_flops = {dtype: flops * prod(grid) for dtype, flops in body.sure_flops.items()}
    body.vector_ops *= prod(grid)
    body.transcendentals *= prod(grid)
    return body


_State = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a jaxpr is walked. ``names``: the number of each reference to a scratch; ``state``: how
    a scratch was last written; ``weight``: share of steps that come here."""

    env: jaxprs.ScalarEnvironment
    names: dict[Any, int]
    state: _State
    weight: float = 1.0
    in_loop: bool = False

    def inner(self, jaxpr: Any, taken: Sequence[Any], given: Sequence[Any]) -> Self:
        """Inside a jaxpr whose variables ``taken`` are ``given``."""
        inside, names = jaxprs.ScalarEnvironment(jaxpr, [], {}, self.env.rank), dict[Any, int]()
        for var, outer in zip(taken, given, strict=False):
            if _hashable(outer, self.env.contents):
                inside.contents[var] = self.env.contents[outer]
            else:
                inside.values[var] = self.env.read(outer)
            if _hashable(outer, self.names):
                names[var] = self.names[outer]
        return replace(self, env=inside, names=names)


class _Walker:
    def __init__(self, body: Body, grid: Sequence[int], named: Sequence[int] | None) -> None:
        self.body, self.grid = body, grid
        self.named = range(len(grid)) if named is None else named

    def walk(self, jaxpr: Any, scope: _Scope) -> None:
        self.body.kept_bytes = max(self.body.kept_bytes, kept_bytes(jaxpr))
        for eqn in jaxpr.eqns:
            name, values = eqn.primitive.name, scope.env.values
            if name == "program_id":
                values[eqn.outvars[0]] = jaxprs.axis_index(
                    self.grid, self.named[eqn.params["axis"]]
                )
            elif name == "num_programs":
                extent = self.grid[self.named[eqn.params["axis"]]]
                values[eqn.outvars[0]] = jaxprs.constant(extent, len(self.grid))
            elif name == "cond":
                self._branch(eqn, scope)
            elif name in ("scan", "while"):
                self._loop(eqn, scope)
            elif (inner := jaxprs.called_jaxpr(eqn)) is not None or name == "run_scoped":
                self._enter(inner or eqn.params["jaxpr"], eqn, scope)
            else:
                self._access(eqn, scope)
                self._count(eqn, scope.weight)
                scope.env.run(eqn)

    def _enter(self, inner: Any, eqn: Any, scope: _Scope) -> None:
        inside = scope.inner(inner, jaxprs.parameters(eqn, inner), eqn.invars)
        plain = jaxprs.open_jaxpr(inner)
        self.walk(plain, inside)
        for var, out in zip(eqn.outvars, plain.outvars, strict=False):
            scope.env.values[var] = inside.env.read(out)

    def _loop(self, eqn: Any, scope: _Scope) -> None:
        """A loop body counts once per iteration; one of unknown length counts once."""
        if eqn.primitive.name == "scan":
            jaxpr, invars, turns = eqn.params["jaxpr"], list(eqn.invars), eqn.params["length"]
        else:
            jaxpr, turns = eqn.params["body_jaxpr"], jaxprs.mean_turns(eqn, scope.env)
            invars = list(eqn.invars[eqn.params["cond_nconsts"] :])
        if turns is None:
            self.body.is_bounded = False
            self.body.notes.append(
                "operations in a loop of unknown length are counted once; the time is that of the "
                "instructions"
            )
        plain = jaxprs.open_jaxpr(jaxpr)
        inside = scope.inner(jaxpr, plain.invars, invars)
        inside.env.values.clear()  # what is carried changes from turn to turn
        # In a branch that some steps take, these may be the steps with fewer turns.
        is_unsure = turns is None or (scope.weight != 1.0 and eqn.primitive.name == "while")
        times, sure = scope.weight * (1 if turns is None else turns), dict(self.body.sure_flops)
        self.walk(plain, replace(inside, weight=times, in_loop=True))
        if is_unsure:
            self.body.sure_flops = sure

    def _branch(self, eqn: Any, scope: _Scope) -> None:
        which, state = scope.env.read(eqn.invars[0]), scope.state
        ends: list[tuple[float, _State]] = []
        branches, before = eqn.params["branches"], self.body.sure_flops
        # Two that some steps take may have no step in common: of one alone the mean is certain.
        is_alone, sure = which is not None and scope.weight == 1.0, []
        for number, branch in enumerate(branches):
            taken = None if which is None else which == number
            share = 1.0 / len(branches) if taken is None else float(np.mean(taken))
            if share == 0.0:
                continue
            plain = jaxprs.open_jaxpr(branch)
            inside, after = scope.inner(branch, plain.invars, eqn.invars[1:]), dict(state)
            self.body.sure_flops = {}
            self.walk(plain, replace(inside, state=after, weight=scope.weight * share))
            scale = 1.0 if is_alone else share
            sure.append({dtype: n / scale for dtype, n in self.body.sure_flops.items()})
            reset = None if taken is None else _reset_axes(taken, self.grid)
            if share < 1.0 and reset is not None:
                state.update({s: reset for s in after if s not in state})
            ends.append((share, after))
        self.body.sure_flops = before
        for dtype in {dtype for counts in sure for dtype in counts}:
            self._sure(dtype, (sum if is_alone else min)(counts.get(dtype, 0.0) for counts in sure))
        self._merge(ends, state)

    def _merge(self, ends: list[tuple[float, _State]], state: _State) -> None:
        """What every branch that can be taken has written is written."""
        if ends:
            for scratch in set.intersection(*(set(after) for _, after in ends)):
                if all(after[scratch] == _WRITTEN for _, after in ends):
                    state[scratch] = _WRITTEN

    def _access(self, eqn: Any, scope: _Scope) -> None:
        touched = [(n, v) for n, v in enumerate(eqn.invars) if _hashable(v, scope.names)]
        for position, var in touched:
            scratch = scope.names[var]
            if eqn.primitive.name == "swap" and position == 0:
                self._write(eqn, scratch, scope)
            else:
                self._read(scratch, scope.state)

    def _write(self, eqn: Any, scratch: int, scope: _Scope) -> None:
        """The old value that ``swap`` returns is not read unless somebody uses it."""
        indices = [scope.env.read(v) for v in eqn.invars[2:]]
        known = all(i is not None and i.size == 1 for i in indices)
        unknown_in_loop = scope.in_loop and all(i is None or i.size == 1 for i in indices)
        if known or unknown_in_loop:
            scope.state[scratch] = _WRITTEN
        else:
            self._read(scratch, scope.state)

    def _read(self, scratch: int, state: _State) -> None:
        written = state.get(scratch)
        if written == _WRITTEN:
            return
        known = self.body.carried.get(scratch, ())
        if written is None or known is None:
            self.body.carried[scratch] = None
        else:
            self.body.carried[scratch] = tuple(sorted({*known, *written}))

    def _count(self, eqn: Any, weight: float) -> None:
        name = eqn.primitive.name
        if name == "dot_general":
            lhs, rhs = (v.aval for v in eqn.invars[:2])
            (lhs_contract, _), _ = eqn.params["dimension_numbers"]
            depth = prod(lhs.shape[d] for d in lhs_contract)
            flops = 2.0 * weight * depth * prod(eqn.outvars[0].aval.shape)
            self.body.mxu_flops += flops
            dtype = _wider(str(rhs.dtype), str(lhs.dtype)) or ""
            self.body.mxu_dtype = _wider(self.body.mxu_dtype, dtype)
            self._sure(dtype, flops)
        elif any(word in name for word in _ACCESSES):
            self.body.accesses += weight
        elif name in _ARITHMETIC or name in _TRANSCENDENTAL:
            shapes = [getattr(v.aval, "shape", ()) for v in (*eqn.invars, *eqn.outvars)]
            count = weight * max((prod(s) for s in shapes if s), default=0)
            self.body.vector_ops += count
            self.body.transcendentals += count * (name in _TRANSCENDENTAL)

    def _sure(self, dtype: str, flops: float) -> None:
        self.body.sure_flops[dtype] = self.body.sure_flops.get(dtype, 0.0) + flops


def _reset_axes(taken: Any, grid: Sequence[int]) -> tuple[int, ...] | None:
    """The axes that must all be at 0 for the branch, or None when the condition is another one."""
    axes = tuple(axis for axis in range(len(grid)) if taken.shape[axis] > 1)
    return axes if axes and int(taken.sum()) == 1 and bool(taken.reshape(-1)[0]) else None


def _wider(*dtypes: str | None) -> str | None:
    """The dtype that the matrix unit is slowest with, of those used."""
    order = ("int4", "int8", "uint8", "bfloat16", "float16", "float32")
    named = [d for d in dtypes if d is not None]
    return max(named, key=lambda d: order.index(d) if d in order else 3, default=None)


def _hashable(var: Any, table: Any) -> bool:
    return not hasattr(var, "val") and var in table
