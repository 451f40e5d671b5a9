"""What can be changed in a kernel, by kind: in an equation of its body, or in how it is called."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

from autotune.compiling.child.changes.rewriting import Made, Rule, place_of, rewritten, spliced
from autotune.compiling.child.trace.calls import inner_jaxprs, walked
from autotune.domain.change import ChangeKind, SourceChange
from autotune.domain.problem import ARBITRARY, PARALLEL

_BUFFERS, _CORES = 3, 2
_LOOPS, _STEPS = ("scan", "while"), ("program_id", "num_programs")
_VALUES = {"get": 0, "swap": 1, "addupdate": 1}  # between a view and what indexes it


def more_buffers(eqn: Any, _: Made) -> Mapping[str, Callable[[], Any]]:
    """Of a grid whose operands are blocks in VMEM: *3*, and *3x2* if two cores can share it."""
    mapping, params = eqn.params["grid_mapping"], eqn.params["compiler_params"]
    given = getattr(params, "dimension_semantics", None) or ()
    kinds = [getattr(kind, "value", kind) for kind in given]
    spaces = {str(block.block_aval.memory_space) for block in mapping.block_mappings}
    is_plain = mapping.grid and not mapping.vmapped_dims and spaces <= {"vmem", "default", "None"}
    if not is_plain or eqn.params["input_output_aliases"] or _has_steps_in_loops(eqn):
        return {}
    options = {"3": partial(_piped, eqn, ())}
    counted = [e for e in walked(eqn.params["jaxpr"]) if e.primitive.name == "num_programs"]
    divided = [kinds[each.params["axis"]] for each in counted if kinds]
    if PARALLEL not in kinds or PARALLEL in divided:  # each core has some of those that it counts
        return options
    return {**options, "3x2": partial(_piped, eqn, kinds)}


def _has_steps_in_loops(eqn: Any) -> bool:
    """Whether a loop asks for a grid step: the pipeline would not answer it."""
    loops = (each for each in walked(eqn.params["jaxpr"]) if each.primitive.name in _LOOPS)
    bodies = (jaxpr for loop in loops for jaxpr, _ in inner_jaxprs(loop, [None]))
    return any(each.primitive.name in _STEPS for jaxpr in bodies for each in walked(jaxpr))


def _piped(eqn: Any, kinds: Sequence[str]) -> list[Any]:
    """``kinds``: by which two cores divide the grid; none: one core has it all."""
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    mapping, params = eqn.params["grid_mapping"], eqn.params["compiler_params"]
    inputs, arrays = mapping.num_inputs, len(mapping.block_mappings)
    sizes = mapping.num_dynamic_grid_bounds
    index = sizes + mapping.num_index_operands
    semantics = tuple(pltpu.GridDimensionSemantics(kind) for kind in kinds)
    split = {"core_axis": 0, "dimension_semantics": semantics} if kinds else {}

    def body(*refs: Any) -> None:
        bounds, given, scratch = list(refs[:sizes]), refs[sizes:index], refs[index + arrays :]

        def spec(block: Any, **mode: Any) -> Any:
            made = block.to_block_spec()
            return pl.BlockSpec(made.block_shape, lambda *at: made.index_map(*at, *given), **mode)

        mode, blocks = pl.Buffered(_BUFFERS), mapping.block_mappings
        pltpu.emit_pipeline(
            lambda *views: _evaluated(eqn.params["jaxpr"], (), (*given, *views, *scratch)),
            grid=tuple(n if isinstance(n, int) else bounds.pop(0)[0] for n in mapping.grid),
            in_specs=[spec(block, pipeline_mode=mode) for block in blocks[:inputs]],
            out_specs=[spec(block) for block in blocks[inputs:]],
            **split,
        )(*refs[index : index + arrays])

    if hasattr(params, "dimension_semantics"):
        params = replace(params, dimension_semantics=(PARALLEL,) if kinds else None)
    anywhere = [pl.BlockSpec(memory_space=pl.ANY)] * arrays
    call = pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=index,
            grid=(_CORES,) if kinds else (),
            in_specs=anywhere[:inputs],
            out_specs=anywhere[inputs:],
            scratch_shapes=[a.memory_space(a.shape, a.dtype) for a in mapping.scratch_avals],
        ),
        out_shape=[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars],
        compiler_params=params or None,
    )
    return spliced(
        eqn, eqn.invars, lambda *all_: call(*(n.reshape(1) for n in all_[:sizes]), *all_[sizes:])
    )


def _evaluated(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """As JAX does it. What is inside is traced again: its ``program_id`` is the pipeline's."""
    from jax import lax

    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for eqn in jaxpr.eqns:
        given = [var.val if hasattr(var, "val") else values[var] for var in eqn.invars]
        if eqn.primitive.name == "cond":
            pairs = [(closed.jaxpr, closed.consts) for closed in eqn.params["branches"]]
            made = lax.switch(given[0], [partial(_evaluated, *pair, given[1:]) for pair in pairs])
        elif eqn.primitive.name in ("jit", "pjit"):
            made = _evaluated(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts, given)
        else:
            made = _bound(eqn, given)
        values.update(zip(eqn.outvars, made, strict=True))
    return [var.val if hasattr(var, "val") else values[var] for var in jaxpr.outvars]


