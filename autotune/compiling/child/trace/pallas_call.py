"""One ``pallas_call`` equation as ``Trace``s.

From a kernel's function, too: needs JAX, compiles nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.trace import block_fetches
from autotune.compiling.child.trace.blocks import (
    array_of,
    block_shape,
    memory_space,
    moved_sizes,
    operand_of,
    value_bytes,
)
from autotune.compiling.child.trace.body import Body, analyse
from autotune.compiling.child.trace.calls import TracedCall, cores_of, pallas_calls, sends, walked
from autotune.compiling.child.trace.scalars import axis_index, evaluate, open_jaxpr, source_of
from autotune.declaring.kernel import Array
from autotune.domain.problem import bits
from autotune.domain.trace import Operand, Scratch, Trace

_WHOLE = "biu"  # kinds of NumPy's that hold integers or truth values
_SMEM_BYTES = 1 << 20  # the largest ``TpuInfo.smem_capacity_bytes`` of any chip


class Call:
    """One ``pallas_call`` equation, with the values that are known of its scalar operands.

    ``io_bytes``: of the whole function where it makes no other call; ``names``: of its arguments.
    ``is_unsized``: whether data decide its grid.
    """

    def __init__(
        self, call: TracedCall, io_bytes: int | None, names: Sequence[str], bound: int | None
    ) -> None:
        eqn, known = call.eqn, call.known
        self.eqn, self.boundary, self.runs, self.known = eqn, call.boundary, call.runs, known
        self.name, self.names = name_of(eqn), names
        self.io_bytes = _moved_bytes(eqn) if io_bytes is None else io_bytes
        self.mapping = eqn.params["grid_mapping"]
        dynamic = self.mapping.num_dynamic_grid_bounds
        self.scalars = list(known[dynamic : dynamic + self.mapping.num_index_operands])
        if bound is not None:
            bound = max(bound, 1, *self._walked_sizes())
        self.is_unsized = any(size is None for size in known[:dynamic])
        self.grid = _static_grid(self.mapping.grid, known[:dynamic], bound)
        self.walks = [self._walk(b) for b in self.mapping.block_mappings]
        self.body = self._body()
        self.sends = any(map(sends, walked(eqn.params["jaxpr"])))

    def traces(self, orders: Sequence[Sequence[int]] | None) -> list[Trace]:
        """``orders``: of the axes that the kernel was written for; others stay before them."""
        named = self._named_axes()
        added = [axis for axis in range(len(self.grid)) if axis not in named]
        wanted = orders or [range(len(named))]
        return [self._trace((*added, *(named[axis] for axis in order))) for order in wanted]

    def scalar_operands(self) -> dict[int, Any]:
        """Integers that the kernel can read as scalars and whose contents are known, by operand
        number, as NumPy arrays: given by the caller, constants of the function, or computed from
        both ahead of the call. Truth values are words there."""
        known = [n for n, value in enumerate(self.known) if value is not None]
        values = {n: np.asarray(self.known[n]) for n in known if self._may_be_scalars(n)}
        return {
            n: value.astype(np.int32) if value.dtype == bool else value
            for n, value in values.items()
            if value.dtype.kind in _WHOLE
        }

    def index_maps(self) -> dict[int, tuple[str, int]]:
        """File and line of the index map of each blocked operand, by its number among the operands
        and results of the call."""
        first = self.mapping.num_dynamic_grid_bounds + self.mapping.num_index_operands
        places = (source_of(block.index_map_jaxpr) for block in self.mapping.block_mappings)
        return {n: place for n, place in enumerate(places, first) if place}

    def name_of(self, number: int) -> str:
        """What the function calls an operand, where it is an argument as it came."""
        var = self.eqn.invars[number]
        place = None if hasattr(var, "val") else self.boundary.arguments.get(var)
        return f"scalar operand {number}" if place is None else self.names[place]

    @property
    def is_unchecked(self) -> bool:
        """Whether the kernel turns the checks of memory bounds off."""
        return bool(compiler_params(self.eqn).get("disable_bounds_checks"))

    def unread_buffers(self) -> tuple[int, ...]:
        """Outputs that nothing uses, by number among the arrays that a call needs: inputs first,
        then the outputs that have memory of their own."""
        aliased = set(dict(self.eqn.params["input_output_aliases"]).values())
        places = [n for n in range(len(self.eqn.outvars)) if n not in aliased]
        first = self.mapping.num_inputs
        return tuple(first + place for place, n in enumerate(places) if self._is_unread(n))

    def _is_unread(self, output: int) -> bool:
        return self.eqn.outvars[output] not in self.boundary.used

    def _may_be_scalars(self, number: int) -> bool:
        """Grid bounds, scalar prefetch, what lies in SMEM, and what the kernel may copy there."""
        block = number - self.mapping.num_dynamic_grid_bounds - self.mapping.num_index_operands
        if block < 0:
            return True
        mapping = self.mapping.block_mappings[block]
        space, array = memory_space(mapping.block_aval), array_of(mapping)
        return space == "smem" or (space in ("any", "hbm") and value_bytes(array) <= _SMEM_BYTES)

    def _trace(self, order: tuple[int, ...]) -> Trace:
        grid = tuple(self.grid[axis] for axis in order)
        walks = [walk.permuted(order) for walk in self.walks]
        operands, notes = [], list(dict.fromkeys(self.body.notes))
        for number, (mapping, walk) in enumerate(
            zip(self.mapping.block_mappings, walks, strict=True)
        ):
            block_visits = block_fetches.visits(walk, grid)
            if not block_visits.exact:
                notes.append(f"block visits of operand {number} are not known exactly")
            is_output = number >= self.mapping.num_inputs
            operand = operand_of(mapping, block_visits, self.mapping.grid, is_output)
            operands.append(self._outside(number, operand))
        aliases, safe = self._aliases(walks, grid)
        params = compiler_params(self.eqn)
        return Trace(
            grid=grid,
            operands=tuple(operands),
            scratch=self._scratch(order),
            scalar_operands=self.mapping.num_dynamic_grid_bounds + len(self._scalar_vars()),
            scalar_prefetch_bytes=sum(value_bytes(v.aval) for v in self._scalar_vars()),
            aliases=aliases,
            alias_safe=safe,
            dimension_semantics=self._semantics(params),
            vmem_limit_bytes=params.get("vmem_limit_bytes"),
            mxu_flops=round(self.body.mxu_flops),
            least_mxu_flops=int(self.body.sure_flops.get(self.body.mxu_dtype or "", 0)),
            vector_ops=round(self.body.vector_ops),
            mxu_dtype=self.body.mxu_dtype,
            io_bytes=self.io_bytes,
            kept_bytes=self.body.kept_bytes,
            notes=tuple(notes),
            name=self.name,
            runs=self.runs,
            added_axes=tuple(
                axis for axis, place in enumerate(order) if place not in self._named_axes()
            ),
        )

    def shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Of what goes in and of what comes out."""
        given, made = (
            [_made_shape(var.aval) for var in variables]
            for variables in (self.eqn.invars, self.eqn.outvars)
        )
        return given, made

    def _scalar_vars(self) -> list[Any]:
        start = self.mapping.num_dynamic_grid_bounds
        return list(self.eqn.invars[start : start + self.mapping.num_index_operands])

    def _walked_sizes(self) -> Iterator[int]:
        """Of the scalar operands that the index maps read."""
        for block in self.mapping.block_mappings:
            plain = open_jaxpr(block.index_map_jaxpr)
            read = [var for eqn in plain.eqns for var in eqn.invars]
            for scalar, var in zip(
                self._scalar_vars(), plain.invars[len(self.mapping.grid) :], strict=True
            ):
                if any(var is each for each in read):
                    yield scalar.aval.size

    def _outside(self, number: int, operand: Operand) -> Operand:
        """With what a blocked operand is to the whole function."""
        output = number - self.mapping.num_inputs
        if output >= 0:
            at_boundary = self.eqn.outvars[output] in self.boundary.results
            return replace(operand, at_boundary=at_boundary, is_unread=self._is_unread(output))
        skipped = self.mapping.num_dynamic_grid_bounds + self.mapping.num_index_operands
        var = self.eqn.invars[skipped + number]
        place = None if hasattr(var, "val") else self.boundary.arguments.get(var)
        name = operand.name if place is None else self.names[place]
        return replace(operand, name=name, at_boundary=place is not None)

    def _walk(self, mapping: Any) -> block_fetches.BlockWalk:
        rank = len(self.grid)
        ids = [axis_index(self.grid, axis) for axis in range(rank)]
        refs = {rank + n: value for n, value in enumerate(self.scalars)}
        index = evaluate(mapping.index_map_jaxpr, ids, refs, rank)
        return block_fetches.BlockWalk(index=tuple(index), sizes=moved_sizes(mapping, index, rank))

    def _named_axes(self) -> list[int]:
        """The grid axes that the kernel was written for: ``vmap`` adds others."""
        added = getattr(self.mapping, "vmapped_dims", ())
        return [axis for axis in range(len(self.grid)) if axis not in added]

    def _semantics(self, params: dict[str, Any]) -> tuple[str, ...]:
        """As JAX completes them: axes that ``vmap`` adds are parallel, and the others arbitrary
        when nothing is said of them. Empty when there is nothing to say of any."""
        given = [
            str(getattr(s, "value", s)).lower() for s in params.get("dimension_semantics") or ()
        ]
        named = self._named_axes()
        if not given and len(named) < len(self.grid):
            given = ["arbitrary"] * len(named)
        if len(given) != len(named):
            return tuple(given)
        each = dict(zip(named, given, strict=True))
        return tuple(each.get(axis, "parallel") for axis in range(len(self.grid)))

    def _body(self) -> Body:
        jaxpr = self.eqn.params["jaxpr"]
        known = [*self.scalars, *map(self.whole_scalars, range(self.mapping.num_inputs))]
        return analyse(jaxpr, self.grid, known, self._scratch_places(), self._named_axes())

    def whole_scalars(self, number: int) -> Any:
        """Known contents of an input that lies in SMEM as a whole, or None."""
        mapping = self.mapping.block_mappings[number]
        is_whole = block_shape(mapping) == tuple(array_of(mapping).shape)
        if memory_space(mapping.block_aval) != "smem" or not is_whole:
            return None
        return self.known[self.mapping.num_dynamic_grid_bounds + len(self.scalars) + number]

    def _scratch_places(self) -> list[int]:
        """Arguments of the body that are scratch memory: unread outputs and what is declared so."""
        count = len(open_jaxpr(self.eqn.params["jaxpr"]).invars)
        first = count - self.mapping.num_scratch_operands
        outputs = range(first - len(self.eqn.outvars), first)
        unread = [place for n, place in enumerate(outputs) if self._is_unread(n)]
        return [*unread, *range(first, count)]

    def _scratch(self, order: tuple[int, ...]) -> tuple[Scratch, ...]:
        invars = open_jaxpr(self.eqn.params["jaxpr"]).invars
        declared = len(invars) - self.mapping.num_scratch_operands
        buffers = []
        for position in self._scratch_places():
            var = invars[position]
            space = "output" if position < declared else memory_space(var.aval)
            if "sem" in space:
                continue
            reset = self.body.carried.get(position, ())
            buffers.append(
                Scratch(
                    shape=tuple(var.aval.shape),
                    dtype=str(var.aval.dtype),
                    space="vmem" if space == "default" else space,
                    carried=position in self.body.carried,
                    reset_axes=None if reset is None else tuple(order.index(a) for a in reset),
                )
            )
        return tuple(buffers)

    def _aliases(
        self, walks: list[block_fetches.BlockWalk], grid: tuple[int, ...]
    ) -> tuple[tuple[tuple[int, int], ...], bool]:
        """JAX counts them without the dynamic bounds of the grid."""
        aliases, safe = [], True
        for given, out in dict(self.eqn.params["input_output_aliases"]).items():
            source = given - self.mapping.num_index_operands
            target = self.mapping.num_inputs + out
            aliases.append((source, target))
            blocks = (self.mapping.block_mappings[source], self.mapping.block_mappings[target])
            if memory_space(blocks[0].block_aval) in ("any", "hbm"):
                continue
            same_block = block_shape(blocks[0]) == block_shape(blocks[1])
            safe = safe and same_block and block_fetches.same_walk(walks[source], walks[target])
            safe = safe and block_fetches.comes_back_late(walks[target], grid)
        return tuple(aliases), safe


