"""The ``pallas_call``s in what a model does: what each is made of, and how often it runs."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from math import prod
from operator import attrgetter
from typing import Any

from autotune.compiling.child.trace import calls
from autotune.compiling.child.trace.blocks import array_of, block_shape, memory_space
from autotune.compiling.child.trace.pallas_call import compiler_params, name_of
from autotune.compiling.child.trace.scalars import open_jaxpr, pipeline_steps
from autotune.domain.problem import bits
from autotune.domain.workload import EmitPipeline, UndeclaredKernel

MARK = "autotune-call-"
"""The scope of a decorated function's call is called so, and by the number of the call."""

_MARK = re.compile(rf"{MARK}(\d+)")
_TRANSFORM = re.compile(r"\b(?:jvp|transpose|vmap|checkpoint|rematted_computation)\b|[()]")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_FRACTION = re.compile(r"-?(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
_PLACES = ("out_sharding", "sharding")  # of what the arrays outside lie on
_DIGITS = re.compile(r"\d+")  # some name a kernel by its blocks
_BUFFERS, _ELSEWHERE = 2, ("any", "hbm", "smem")
_JITTED = ("jit", "pjit")  # over JAX versions
MACHINERY = ("/jax/_src/", "/jaxlib/", "/qwix/_src/", "/autotune/compiling/child/")
"""What makes calls for others."""

_ALIKE = attrgetter("grid", "operands", "others", "flags", "unscaled")

Arrays = tuple[tuple[tuple[int, ...], str], ...]
"""Shapes and dtypes."""


@dataclass(frozen=True, slots=True)
class BlockedArray:
    """``shape`` and ``block`` without what ``vmap`` has put ahead of them."""

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    space: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class PallasCall:
    """What two calls of one kernel for one problem and config have in common. ``inputs``: how many
    of the operands are such; ``batch``: how often ``vmap`` makes the grid run; ``unscaled``: the
    body without what only scales, and whatever numbers that are not whole it computes with;
    ``flags``: of the compiler; ``scratch``: with what the body allocates; ``undeclared``: the first
    such call, as it is listed; ``given``: the arrays that each jitted function around it is called
    with, the innermost first."""

    name: str
    grid: tuple[int, ...]
    operands: tuple[BlockedArray, ...]
    inputs: int
    others: Arrays
    body: str
    unscaled: str
    batch: int
    limit_bytes: int | None
    flags: str
    scratch: tuple[BlockedArray, ...]
    undeclared: UndeclaredKernel = field(compare=False)
    given: tuple[Arrays, ...] = field(compare=False)

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        return [operand.block for operand in self.operands]

    @property
    def features(self) -> Counter[Any]:
        """What is the same in every config: the words of its name, and its arrays. Whole numbers,
        masks and results may have the size of a block."""
        words = [("name", word) for word in _DIGITS.sub("", self.name).split("_")]
        arrays = [
            (
                place < self.inputs,
                operand.dtype,
                operand.shape
                if place < self.inputs and "float" in operand.dtype and operand.space != "smem"
                else len(operand.shape),
            )
            for place, operand in enumerate(self.operands)
        ]
        return Counter([*words, *arrays])

    @property
    def numbers(self) -> set[str]:
        """In its name."""
        return set(_DIGITS.findall(self.name))

    def alike(self, other: "PallasCall") -> bool:
        """The same but for a scale, as that of attention, and constants as an epsilon: they are no
        part of a problem either."""
        return bool(_ALIKE(self) == _ALIKE(other))


def _read(
    eqn: Any, where: str, scope: str, given: tuple[Arrays, ...], texts: dict[Any, tuple[str, str]]
) -> PallasCall:
    """``where``: the line around it; ``texts``: of bodies: the layers of a model share them, and
    each takes a second to print."""
    mapping = eqn.params["grid_mapping"]
    added = tuple(getattr(mapping, "vmapped_dims", ()))
    meshes = calls.meshes_of(eqn)
    sizes = tuple(meshes[0].shape.values()) if meshes else mapping.grid
    grid = [size if isinstance(size, int) else 0 for size in sizes]
    shape = tuple(size for axis, size in enumerate(grid) if axis not in added)
    batch = prod(grid[axis] for axis in added)
    first = mapping.num_dynamic_grid_bounds
    scalars = _arrays(eqn.invars[first : first + mapping.num_index_operands])
    body = open_jaxpr(eqn.params["jaxpr"])
    if body not in texts:
        unscaled = _FRACTION.sub("", _ADDRESS.sub("", str(_unscaled(body))))
        texts[body] = _ADDRESS.sub("", str(body)), unscaled
    whole, unscaled = texts[body]
    operands, scratch = operands_of(mapping), (*_scratch(body, mapping.num_scratch_operands),)
    in_vmem = [(_BUFFERS, array) for array in operands] + [(1, array) for array in scratch]
    cores, starts = calls.cores_of(eqn), Counter[str]()
    for core, each in zip(cores, eqn.params.get("jaxprs", [body]), strict=False):
        starts.update(calls.dmas(each) if core == calls.SPARSECORE else {})
    undeclared = UndeclaredKernel(
        name=name_of(eqn),
        core="+".join(dict.fromkeys(cores)),
        source=_source(eqn) or where,
        scope=scope,
        scalars=tuple(str(BlockedArray(s, dtype, s, "smem")) for s, dtype in scalars),
        operands=tuple(map(str, operands)),
        grid=shape if batch == 1 else (batch, *shape),
        blocks=tuple(operand.block for operand in operands),
        pipelines=tuple(_pipelines(body, ())),
        scratch=tuple(map(str, scratch)),
        dmas=tuple(f"{count} x {copy}" for copy, count in starts.items()),
        vmem_bytes=sum(
            count * prod(array.block) * bits(array.dtype) // 8
            for count, array in in_vmem
            if array.space not in _ELSEWHERE
        ),
        limit_bytes=compiler_params(eqn).get("vmem_limit_bytes"),
    )
    return PallasCall(
        name=undeclared.name,
        grid=shape,
        operands=operands,
        inputs=mapping.num_inputs,
        others=scalars,
        body=whole,
        unscaled=unscaled,
        batch=batch,
        limit_bytes=undeclared.limit_bytes,
        flags=str(getattr(eqn.params["compiler_params"], "flags", None) or ""),
        scratch=scratch,
        undeclared=undeclared,
        given=given,
    )


def _arrays(variables: Sequence[Any]) -> Arrays:
    typed = (var.aval for var in variables if hasattr(var.aval, "dtype"))
    return tuple((tuple(aval.shape), str(aval.dtype)) for aval in typed)


def operands_of(mapping: Any) -> tuple[BlockedArray, ...]:
    """Of a ``GridMapping``."""
    added = tuple(getattr(mapping, "vmapped_dims", ()))
    return tuple(_operand(block_mapping, added) for block_mapping in mapping.block_mappings)


def _scratch(body: Any, declared: int) -> Iterator[BlockedArray]:
    """Buffers that the call declares, or that its body allocates, as a pipeline in it does."""
    scoped = [
        eqn.params["jaxpr"] for eqn in calls.walked(body) if eqn.primitive.name == "run_scoped"
    ]
    first = len(body.invars) - declared
    for var in (*body.invars[first:], *(v for jaxpr in scoped for v in open_jaxpr(jaxpr).invars)):
        space = memory_space(var.aval).replace("default", "vmem")
        if "sem" not in space and hasattr(var.aval, "dtype"):
            shape = tuple(var.aval.shape)
            yield BlockedArray(shape, str(var.aval.dtype), shape, space)


def _pipelines(jaxpr: Any, blocks: tuple[tuple[int, ...], ...]) -> Iterator[EmitPipeline]:
    """``blocks``: that the buffers of the scope around it have room for."""
    for eqn in open_jaxpr(jaxpr).eqns:
        is_loop = blocks and eqn.primitive.name in ("scan", "while")
        steps = pipeline_steps(eqn, {}) if is_loop else ()
        if steps:
            yield EmitPipeline(grid=tuple(size or 0 for size in steps), blocks=blocks)
        for inner, _ in calls.inner_jaxprs(eqn, [None]):
            scoped = eqn.primitive.name == "run_scoped"  # a loop in a pipeline's only looks ahead
            yield from _pipelines(inner, _buffered(inner) if scoped else () if steps else blocks)


def _buffered(scope: Any) -> tuple[tuple[int, ...], ...]:
    """Buffers of several blocks stand ahead of their semaphores."""
    avals = [v.aval for v in open_jaxpr(scope).invars]
    avals = [aval for aval in avals if "sem" in memory_space(aval) or len(aval.shape) > 1]
    ahead = [tuple(a.shape[1:]) for a, after in pairwise(avals) if "sem" in memory_space(after)]
    return tuple(filter(None, ahead))


def _source(eqn: Any) -> str:
    """The file and line that make a call: the innermost that are no machinery."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not any(part in frame.file_name for part in MACHINERY):
            return f"{frame.file_name}:{getattr(frame, 'line_num', None) or frame.start_line}"
    return ""


def _unscaled(jaxpr: Any) -> Any:
    """Without what multiplies by a constant: where a scale is 1 most kernels leave that out."""
    plain = open_jaxpr(jaxpr)
    if not hasattr(plain, "eqns"):
        return type(jaxpr)(map(_unscaled, jaxpr)) if type(jaxpr) in (tuple, list) else jaxpr
    if plain is not jaxpr:
        return jaxpr.replace(jaxpr=_unscaled(plain))
    alike: dict[int, Any] = {}

    def read(var: Any) -> Any:
        return alike.get(id(var), var)

    eqns = []
    for eqn in jaxpr.eqns:
        inputs = list(map(read, eqn.invars))
        scaled = _scaled(eqn)
        if scaled is not None:
            alike[id(eqn.outvars[0])] = read(scaled)
        else:
            params = {n: None if n in _PLACES else _unscaled(v) for n, v in eqn.params.items()}
            eqns.append(eqn.replace(invars=inputs, params=params))
    return jaxpr.replace(eqns=eqns, outvars=list(map(read, jaxpr.outvars)))


def _scaled(eqn: Any) -> Any | None:
    """What ``eqn`` multiplies by a constant, and nothing else; or leaves as it is: some meshes
    around a kernel have it moved, which is nothing in its body."""
    if eqn.primitive.name == "reshard":
        return eqn.invars[0]
    if eqn.primitive.name != "mul":
        return None
    variables = [var for var in eqn.invars if not hasattr(var, "val")]
    (result,) = eqn.outvars
    if len(variables) != 1 or not str(result.aval.dtype).startswith(("float", "bfloat")):
        return None
    return variables[0] if variables[0].aval.shape == result.aval.shape else None


def _batch(eqn: Any, around: int) -> int:
    """How often the ``vmap`` around a decorated function makes its grids run, of so many; others
    are its own."""
    call = calls.as_any_kernel(eqn)
    if call is None:
        inner = calls.inner_jaxprs(eqn, [None] * max(1, len(eqn.invars)))
        within = (inner_eqn for jaxpr, _ in inner for inner_eqn in open_jaxpr(jaxpr).eqns)
        return max((_batch(inner_eqn, around) for inner_eqn in within), default=1)
    mapping = call.params["grid_mapping"]
    added = sorted(getattr(mapping, "vmapped_dims", ()))[:around]
    return prod(mapping.grid[axis] for axis in added)


def _operand(mapping: Any, added: Sequence[int]) -> BlockedArray:
    """``added``: grid axes of ``vmap``; what it maps has one of them as the first index."""
    array, index = array_of(mapping), open_jaxpr(mapping.index_map_jaxpr)
    mapped = [index.invars[axis] for axis in added]
    ahead = takewhile(lambda var: any(var is axis for axis in mapped), index.outvars)
    skipped = len([*ahead])
    shape, block = tuple(array.shape)[skipped:], tuple(block_shape(mapping))[skipped:]
    return BlockedArray(shape, str(array.dtype), block, memory_space(mapping.block_aval))


class ModelCalls:
    """Walks what a model does. ``runs_by_call``: how often each ``pallas_call`` is made that is in
    no decorated function."""

    def __init__(self) -> None:
        self._marked: Counter[tuple[int, bool]] = Counter()
        self.runs_by_call: Counter[PallasCall] = Counter()
        self._texts: dict[Any, tuple[str, str]] = {}

    @property
    def marked(self) -> dict[int, int]:
        """How often each call of a decorated function is made. What a gradient makes of one is no
        call of its own; one that stands only there is."""
        forward = {number: times for (number, back), times in self._marked.items() if not back}
        return {number: times for (number, _), times in self._marked.items()} | forward

    def walk(
        self,
        jaxpr: Any,
        times: int,
        *,
        counted: bool,
        around: str = "",
        where: str = "",
        given: tuple[Arrays, ...] = (),
    ) -> None:
        """``counted``: it is inside of a decorated function; ``around``: names of what it is in,
        ``where``: its line, ``given``: arrays that the jitted functions among that are called with.
        A ``while`` of unknown length and each branch of a ``cond`` count once."""
        here: dict[tuple[int, bool], int] = {}
        for eqn in open_jaxpr(jaxpr).eqns:
            stack = str(eqn.source_info.name_stack)
            mark = None if counted else _MARK.search(stack)
            if mark:
                before = stack[: mark.start()]
                back = "transpose(" in before and "rematted_computation" not in before
                which = int(mark[1]), back
                mapped = (around + before).count("vmap(")
                here[which] = max(here.get(which, 1), _batch(eqn, mapped))
            call = calls.as_any_kernel(eqn)
            if call is not None:
                if not (counted or mark):
                    parts = _TRANSFORM.sub("", f"{around}{stack}").split("/")
                    scope = "/".join(filter(None, parts))
                    self.runs_by_call[_read(call, where, scope, given, self._texts)] += times
                continue
            is_jitted = eqn.primitive.name in _JITTED
            within = (_arrays(eqn.invars), *given) if is_jitted else given
            for inner, turns in calls.inner_jaxprs(eqn, [None] * max(1, len(eqn.invars))):
                often = times * (1 if turns is None else turns)
                inside = counted or mark is not None
                names, line = f"{around}{stack}/", _source(eqn) or where
                self.walk(inner, often, counted=inside, around=names, where=line, given=within)
        for place, batch in here.items():
            self._marked[place] += times * batch
