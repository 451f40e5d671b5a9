"""Finding each ``pallas_call`` in a function's jaxpr, how often it runs, and what is known of its
operands.

Kernels for a mesh of TensorCores (``pl.kernel``) are read as the ``pallas_call`` that they come to:
one step, every operand in HBM, copied by the kernel itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from itertools import chain
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from autotune.compiling.child.trace.blocks import memory_space
from autotune.compiling.child.trace.scalars import called_jaxpr, constants, open_jaxpr
from autotune.domain.problem import bits


def as_pallas_call(eqn: Any) -> Any | None:
    """What ``Call`` reads of a ``pallas_call``; None for any other equation, and for kernels of
    several meshes or of SparseCores."""
    call = as_any_kernel(eqn)
    return call if call is not None and cores_of(call) in ([], [TENSORCORE]) else None


TENSORCORE, SPARSECORE = "TensorCore", "SparseCore"


def meshes_of(eqn: Any) -> Sequence[Any]:
    """The meshes of cores that a kernel is written for; none of a ``pallas_call``."""
    if eqn.primitive.name == "core_map":
        return (eqn.params["mesh"],)
    return tuple(eqn.params.get("meshes", ()))


def cores_of(eqn: Any) -> list[str]:
    """One for each of its meshes."""
    kinds = [type(mesh).__name__ for mesh in meshes_of(eqn)]
    return [TENSORCORE if TENSORCORE in kind else SPARSECORE for kind in kinds]


def as_any_kernel(eqn: Any) -> Any | None:
    """The same of kernels for other cores, and the first of those for several meshes; None of what
    is no kernel."""
    if eqn.primitive.name == "pallas_call":
        return eqn
    if eqn.primitive.name not in ("mpmd_map", "core_map"):
        return None
    jaxpr = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["jaxprs"][0]
    refs = open_jaxpr(jaxpr).invars
    arrays = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    mapping = SimpleNamespace(
        grid=(),
        num_dynamic_grid_bounds=0,
        num_index_operands=0,
        num_inputs=len(eqn.invars),
        num_scratch_operands=len(refs) - len(arrays),
        block_mappings=[_whole(n, *pair) for n, pair in enumerate(zip(arrays, refs, strict=False))],
    )
    call = copy(eqn)
    call.params = {**eqn.params, "jaxpr": jaxpr, "grid_mapping": mapping}
    return call


def _whole(number: int, array: Any, ref: Any) -> Any:
    """A block mapping of an operand that is one block."""
    import jax

    starts = jax.make_jaxpr(lambda: (0,) * len(array.shape))()
    in_hbm = SimpleNamespace(memory_space="hbm")  # as core_map has what is closed over
    return SimpleNamespace(
        array_aval=array,
        block_aval=in_hbm if memory_space(ref.aval) == "default" else ref.aval,
        block_shape=tuple(array.shape),
        index_map_jaxpr=starts,
        origin=f"operand {number}",
        pipeline_mode=None,
    )


_DIVIDED = "shard_map"
_PLACES = (  # and change no value
    *("device_put", "mesh_cast", "reshard", "sharding_constraint"),
    "with_memory_space_constraint",
)
_SMALL_ELEMENTS = 1 << 20  # only small integer arrays are computed ahead


@dataclass(frozen=True, slots=True)
class Boundary:
    """Variables of one jaxpr that are arguments, by number, or results of the outermost function,
    and those that something in this jaxpr uses."""

    arguments: Mapping[Any, int]
    results: frozenset[Any]
    used: frozenset[Any]

    @classmethod
    def of(cls, jaxpr: Any) -> "Boundary":
        plain = open_jaxpr(jaxpr)
        return cls(
            {v: n for n, v in enumerate(plain.invars)}, _variables(plain.outvars), _used(plain)
        )

    def inside(self, eqn: Any, inner: Any) -> "Boundary":
        """The same for a jaxpr that ``eqn`` calls with its operands one to one, or divided."""
        plain = open_jaxpr(inner)
        hands_over = called_jaxpr(eqn) is not None or eqn.primitive.name == _DIVIDED
        if len(plain.invars) != len(eqn.invars) or not hands_over:
            return Boundary({}, frozenset(), _used(plain))
        given = zip(plain.invars, eqn.invars, strict=True)
        made = zip(plain.outvars, eqn.outvars, strict=True)
        return Boundary(
            {
                i: self.arguments[v]
                for i, v in given
                if not hasattr(v, "val") and v in self.arguments
            },
            _variables(i for i, v in made if v in self.results),
            _used(plain),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCall:
    """A ``pallas_call`` equation; ``known``: its operands, None where they are not known; ``runs``:
    how often the function makes the call, None where that depends on data."""

    eqn: Any
    known: list[Any]
    boundary: Boundary
    runs: int | None


def pallas_calls(jaxpr: Any, known: Sequence[Any]) -> Iterator[TracedCall]:
    """Each ``pallas_call`` with the values of its operands that follow from ``known`` inputs, in
    the order of the program. Those in a branch that is not taken run 0 times."""
    return _calls(jaxpr, known, Boundary.of(jaxpr), 1, None)


def values_in(jaxpr: Any, known: Sequence[Any]) -> dict[Any, Any]:
    """By variable, in the functions that it calls too, the integers that follow from ``known``
    inputs, None where calls of a function that is traced once differ; of shards the first one's."""
    values: dict[Any, Any] = {}
    with suppress(Exception):
        for _ in _calls(jaxpr, known, Boundary.of(jaxpr), 1, values):
            pass
        return values
    return {}


