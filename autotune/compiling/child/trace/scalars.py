"""Scalar arithmetic of a jaxpr over a whole grid at once, in NumPy.

A value is an array that broadcasts against the grid: ``program_id(1)`` of a (4, 8) grid is
``[[0 … 7]]`` with shape (1, 8). What does not depend on an axis has size 1 there, so most values
stay tiny however many steps the grid has. None stands for a value that is not known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Value = Any  # np.ndarray broadcastable against the grid, or None when unknown


def _div(a: Value, b: Value) -> Value:
    """Integer division truncates towards zero in XLA."""
    if np.issubdtype(np.asarray(a).dtype, np.integer):
        safe = np.where(b == 0, 1, b)
        return (np.sign(a) * np.sign(safe)) * (np.abs(a) // np.abs(safe))
    return a / b


def _rem(a: Value, b: Value) -> Value:
    """The remainder has the sign of the dividend in XLA."""
    return np.fmod(a, np.where(b == 0, 1, b))


def _not(a: Value) -> Value:
    return np.logical_not(a) if np.asarray(a).dtype == bool else np.invert(a)


_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": _rem,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "shift_right_logical": np.right_shift,
}

_UNARY: dict[str, Callable[[Value], Value]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "not": _not,
    "floor": np.floor,
    "ceil": np.ceil,
    "stop_gradient": lambda a: a,
    "copy": lambda a: a,
    "squeeze": lambda a: a,
    "reshape": lambda a: a,
    "broadcast_in_dim": lambda a: a,
}

_CALLS = (
    "pjit",
    "jit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_vmap_call",
    "remat",
    "remat2",
    "checkpoint",
)


def axis_index(grid: Sequence[int], axis: int) -> Value:
    """``program_id(axis)`` at every point of the grid."""
    shape = [1] * len(grid)
    shape[axis] = grid[axis]
    return np.arange(grid[axis], dtype=np.int64).reshape(shape)


def constant(value: Any, rank: int) -> Value:
    """A scalar that is the same at every point of the grid; None for a larger array."""
    array = np.asarray(value)
    return array.reshape((1,) * rank) if array.size == 1 else None


def evaluate(jaxpr: Any, args: Sequence[Value], refs: Mapping[int, Any], rank: int) -> list[Value]:
    """The outputs of an index map: a jaxpr of scalars that may read scalar-prefetch references.

    ``refs`` maps positions among the arguments to the contents of the reference (NumPy) or None.
    """
    env = ScalarEnvironment(jaxpr, args, refs, rank)
    for eqn in open_jaxpr(jaxpr).eqns:
        env.run(eqn)
    return [env.read(var) for var in open_jaxpr(jaxpr).outvars]


def open_jaxpr(jaxpr: Any) -> Any:
    """The plain jaxpr inside a closed one (which it was differs between JAX versions)."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def source_of(jaxpr: Any) -> tuple[str, int] | None:
    """File and line of the function that was traced; None where JAX does not say it."""
    info = str(getattr(getattr(open_jaxpr(jaxpr), "debug_info", None), "func_src_info", ""))
    file, _, line = info.rpartition(" at ")[2].rpartition(":")
    return (file, int(line)) if file and line.isdigit() else None


def constants(jaxpr: Any) -> Iterator[tuple[Any, Any]]:
    """What a jaxpr closes over and its value. One that a jaxpr around it computes has none here:
    from jax 0.11 on that is a tracer among the constants."""
    import jax

    for var, const in zip(open_jaxpr(jaxpr).constvars, getattr(jaxpr, "consts", ()), strict=False):
        if not isinstance(const, jax.core.Tracer):
            yield var, const


def parameters(eqn: Any, jaxpr: Any) -> Sequence[Any]:
    """The variables inside ``jaxpr`` that the operands of ``eqn`` become: ``run_scoped`` hands over
    what its body closes over, and the body's arguments are new memory."""
    plain = open_jaxpr(jaxpr)
    inner_vars: Sequence[Any] = (
        plain.constvars if eqn.primitive.name == "run_scoped" else plain.invars
    )
    return inner_vars


