"""The axes of a grid in another order: whatever counts them is told."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

from autotune.compiling.child.changes.rewriting import Made, rewritten

_MOST_AXES = 4
_COUNTING = ("program_id", "num_programs")


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
        params = dataclasses.replace(params, dimension_semantics=_in_order(semantics, order))
    turned = dataclasses.replace(
        mapping,
        grid=_in_order(mapping.grid, order),
        grid_names=names and _in_order(names, order),
        block_mappings=tuple(_block(block, order) for block in mapping.block_mappings),
    )
    body = rewritten(eqn.params["jaxpr"], partial(_counted, order))
    changed = {"grid_mapping": turned, "jaxpr": body, "compiler_params": params}
    return [eqn.replace(params={**eqn.params, **changed})]


def _block(block: Any, order: Sequence[int]) -> Any:
    """Its index map takes the axes in their new order."""
    closed = block.index_map_jaxpr
    first = closed.jaxpr.invars
    invars = [*_in_order(first, order), *first[len(order) :]]
    return block.replace(index_map_jaxpr=closed.replace(jaxpr=closed.jaxpr.replace(invars=invars)))


def _counted(order: Sequence[int], eqn: Any, _: Made) -> list[Any] | None:
    if eqn.primitive.name not in _COUNTING:
        return None
    axis = order.index(eqn.params["axis"])
    return [eqn.replace(params={**eqn.params, "axis": axis})]


def _in_order(values: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[axis] for axis in order)