def _bound(eqn: Any, given: Sequence[Any]) -> Any:
    """A block of a pipeline is a view of its buffer; a loop over one raises ``KeyError``."""
    import jax

    params, view = eqn.params, next((each for each in given if hasattr(each, "transforms")), None)
    if view is not None:
        first = 1 + _VALUES[eqn.primitive.name]
        more = jax.tree_util.tree_unflatten(params["tree"], given[first:])
        flat, tree = jax.tree_util.tree_flatten((*view.transforms, *more))
        given, params = [view.ref, *given[1:first], *flat], {**params, "tree": tree}
    made = eqn.primitive.bind(*given, **params)
    return made if eqn.primitive.multiple_results else [made]


_MOST_AXES = 4


def grid_orders(eqn: Any, _: Made) -> Mapping[str, Callable[[], Any]]:
    """By the axes from without, as *102*; none of a grid that depends on data or that ``vmap`` has
    changed."""
    mapping = eqn.params["grid_mapping"]
    axes = tuple(range(len(mapping.grid)))
    is_fixed = all(isinstance(size, int) for size in mapping.grid)
    if not is_fixed or mapping.vmapped_dims or not 1 < len(axes) <= _MOST_AXES:
        return {}
    orders = (order for order in permutations(axes) if order != axes)
    return {"".join(map(str, order)): partial(_turned, eqn, order) for order in orders}


def _turned(eqn: Any, order: Sequence[int]) -> list[Any]:
    mapping, params = eqn.params["grid_mapping"], eqn.params["compiler_params"]
    names, semantics = mapping.grid_names, getattr(params, "dimension_semantics", None)
    if semantics:
        params = replace(params, dimension_semantics=_in_order(semantics, order))
    turned = replace(
        mapping,
        grid=_in_order(mapping.grid, order),
        grid_names=names and _in_order(names, order),
        block_mappings=tuple(_block(block, order) for block in mapping.block_mappings),
    )
    body = rewritten(eqn.params["jaxpr"], partial(_counted, order))
    return _with(eqn, grid_mapping=turned, jaxpr=body, compiler_params=params)


def _block(block: Any, order: Sequence[int]) -> Any:
    """Its index map takes the axes in their new order."""
    closed = block.index_map_jaxpr
    first = closed.jaxpr.invars
    invars = [*_in_order(first, order), *first[len(order) :]]
    return block.replace(index_map_jaxpr=closed.replace(jaxpr=closed.jaxpr.replace(invars=invars)))


def _counted(order: Sequence[int], eqn: Any, _: Made) -> list[Any] | None:
    if eqn.primitive.name not in _STEPS:
        return None
    return _with(eqn, axis=order.index(eqn.params["axis"]))


def _in_order(values: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[axis] for axis in order)


_Options = Mapping[str, Callable[[], Any]]

_UNROLLED = (2, 4, 8)
_SCALES = {"div": "/", "mul": "*"}
_LIMITS = tuple(mebibytes << 20 for mebibytes in (32, 64, 96))


def _wide_sum(eqn: Any, _: Made) -> _Options:
    import jax.numpy as jnp
    from jax import lax

    if eqn.primitive.name != "dot_general" or str(eqn.outvars[0].aval.dtype) != "bfloat16":
        return {}
    same = {name: eqn.params[name] for name in ("dimension_numbers", "precision")}

    def product(x: Any, y: Any) -> Any:
        wide = lax.dot_general(x, y, **same, preferred_element_type=jnp.dtype("float32"))
        return wide.astype(jnp.bfloat16)

    return {"": partial(spliced, eqn, eqn.invars, product)}


def _late_scale(eqn: Any, made: Made) -> _Options:
    """A factor of the rows of the left operand, applied to the result instead."""
    if eqn.primitive.name != "dot_general" or eqn.params["dimension_numbers"][0][0] != (1,):
        return {}
    scaled = _unconverted(eqn.invars[0], made)
    kind = "" if scaled is None else scaled.primitive.name
    if scaled is None or kind not in _SCALES:
        return {}
    (rows, scale), wide = scaled.invars, eqn.outvars[0].aval
    is_column = rows.aval.shape[1:] == eqn.invars[0].aval.shape[1:] and scale.aval.shape[1:] == (1,)
    if not is_column or len(wide.shape) != 2:
        return {}
    dtype = eqn.invars[0].aval.dtype

    def product(x: Any, by: Any, y: Any) -> Any:
        made = eqn.primitive.bind(x.astype(dtype), y, **eqn.params)
        return (made / by if kind == "div" else made * by).astype(wide.dtype)

    return {_SCALES[kind]: partial(spliced, eqn, (rows, scale, eqn.invars[1]), product)}