def called_jaxpr(eqn: Any) -> Any | None:
    """The jaxpr of an equation that only calls it (``pjit`` and its kin), or None."""
    if eqn.primitive.name not in _CALLS:
        return None
    return next(
        (eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if k in eqn.params),
        None,
    )


class ScalarEnvironment:
    """Values of the variables of one jaxpr."""

    def __init__(
        self, jaxpr: Any, args: Sequence[Value], refs: Mapping[int, Any], rank: int
    ) -> None:
        self.rank = rank
        self.values: dict[Any, Value] = {}
        self.contents: dict[Any, Any] = {}
        for var, const in constants(jaxpr):
            self.values[var] = constant(const, rank) if hasattr(const, "shape") else None
        for position, var in enumerate(open_jaxpr(jaxpr).invars):
            if position in refs:
                self.contents[var] = refs[position]
            elif position < len(args):
                self.values[var] = args[position]

    def read(self, var: Any) -> Value:
        return constant(var.val, self.rank) if hasattr(var, "val") else self.values.get(var)

    def run(self, eqn: Any) -> None:
        """Evaluate one equation; its outputs are unknown when anything it needs is."""
        name = eqn.primitive.name
        if name == "get":
            outputs = [self._load(eqn)]
        elif (inner := called_jaxpr(eqn)) is not None:
            outputs = self._call(inner, eqn.invars)
        elif all(v.aval.shape == () for v in eqn.outvars if hasattr(v.aval, "shape")):
            outputs = self._scalar(name, eqn)
        else:
            outputs = []
        for var, value in zip(eqn.outvars, outputs, strict=False):
            self.values[var] = value

    def _call(self, inner: Any, invars: Sequence[Any]) -> list[Value]:
        refs = {n: self.contents[v] for n, v in enumerate(invars) if self._is_ref(v)}
        return evaluate(inner, [self.read(v) for v in invars], refs, self.rank)

    def _is_ref(self, var: Any) -> bool:
        return not hasattr(var, "val") and var in self.contents

    def _scalar(self, name: str, eqn: Any) -> list[Value]:
        args = [self.read(v) for v in eqn.invars]
        if any(a is None for a in args):
            return [None] * len(eqn.outvars)
        if name in _BINARY and len(args) == 2:
            return [_BINARY[name](*args)]
        if name in _UNARY and args:
            return [_UNARY[name](args[0])]
        if name == "select_n":
            return [_select(args)]
        if name == "clamp":
            return [np.minimum(np.maximum(args[1], args[0]), args[2])]
        if name == "integer_pow":
            return [args[0] ** eqn.params["y"]]
        if name == "convert_element_type":
            return [args[0].astype(_numpy_type(eqn.params["new_dtype"]))]
        return [None] * len(eqn.outvars)

    def _load(self, eqn: Any) -> Value:
        """A scalar read of a scalar-prefetch reference whose contents are known."""
        contents = self.contents.get(eqn.invars[0])
        indices = scalar_indices(eqn, self.read)
        if contents is None or indices is None or len(indices) != np.ndim(contents):
            return None
        bounds = np.shape(contents)
        safe = [np.clip(i, 0, n - 1) for i, n in zip(indices, bounds, strict=True)]
        return np.asarray(contents)[tuple(np.broadcast_arrays(*safe))] if safe else None


def mean_turns(eqn: Any, env: ScalarEnvironment) -> float | None:
    """How often a ``while`` runs, in the mean over the grid; None where its ends are not known."""
    start, limit = map(env.read, counter_ends(eqn) or (None, None))
    if start is None or limit is None:
        return None
    return float(np.mean(np.maximum(limit - start, 0)))


