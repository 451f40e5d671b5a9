"""More than two buffers for each input: ``emit_pipeline`` in the place of the grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from autotune.compiling.child.changes.rewriting import Made, spliced
from autotune.compiling.child.trace.calls import inner_jaxprs, walked
from autotune.domain.problem import PARALLEL

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