def _used(plain: Any) -> frozenset[Any]:
    used = set(_variables(plain.outvars))
    for eqn in reversed(plain.eqns):  # vmap moves axes of results that nobody takes
        if eqn.effects or not used.isdisjoint(eqn.outvars):
            used |= _variables(eqn.invars)
    return frozenset(used)


def _variables(atoms: Iterable[Any]) -> frozenset[Any]:
    return frozenset(v for v in atoms if not hasattr(v, "val"))


def _calls(
    jaxpr: Any,
    known: Sequence[Any],
    boundary: Boundary,
    runs: int | None,
    every: dict[Any, Any] | None,
) -> Iterator[TracedCall]:
    """``every``: takes the value of each variable, integers alone."""
    plain = open_jaxpr(jaxpr)
    values: dict[Any, Any] = dict(zip(plain.invars, known, strict=False))
    values.update(constants(jaxpr))

    def value(var: Any) -> Any:
        return np.asarray(var.val) if hasattr(var, "val") else values.get(var)

    for eqn in plain.eqns:
        inputs = [value(v) for v in eqn.invars]
        call = as_pallas_call(eqn)
        if call is not None:
            yield TracedCall(eqn=call, known=inputs, boundary=boundary, runs=runs)
            continue
        folded = [None]
        with suppress(*[Exception] * (every is not None)):  # what cannot be computed is not known
            if every is None or (not eqn.effects and all(map(_is_whole, eqn.outvars))):
                folded = known_values(eqn, inputs)
        if all(value is not None for value in folded):
            values.update(zip(eqn.outvars, folded, strict=True))
            continue
        for inner, times in inner_jaxprs(eqn, inputs):
            passed = _passed(eqn, inputs)
            within, often = boundary.inside(eqn, inner), _product(runs, times)
            yield from _calls(inner, passed, within, often, every)
    if every is not None and runs != 0:
        for var in filter(_is_whole, chain(values, *(eqn.outvars for eqn in plain.eqns))):
            now = values.get(var)
            every[var] = now if np.all(every.get(var, now) == now) else None


def inner_jaxprs(eqn: Any, inputs: list[Any]) -> Iterator[tuple[Any, int | None]]:
    """The jaxprs in an equation, and how often each runs when it does."""
    if eqn.primitive.name == "cond":
        taken = inputs[0]
        for number, branch in enumerate(eqn.params["branches"]):
            yield branch, None if taken is None else int(number == int(taken))
        return
    times = {"scan": eqn.params.get("length"), "while": None}.get(eqn.primitive.name, 1)
    for param in eqn.params.values():
        for inner in param if isinstance(param, (tuple, list)) else (param,):
            if hasattr(open_jaxpr(inner), "eqns"):
                yield inner, times


def walked(jaxpr: Any) -> Iterator[Any]:
    """The equations of all that a function does, kernel bodies included."""
    for eqn in open_jaxpr(jaxpr).eqns:
        yield eqn
        for inner, _ in inner_jaxprs(eqn, [None]):
            yield from walked(inner)


def sends(eqn: Any) -> bool:
    """Whether it speaks to other devices: a remote DMA or a barrier."""
    import jax

    if eqn.primitive.name != "dma_start":
        return bool(eqn.primitive.name == "get_barrier_semaphore")
    *_, device = jax.tree_util.tree_unflatten(eqn.params["tree"], eqn.invars)
    return device is not None


def dmas(jaxpr: Any, times: int = 1) -> Counter[str]:
    """What each DMA moves, and how often a subcore starts it at most: every branch is taken, a loop
    whose length data decide has one turn."""
    starts = Counter[str]()
    for eqn in open_jaxpr(jaxpr).eqns:
        if eqn.primitive.name == "dma_start":
            starts[_moved(eqn)] += times
        for inner, turns in inner_jaxprs(eqn, [None]):
            starts.update(dmas(inner, times * (turns or 1)))
    return starts