def counter_ends(eqn: Any) -> tuple[Any, Any] | None:
    """The variables with start and limit of a ``while`` that counts up by one to a limit that
    stays, as ``fori_loop`` makes it; None for any other."""
    condition, body = (open_jaxpr(eqn.params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    outer, consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    if [step_eqn.primitive.name for step_eqn in condition.eqns] != ["lt"]:
        return None
    known = {var: place - outer for place, var in enumerate(condition.invars)}
    ends = condition.eqns[0].invars
    places = [None if hasattr(var, "val") else known.get(var) for var in ends]
    if places[0] is None or not adds_one(body, consts, places[0]):
        return None
    if places[1] is not None and places[1] >= 0 and not stays(body, consts, places[1]):
        return None
    start, limit = (
        var if place is None else eqn.invars[place + outer + (consts if place >= 0 else 0)]
        for var, place in zip(ends, places, strict=True)
    )
    return start, limit


def adds_one(body: Any, consts: int, place: int) -> bool:
    """Whether a loop's body adds one to an element of what it carries."""
    step = next(
        (candidate for candidate in body.eqns if body.outvars[place] in candidate.outvars), None
    )
    if place < 0 or step is None or step.primitive.name != "add":
        return False
    literals = [var.val for var in step.invars if hasattr(var, "val")]
    return body.invars[consts + place] in step.invars and literals == [1]


def stays(body: Any, consts: int, place: int) -> bool:
    return body.outvars[place] is body.invars[consts + place]


def scalar_indices(eqn: Any, read: Callable[[Any], Value]) -> list[Value] | None:
    """The index values of a ``get`` of one element, or None when it is a slice or not known."""
    import jax

    leaves = [read(v) for v in eqn.invars[1:]]
    if any(leaf is None for leaf in leaves):
        return None
    transforms = jax.tree_util.tree_unflatten(eqn.params["tree"], leaves)
    if len(transforms) != 1 or not hasattr(transforms[0], "indices"):
        return None
    indices = list(transforms[0].indices)
    if any(not isinstance(i, (int, np.ndarray, np.integer)) for i in indices):
        return None
    return [np.asarray(i) for i in indices]


def _select(args: list[Value]) -> Value:
    which, *cases = args
    return (
        np.choose(which.astype(np.int64), np.broadcast_arrays(*cases))
        if len(cases) != 2
        else (np.where(which, cases[1], cases[0]))
    )


def _numpy_type(dtype: Any) -> Any:
    """int32 arithmetic is done in 64 bits: indices never wrap on purpose."""
    kind = np.dtype(dtype)
    return np.int64 if np.issubdtype(kind, np.integer) else kind


def pipeline_steps(loop: Any, counted: Mapping[Any, Any]) -> Sequence[int | None]:
    """Steps of each axis of an ``emit_pipeline``. Only a loop is left of one, which ends by
    counting on from the last axis: a count that has come to the steps of its axis becomes 0, and
    that of the axis before goes on."""
    eqns = open_jaxpr(loop.params.get("body_jaxpr", loop.params.get("jaxpr"))).eqns
    tests = {eqn.outvars[0]: eqn.invars for eqn in eqns if eqn.primitive.name == "eq"}
    wider = {id(e.outvars[0]): e for e in eqns if e.primitive.name == "convert_element_type"}
    steps: list[Any] | None = None
    for eqn in eqns:
        if eqn.primitive.name == "select_n" and len(eqn.invars) == 3:
            chosen, count, other = eqn.invars
            if hasattr(chosen, "val"):  # the last axis is always counted
                steps = []
            elif steps is not None and getattr(other, "val", None) == 0:
                compared, size = tests.get(chosen, (None, None))
                is_count = count in (compared, *getattr(wider.get(id(compared)), "invars", ()))
                size = size.val if hasattr(size, "val") else counted.get(size)
                steps[:0] = [size] if is_count else []
    return [None if size is None else int(size) for size in steps or ()]