def _made_shape(aval: Any) -> tuple[int, ...]:
    """As it is compiled: a key of random numbers is an array of words."""
    import jax

    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        aval = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return tuple(aval.shape)


def name_of(eqn: Any) -> str:
    """Of the kernel, as the compiler is told; over JAX versions."""
    given = eqn.params.get("name") or getattr(eqn.params.get("name_and_src_info"), "name", None)
    plain = open_jaxpr(eqn.params["jaxpr"])
    return str(given or getattr(plain.debug_info, "func_name", "") or "kernel")


def _moved_bytes(eqn: Any) -> int:
    """Operands and results of a call once, but for those that stay in HBM: nothing says how much
    of them it needs."""
    mapping = eqn.params["grid_mapping"]
    moved = [b for b in mapping.block_mappings if memory_space(b.block_aval) not in ("any", "hbm")]
    return sum(value_bytes(array_of(b)) for b in moved)


def _static_grid(
    grid: Sequence[Any], dynamic: Sequence[Any], unknown: int | None
) -> tuple[int, ...]:
    bounds = iter([unknown if bound is None else bound for bound in dynamic])
    sizes: list[Any] = [g if isinstance(g, int) else next(bounds) for g in grid]
    if any(s is None for s in sizes):
        raise ValueError("the grid is dynamic and its bounds do not follow from the inputs")
    return tuple(int(s) for s in sizes)


