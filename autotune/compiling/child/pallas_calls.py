"""The ``pallas_call``s in what a model does: what each is made of, and how often it runs."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from autotune.compiling.child.trace.blocks import array_of, block_shape, memory_space
from autotune.compiling.child.trace.calls import as_pallas_call, inner_jaxprs
from autotune.compiling.child.trace.pallas_call import compiler_params, name_of
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import bits
from autotune.domain.workload import UndeclaredKernel

MARK = "autotune-call-"
"""The scope of a decorated function's call is called so, and by the number of the call."""

_MARK = re.compile(rf"{MARK}(\d+)")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_FRACTION = re.compile(r"-?(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
_BUFFERS = 2


@dataclass(frozen=True, slots=True)
class BlockedArray:
    """``shape`` and ``block`` without what ``vmap`` has put ahead of them."""

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    space: str


@dataclass(frozen=True, slots=True)
class PallasCall:
    """What two calls of one kernel for one problem and config have in common. ``inputs``: how many
    of the operands are such; ``batch``: how often ``vmap`` makes the grid run; ``unscaled``: the
    body without what only scales, and whatever numbers that are not whole it computes with."""

    name: str
    grid: tuple[int, ...]
    operands: tuple[BlockedArray, ...]
    inputs: int
    others: tuple[tuple[tuple[int, ...], str], ...]
    body: str
    unscaled: str
    batch: int
    limit_bytes: int | None

    @property
    def undeclared(self) -> UndeclaredKernel:
        moved = [
            operand for operand in self.operands if operand.space not in ("any", "hbm", "smem")
        ]
        return UndeclaredKernel(
            name=self.name,
            grid=self.grid if self.batch == 1 else (self.batch, *self.grid),
            blocks=tuple(operand.block for operand in self.operands),
            vmem_bytes=sum(
                _BUFFERS * prod(operand.block) * bits(operand.dtype) // 8 for operand in moved
            ),
            limit_bytes=self.limit_bytes,
        )

    def could_be(self, other: "PallasCall") -> bool:
        """In another config: of the same name, on the same arrays. Some of what it gives back may
        have the size of a block."""
        arrays = [
            [
                (operand.shape, operand.dtype)
                for operand in call.operands[: call.inputs]
                if operand.space != "smem"
            ]
            for call in (self, other)
        ]
        return self.name == other.name and arrays[0] == arrays[1]

    def same_as(self, other: "PallasCall") -> bool:
        """To the last instruction. The limit may be another one: it is no part of a kernel's
        problem."""
        return self.alike(other) and self.body == other.body

    def alike(self, other: "PallasCall") -> bool:
        """The same but for a scale, as that of attention, and constants as an epsilon: they are no
        part of a problem either."""
        return (self.grid, self.operands, self.others, self.unscaled) == (
            other.grid,
            other.operands,
            other.others,
            other.unscaled,
        )


def _read(eqn: Any) -> PallasCall:
    mapping = eqn.params["grid_mapping"]
    added = tuple(getattr(mapping, "vmapped_dims", ()))
    grid = [size if isinstance(size, int) else 0 for size in mapping.grid]
    first = mapping.num_dynamic_grid_bounds
    scalars = eqn.invars[first : first + mapping.num_index_operands]
    params = compiler_params(eqn)
    body = open_jaxpr(eqn.params["jaxpr"])
    return PallasCall(
        name=name_of(eqn),
        grid=tuple(size for axis, size in enumerate(grid) if axis not in added),
        operands=tuple(_operand(block_mapping, added) for block_mapping in mapping.block_mappings),
        inputs=mapping.num_inputs,
        others=tuple((tuple(var.aval.shape), str(var.aval.dtype)) for var in scalars),
        body=_ADDRESS.sub("", str(body)),
        unscaled=_FRACTION.sub("", _ADDRESS.sub("", str(_unscaled(body)))),
        batch=prod(grid[axis] for axis in added),
        limit_bytes=params.get("vmem_limit_bytes"),
    )


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
            params = {name: _unscaled(value) for name, value in eqn.params.items()}
            eqns.append(eqn.replace(invars=inputs, params=params))
    return jaxpr.replace(eqns=eqns, outvars=list(map(read, jaxpr.outvars)))


def _scaled(eqn: Any) -> Any | None:
    """What ``eqn`` multiplies by a constant, and nothing else."""
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
    call = as_pallas_call(eqn)
    if call is None:
        inner = inner_jaxprs(eqn, [None] * max(1, len(eqn.invars)))
        within = (inner_eqn for jaxpr, _ in inner for inner_eqn in open_jaxpr(jaxpr).eqns)
        return max((_batch(inner_eqn, around) for inner_eqn in within), default=1)
    mapping = call.params["grid_mapping"]
    added = sorted(getattr(mapping, "vmapped_dims", ()))[:around]
    return prod(mapping.grid[axis] for axis in added)


def _operand(mapping: Any, added: Sequence[int]) -> BlockedArray:
    """``added``: grid axes of ``vmap``; what it maps has one of them as the first index."""
    array, index = array_of(mapping), open_jaxpr(mapping.index_map_jaxpr)
    mapped = [index.invars[axis] for axis in added]
    skipped = 0
    while skipped < len(index.outvars) and any(
        index.outvars[skipped] is mapped_var for mapped_var in mapped
    ):
        skipped += 1
    shape, block = tuple(array.shape)[skipped:], tuple(block_shape(mapping))[skipped:]
    return BlockedArray(shape, str(array.dtype), block, memory_space(mapping.block_aval))


class ModelCalls:
    """Walks what a model does. ``found``: how often each ``pallas_call`` is made that is in no
    decorated function."""

    def __init__(self) -> None:
        self._marked: Counter[tuple[int, bool]] = Counter()
        self.found: Counter[PallasCall] = Counter()

    @property
    def marked(self) -> dict[int, int]:
        """How often each call of a decorated function is made. What a gradient makes of one is no
        call of its own; one that stands only there is."""
        forward = {number: times for (number, back), times in self._marked.items() if not back}
        return {number: times for (number, _), times in self._marked.items()} | forward

    def walk(self, jaxpr: Any, times: int, *, counted: bool, around: str = "") -> None:
        """``counted``: it is inside of a decorated function; ``around``: names of what it is in.
        How often a ``while`` turns and which branch of a ``cond`` is taken is not known: each
        counts once."""
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
            call = as_pallas_call(eqn)
            if call is not None:
                if not (counted or mark):
                    self.found[_read(call)] += times
                continue
            for inner, turns in inner_jaxprs(eqn, [None] * max(1, len(eqn.invars))):
                often = times * (1 if turns is None else turns)
                inside = counted or mark is not None
                self.walk(inner, often, counted=inside, around=f"{around}{stack}/")
        for place, batch in here.items():
            self._marked[place] += times * batch
