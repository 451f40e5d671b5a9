"""Integers of arrays in a model: inside of a ``jit`` or a loop Python sees none, but what is traced
knows those that are constants, or computed from them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.compiling.child.trace.calls import values_in


class KnownNumbers:
    """Of a trace: ``note`` while it runs, ``learn`` at its end, then ``filled``."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Any, Any]] = {}  # with what has the id, lest it is freed
        self._values: dict[Any, Any] = {}

    def note(self, tree: Any) -> None:
        import jax

        for leaf in _leaves(tree):
            if isinstance(leaf, jax.core.Tracer) and id(leaf) not in self._variables:
                self._variables[id(leaf)] = leaf, _variable(leaf)

    def learn(self, closed: Any, given: Sequence[Any]) -> None:
        """``given``: the arguments of what was traced, concrete or not. Nothing but zeros stands
        for what nobody knows."""
        is_known = [hasattr(array, "__array__") and array.dtype.kind in "biu" for array in given]
        known = [array if ok else None for array, ok in zip(given, is_known, strict=True)]
        self._values = {v: n for v, n in values_in(closed, known).items() if np.any(n)}

    def filled(self, tree: Any) -> Any:
        """With known numbers in the place of what was traced."""
        import jax

        def known(leaf: Any) -> Any:
            _, variable = self._variables.get(id(leaf), (None, None))
            return self._values.get(variable, leaf)

        changes = any(known(leaf) is not leaf for leaf in _leaves(tree))
        return jax.tree_util.tree_map(known, tree) if changes else tree


def _leaves(tree: Any) -> list[Any]:
    import jax

    try:
        return list(jax.tree_util.tree_leaves(tree))
    except Exception:  # keys without an order, or what a class of others raises
        return []


def _variable(tracer: Any) -> Any:
    """In the jaxpr that is being traced; of a gradient that of its value."""
    while hasattr(tracer, "primal"):
        tracer = tracer.primal
    variable = getattr(tracer, "val", None)
    if type(variable).__name__ == "Var":
        return variable
    frame = getattr(getattr(tracer, "_trace", None), "frame", None)  # before jax 0.7
    return getattr(frame, "tracer_to_var", {}).get(id(tracer))