def _moved(eqn: Any) -> str:
    """Of the two sides of a DMA, that of the fewest bytes is what is moved of the other."""
    import jax

    parts = jax.tree_util.tree_unflatten(eqn.params["tree"], [var.aval for var in eqn.invars])
    sides = [(getattr(p, "ref", p), getattr(p, "transforms", ())) for p in parts[:2]]
    if isinstance(parts[1], tuple):  # up to jax 0.9
        sides = [(parts[0], parts[1]), (parts[2], parts[3])]
    sizes, rows = list[int](), ""
    for ref, transforms in sides:
        shape, dtype = tuple(ref.shape), str(ref.dtype)
        for transform in transforms:
            dtype = str(getattr(transform, "dtype", dtype))
            if hasattr(transform, "indices"):
                shape = tuple(transform.get_indexer_shape())
                listed = any(getattr(index, "shape", ()) for index in transform.indices)
                rows = ", by index" if listed else rows
        if all(isinstance(size, int) for size in shape):
            sizes.append(prod(shape) * bits(dtype) // 8)
    spaces = " to ".join(memory_space(ref) for ref, _ in sides).replace("default", "hbm")
    return f"{min(sizes, default='?')} bytes {spaces}{rows}"


def _product(runs: int | None, times: int | None) -> int | None:
    if 0 in (runs, times):
        return 0
    return None if runs is None or times is None else runs * times


def _passed(eqn: Any, inputs: list[Any]) -> list[Any]:
    """The known inputs of a jaxpr inside ``eqn``: none where the operands are not its inputs one
    to one. What a loop carries changes from turn to turn."""
    if eqn.primitive.name == "cond":
        return inputs[1:]  # the first chooses the branch
    if eqn.primitive.name == _DIVIDED:
        inner_vars = open_jaxpr(eqn.params["jaxpr"]).invars
        return [
            (None if value is None else value[tuple(slice(size) for size in v.aval.shape)])
            for value, v in zip(inputs, inner_vars, strict=True)
        ]
    if eqn.primitive.name == "scan":
        return inputs[: _consts_of_scan(eqn)]
    return inputs if called_jaxpr(eqn) is not None else []


def _consts_of_scan(eqn: Any) -> int:
    """How many operands of a ``scan`` are the same in every turn: jax 0.12 keeps the three groups
    of its operands as a tree, an older one their counts."""
    if "ft_in" in eqn.params:
        consts, _carried, _scanned = eqn.params["ft_in"].unpack()
        return len(consts)
    return int(eqn.params["num_consts"])


def known_values(eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of an equation whose inputs are all known and whose outputs are small numbers;
    each is None otherwise. Keys of random numbers are none. What is placed on devices that are not
    there is not computed: it would run on them."""
    across_devices = {"axis_name", "axis_index_groups"} & set(eqn.params)
    known = all(value is not None for value in inputs) and not across_devices
    known = known and eqn.primitive.name != _DIVIDED
    if not known or not all(map(_is_small, eqn.outvars)):
        return [None] * len(eqn.outvars)
    if eqn.primitive.name in _PLACES:
        return list(inputs)
    inner = [other for jaxpr, _ in inner_jaxprs(eqn, [None]) for other in walked(jaxpr)]
    if any(_is_placed(other) or as_pallas_call(other) is not None for other in (eqn, *inner)):
        return [None] * len(eqn.outvars)
    return compute(eqn, list(inputs))


def _is_whole(var: Any) -> bool:
    return getattr(getattr(var.aval, "dtype", None), "kind", " ") in "biu" and _is_small(var)


def _is_small(var: Any) -> bool:
    import jax

    dtype = getattr(var.aval, "dtype", np.float32)
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
    return not is_key and prod(getattr(var.aval, "shape", ())) <= _SMALL_ELEMENTS


def _is_placed(eqn: Any) -> bool:
    """On the host or other devices: jax 0.12 names the abstract mesh of one in any broadcast."""
    import jax

    leaves = jax.tree.leaves(dict(eqn.params))
    meshes = [getattr(x, "mesh", None) for x in leaves if isinstance(x, jax.sharding.Sharding)]
    is_elsewhere = any(not isinstance(m, jax.sharding.AbstractMesh) or m.size > 1 for m in meshes)
    return is_elsewhere or "callback" in eqn.params


def compute(eqn: Any, inputs: list[Any]) -> list[Any]:
    """One equation on the CPU, at once: scalars that are prepared ahead. What is
    traced for a chip is computed without one: jax 0.12 refuses a mesh of no devices."""
    import jax
    import jax.sharding as sharding

    nothing = sharding.AbstractMesh((), ())
    entered = getattr(sharding, "use_abstract_mesh", nullcontext)  # not in jax 0.6
    params = {**eqn.params, **({"ctx_mesh": nothing} if "ctx_mesh" in eqn.params else {})}
    with ExitStack() as stack:
        with suppress(AttributeError, ValueError):  # not in jax 0.6; not while JAX traces
            stack.enter_context(jax.set_mesh(sharding.Mesh(np.empty((), object), ())))
        stack.enter_context(entered(nothing))
        results = bound(eqn.primitive, inputs, params)
        if any(isinstance(result, jax.core.Tracer) for result in results):  # traced from outside
            with jax.ensure_compile_time_eval():  # always: jax 0.12 refuses some of a mesh
                results = bound(eqn.primitive, inputs, params)
        return list(map(np.asarray, results))


def bound(primitive: Any, inputs: Sequence[Any], params: Any) -> list[Any]:
    """The results of a primitive."""
    given = primitive.get_bind_params(params)
    functions, plain = given if isinstance(given, tuple) else ((), given)  # a pair up to jax 0.8
    results = primitive.bind(*functions, *inputs, **plain)
    return list(results) if primitive.multiple_results else [results]