def _early_scale(eqn: Any, made: Made) -> _Options:
    """A factor of the whole product, applied to its left operand instead, which is smaller."""
    if eqn.primitive.name not in _SCALES or eqn.invars[1].aval.shape:
        return {}
    product = _unconverted(eqn.invars[0], made)
    if product is None or product.primitive.name != "dot_general":
        return {}
    import jax.numpy as jnp

    wide, left = eqn.outvars[0].aval, product.invars[0].aval
    if left.size >= wide.size or not jnp.issubdtype(left.dtype, jnp.floating):
        return {}

    def scaled(x: Any, by: Any, y: Any) -> Any:
        by = by.astype(x.dtype)
        x = x / by if eqn.primitive.name == "div" else x * by
        return product.primitive.bind(x, y, **product.params).astype(wide.dtype)

    inputs = (product.invars[0], eqn.invars[1], product.invars[1])
    return {_SCALES[eqn.primitive.name]: partial(spliced, eqn, inputs, scaled)}


def _unconverted(var: Any, made: Made) -> Any:
    """The equation that makes a variable, before it is converted."""
    eqn: Any = None if hasattr(var, "val") else made.get(var)
    is_conversion = eqn is not None and eqn.primitive.name == "convert_element_type"
    return _unconverted(eqn.invars[0], made) if is_conversion else eqn


def _unrolled(eqn: Any, _: Made) -> _Options:
    """A loop of known length; by as many turns as it has, if these are fewer: a small problem has a
    short one."""
    if eqn.primitive.name != "scan" or eqn.params["unroll"] != 1 or eqn.params["length"] == 1:
        return {}
    turns = eqn.params["length"]
    return {str(count): partial(_with, eqn, unroll=min(count, turns)) for count in _UNROLLED}


def _not_given(name: str, values: Mapping[str, Any], eqn: Any, _: Made) -> _Options:
    """What a parameter can be that the call leaves out."""
    if getattr(_parameters(eqn), name, True):
        return {}
    return {text: partial(_with_parameters, eqn, **{name: n}) for text, n in values.items()}


def _semantics(eqn: Any, _: Made) -> _Options:
    """The first axes parallel; which of these are right is for the rules to say."""
    mapping = eqn.params["grid_mapping"]
    if _parameters(eqn) is None:
        return {}
    rank = len(mapping.grid) - len(mapping.vmapped_dims)
    options = dict[str, Callable[[], Any]]()
    for count in range(1, rank + 1):
        kinds = (PARALLEL,) * count + (ARBITRARY,) * (rank - count)
        letters = "".join(kind[0].upper() for kind in kinds)
        options[letters] = partial(_with_parameters, eqn, dimension_semantics=kinds)
    return options


def _parameters(eqn: Any) -> Any:
    """Those of Mosaic; JAX before 0.7 has them as a mapping, which is left alone."""
    from jax.experimental.pallas import tpu as pltpu

    given = eqn.params["compiler_params"]
    make = getattr(pltpu, "CompilerParams", None)
    if given is None or given == {}:
        return make() if make else None
    return None if hasattr(given, "get") else given


def _with_parameters(eqn: Any, **values: Any) -> list[Any]:
    return _with(eqn, compiler_params=replace(_parameters(eqn), **values))


def _with(eqn: Any, **params: Any) -> list[Any]:
    return [eqn.replace(params={**eqn.params, **params})]


BODY_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.UNROLLED: _unrolled,
    ChangeKind.LATE_SCALE: _late_scale,
    ChangeKind.EARLY_SCALE: _early_scale,
}

CALL_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.VMEM_LIMIT: partial(_not_given, "vmem_limit_bytes", {str(n): n for n in _LIMITS}),
    ChangeKind.SEMANTICS: _semantics,
    ChangeKind.GRID_ORDER: grid_orders,
    ChangeKind.NO_BOUNDS_CHECKS: partial(_not_given, "disable_bounds_checks", {"": True}),
    ChangeKind.BUFFERS: more_buffers,
}


def missing_costs(calls: Sequence[Any]) -> Iterator[SourceChange]:
    """Of each call without a cost estimate whose work and traffic are known (XLA counts nothing in
    what it cannot read): floating-point operations, transcendentals, and bytes moved between HBM
    and VMEM, of the whole grid."""
    for call in calls:
        place = place_of(call.eqn) if hasattr(call.eqn, "source_info") else None
        if place is None or call.eqn.params.get("cost_estimate") is not None:
            continue
        (trace,) = call.traces(None)
        is_known = call.body.is_bounded and not trace.notes
        if is_known and all(op.is_pipelined and op.exact for op in trace.operands):
            special = round(call.body.transcendentals)
            figures = trace.mxu_flops + trace.vector_ops - special, special, trace.hbm_bytes
            value = ",".join(map(str, figures))
            yield SourceChange(kind=ChangeKind.COST_ESTIMATE, place=place, value=value)
