"""More than two buffers for each input: ``emit_pipeline`` in the place of the grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.compiling.child.changes.rewriting import Made, spliced
from autotune.domain.problem import PARALLEL

_BUFFERS, _CORES = 3, 2
_VALUES = {"get": 0, "swap": 1, "addupdate": 1}  # between a view and what indexes it


def more_buffers(eqn: Any, _: Made) -> Mapping[str, Callable[[], Any]]:
    """Of a grid whose operands are blocks in VMEM: *3*, and *3x2* if two cores can share it."""
    mapping, semantics = eqn.params["grid_mapping"], _semantics(eqn)
    spaces = {str(block.block_aval.memory_space) for block in mapping.block_mappings}
    is_plain = mapping.grid and not mapping.vmapped_dims and spaces <= {"vmem", "default", "None"}
    if not is_plain or eqn.params["input_output_aliases"]:
        return {}
    cores = (1, _CORES) if PARALLEL in semantics else (1,)
    return {"3x2" if n > 1 else "3": partial(_piped, eqn, n) for n in cores}


def _semantics(eqn: Any) -> Sequence[str]:
    given = getattr(eqn.params["compiler_params"], "dimension_semantics", None) or ()
    return [getattr(kind, "value", kind) for kind in given]


@dataclass(frozen=True)
class _Scratch:
    aval: Any

    def get_ref_aval(self) -> Any:
        return self.aval


def _piped(eqn: Any, cores: int) -> list[Any]:
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    mapping, params = eqn.params["grid_mapping"], eqn.params["compiler_params"]
    kinds = tuple(pltpu.GridDimensionSemantics(kind) for kind in _semantics(eqn))
    sizes = mapping.num_dynamic_grid_bounds
    index, arrays = sizes + mapping.num_index_operands, len(mapping.block_mappings)

    def body(*refs: Any) -> None:
        bounds, given, scratch = list(refs[:sizes]), refs[sizes:index], refs[index + arrays :]
        more = {} if cores == 1 else {"core_axis": 0, "dimension_semantics": kinds}
        specs = [
            _spec(block, given, is_input=n < mapping.num_inputs)
            for n, block in enumerate(mapping.block_mappings)
        ]
        pltpu.emit_pipeline(
            lambda *blocks: _evaluated(eqn.params["jaxpr"], (), (*given, *blocks, *scratch)),
            grid=tuple(n if isinstance(n, int) else bounds.pop(0)[0] for n in mapping.grid),
            in_specs=specs[: mapping.num_inputs],
            out_specs=specs[mapping.num_inputs :],
            **more,
        )(*refs[index : index + arrays])

    if kinds:
        params = replace(params, dimension_semantics=(PARALLEL,) if cores > 1 else None)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    made = pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=index,
            grid=(cores,) if cores > 1 else (),
            in_specs=[anywhere] * mapping.num_inputs,
            out_specs=[anywhere] * mapping.num_outputs,
            scratch_shapes=[_Scratch(aval) for aval in mapping.scratch_avals],
        ),
        out_shape=[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars],
        compiler_params=params or None,
        cost_estimate=eqn.params["cost_estimate"],
    )
    return spliced(
        eqn, eqn.invars, lambda *all_: made(*(n.reshape(1) for n in all_[:sizes]), *all_[sizes:])
    )


def _spec(block: Any, prefetched: Sequence[Any], *, is_input: bool) -> Any:
    from jax.experimental import pallas as pl

    spec = block.to_block_spec()
    mode = {"pipeline_mode": pl.Buffered(_BUFFERS)} if is_input else {}
    return pl.BlockSpec(spec.block_shape, lambda *axes: spec.index_map(*axes, *prefetched), **mode)


def _evaluated(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """As JAX does it; what is inside is traced again: ``program_id`` is one of the pipeline."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for eqn in jaxpr.eqns:
        given = [var.val if hasattr(var, "val") else values[var] for var in eqn.invars]
        made = _TRACED.get(eqn.primitive.name, _bound)(eqn, given)
        made = made if eqn.primitive.multiple_results else [made]
        values.update(zip(eqn.outvars, made, strict=True))
    return [var.val if hasattr(var, "val") else values[var] for var in jaxpr.outvars]


def _bound(eqn: Any, given: Sequence[Any]) -> Any:
    """A block of a pipeline is a view of its buffer."""
    import jax

    view: Any = next(iter(given), None)
    params = eqn.params
    if hasattr(view, "transforms"):
        first = 1 + _VALUES[eqn.primitive.name]
        more = jax.tree_util.tree_unflatten(params["tree"], given[first:])
        flat, tree = jax.tree_util.tree_flatten((*view.transforms, *more))
        given, params = [view.ref, *given[1:first], *flat], {**params, "tree": tree}
    return eqn.primitive.bind(*given, **params)


def _inlined(eqn: Any, given: Sequence[Any]) -> list[Any]:
    closed = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
    return _evaluated(closed.jaxpr, closed.consts, given)


def _branched(eqn: Any, given: Sequence[Any]) -> Any:
    from jax import lax

    return lax.switch(
        given[0],
        [
            partial(_evaluated, closed.jaxpr, closed.consts, given[1:])
            for closed in eqn.params["branches"]
        ],
    )


def _scanned(eqn: Any, given: Sequence[Any]) -> list[Any]:
    from jax import lax

    params, closed = eqn.params, eqn.params["jaxpr"]
    first, carries = params["num_consts"], params["num_carry"]

    def turn(carry: Sequence[Any], parts: Sequence[Any]) -> Any:
        made = _evaluated(closed.jaxpr, closed.consts, (*given[:first], *carry, *parts))
        return made[:carries], made[carries:]

    same = {name: params[name] for name in ("length", "reverse", "unroll")}
    carry, parts = lax.scan(turn, given[first : first + carries], given[first + carries :], **same)
    return [*carry, *parts]


_TRACED: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    "cond": _branched,
    "scan": _scanned,
    "jit": _inlined,
    "pjit": _inlined,
    "closed_call": _inlined,
    "custom_jvp_call": _inlined,
}
