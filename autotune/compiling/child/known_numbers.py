"""Integers of arrays in a model: inside of a ``jit`` or a loop Python sees none, but what is traced
knows those that are constants, or computed from them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from autotune.compiling.child.trace.calls import values_in


class KnownNumbers:
    """Of a trace: ``note`` while it runs, ``learn`` at its end, then ``filled``."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Any, Any]] = {}  # with what has the id, lest it is freed
        self._values: dict[Any, Any] = {}

    def note(self, *trees: Any) -> None:
        import jax

        for tree in trees:
            with suppress(Exception):  # of keys without an order, or a class that refuses
                for leaf in jax.tree_util.tree_leaves(tree):
                    if isinstance(leaf, jax.core.Tracer):
                        self._variables.setdefault(id(leaf), (leaf, _variable(leaf)))

    def learn(self, closed: Any, given: Sequence[Any]) -> None:
        """``given``: the arguments of what was traced, concrete or not. Nothing but zeros stands
        for what nobody knows."""
        if not self._variables:
            return
        known = [array if hasattr(array, "__array__") else None for array in given]
        self._values = {v: n for v, n in values_in(closed, known).items() if np.any(n)}

    def filled(self, tree: Any) -> Any:
        """With known numbers in the place of what was traced; the same where there are none."""
        import jax

        with suppress(Exception):
            leaves, form = jax.tree_util.tree_flatten(tree)
            variables = [self._variables.get(id(leaf), (leaf, None))[1] for leaf in leaves]
            if not self._values.keys().isdisjoint(variables):
                pairs = zip(variables, leaves, strict=True)
                return form.unflatten(self._values.get(*pair) for pair in pairs)
        return tree


def _variable(tracer: Any) -> Any:
    """In the jaxpr that is being traced; of a gradient that of its value."""
    while hasattr(tracer, "primal"):
        tracer = tracer.primal
    variable = getattr(tracer, "val", None)
    if type(variable).__name__ == "Var":
        return variable
    frame = getattr(getattr(tracer, "_trace", None), "frame", None)  # before jax 0.7
    return getattr(frame, "tracer_to_var", {}).get(id(tracer))