def compiler_params(eqn: Any) -> dict[str, Any]:
    """The Mosaic parameters as a dictionary, over JAX versions; empty when none were given."""
    params = eqn.params["compiler_params"]
    if params is None:
        return {}
    if hasattr(params, "get"):  # before jax 0.8: a mapping by backend
        params = params.get("mosaic") or params.get("mosaic_tpu") or {}
    if hasattr(params, "get"):
        return dict(params)
    return {
        name: getattr(params, name, None)
        for name in ("dimension_semantics", "vmem_limit_bytes", "disable_bounds_checks")
    }


class NotTunableError(ValueError):
    """The function cannot be tuned as it is; the message is a sentence for the user."""


class NoPallasCallError(NotTunableError):
    """The function holds no ``pallas_call``."""


def calls(closed: Any, arrays: Sequence[Array], bound: int | None = None) -> list[Call]:
    """Each ``pallas_call`` in the jaxpr of a function of ``arrays``, those in branches that are not
    taken included. ``bound``: of a dynamic grid, where none follows from the inputs: at least
    this, and as many as the longest list that the index maps read, such as megablox's of tiles;
    a call that cannot be read is left out then. Raises ``NotTunableError``."""
    known = [_known(array) for array in arrays]
    calls = list(pallas_calls(closed, known))
    if all(call.runs == 0 for call in calls):
        raise NoPallasCallError(_without(closed))
    alone = len(calls) == 1 and all(eqn.primitive.name != "shard_map" for eqn in walked(closed))
    given = sum(prod(a.shape) * bits(a.dtype) // 8 for a in arrays)
    whole = given + sum(value_bytes(v.aval) for v in closed.jaxpr.outvars) if alone else None
    names = [array.name for array in arrays]
    readable = []
    for call in calls:
        try:
            _check_left_in(call.eqn)
            readable.append(Call(call, whole, names, bound))
        except ValueError:
            if bound is None:
                raise
    return readable


def traces(calls: Sequence[Call], orders: Sequence[Sequence[int]] | None = None) -> list[Trace]:
    """Those of the calls that run, one trace for each grid order.

    ``orders``: permutations of the grid axes as built; the identity alone by default, and where
    there are several calls, whose grids differ.
    """
    run = [call for call in calls if call.runs != 0]
    each = zip(*(call.traces(orders if len(run) == 1 else None) for call in run), strict=True)
    return [replace(first, more=tuple(more)) for first, *more in each]


def _check_left_in(eqn: Any) -> None:
    """Raises ``NotTunableError`` for what an author needs while writing a kernel."""
    for switch in ("interpret", "debug"):
        if eqn.params.get(switch):
            raise NotTunableError(
                f"pallas_call of {name_of(eqn)} has {switch}=True: remove it, or nothing is "
                "compiled as it will run on a TPU"
            )


def _without(closed: Any) -> str:
    """A sentence about a function that makes no call."""
    cores = dict.fromkeys(core for eqn in walked(closed) for core in cores_of(eqn))
    if not cores:
        return "the kernel's function holds no pallas_call: there is nothing to tune in it"
    return (
        f"the kernel is for {' and '.join(f'{core}s' for core in cores)}: `autotune collect` lists "
        "it, but it is neither timed nor verified"
    )


def _known(array: Array) -> Any:
    """The integers that are given: what a kernel does does not depend on other numbers."""
    values = None if array.values is None else np.asarray(array.values())
    return values if values is not None and values.dtype.kind in _WHOLE else None


def abstract(arrays: Sequence[Array]) -> list[Any]:
    """Shapes and dtypes, for tracing."""
    import jax

    return [
        jax.ShapeDtypeStruct(a.shape, np.dtype(getattr(jax.numpy, a.dtype, a.dtype)))
        for a in arrays
    ]


def all_orders(rank: int) -> list[tuple[int, ...]]:
    """Every permutation of ``rank`` grid axes, the identity first."""
    return list(permutations(range(rank)))
