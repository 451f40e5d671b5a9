"""What a kernel's ``build`` needs from Pallas, over all JAX versions and any grid order.

JAX is imported inside the functions: this module can be imported anywhere.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from autotune.domain.problem import Config


class Grid:
    """The grid of a ``pallas_call`` whose named axes come in the order that a config asks for.

    >>> grid = Grid(config, m=8, n=4, k=2)            # number of blocks on each axis
    >>> grid.sizes                                     # for `grid=`
    >>> grid.index_map(lambda m, k: (m, k))            # for `BlockSpec`, names as declared
    >>> pl.program_id(grid.axis("k"))                  # in the kernel's body
    """

    def __init__(self, config: Config, **extents: int) -> None:
        order = config.grid_order or tuple(extents)
        if sorted(order) != sorted(extents):
            raise ValueError(f"grid order {order} does not name the axes {tuple(extents)}")
        self._order = order
        self.sizes: tuple[int, ...] = tuple(extents[name] for name in order)

    def axis(self, name: str) -> int:
        """Position of a named axis, 0 is the outermost."""
        return self._order.index(name)

    def index_map(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An index map that gets the axes it names, and scalar-prefetch references after them.

        Parameters named like grid axes are filled by name; all others take the scalar-prefetch
        references, in order.
        """
        names = list(inspect.signature(function).parameters)
        wanted = [name for name in names if name in self._order]
        others = [name for name in names if name not in self._order]

        @wraps(function)  # a profile names the line of the function itself
        def by_position(*args: Any) -> Any:
            indices = dict(zip(self._order, args[: len(self._order)], strict=True))
            scalars = dict(zip(others, args[len(self._order) :], strict=False))
            return function(**{name: indices[name] for name in wanted}, **scalars)

        return by_position


def compiler_params(config: Config, **more: Any) -> Any:
    """Mosaic compiler parameters with the config's semantics and VMEM limit."""
    from jax.experimental.pallas import tpu as pltpu

    params = getattr(pltpu, "CompilerParams", None) or pltpu.TPUCompilerParams
    semantics = config.dimension_semantics or None
    return params(dimension_semantics=semantics, vmem_limit_bytes=config.vmem_limit_bytes, **more)
