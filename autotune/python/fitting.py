"""Whether a config from outside can be handed to a kernel: a service may be old, or lie."""

from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.config import ARBITRARY, PARALLEL, AxisValue, Config
from autotune.domain.problem import Problem


def misfit(kernel: Kernel, problem: Problem, config: Config) -> str | None:
    """Why not, in one sentence; None where it can."""
    given, known = dict(config.axes), {axis.name: axis for axis in kernel.axes}
    if given.keys() != known.keys():
        return (
            f"it gives {', '.join(given) or 'nothing'}, the axes of the kernel are "
            f"{', '.join(known) or 'none'}"
        )
    for name, value in given.items():
        if not _fits(known[name], problem, value):
            return f"{name}={value!r} is no choice of that axis for {problem}"
    return _misfit_of_grid(kernel, config)


def _fits(axis: Axis, problem: Problem, value: AxisValue) -> bool:
    """A choice, or a block that somebody has found: no longer than what it cuts."""
    if axis.dim is not None and type(value) is int and 0 < value <= problem[axis.dim]:
        return True
    same = (choice for choice in axis.choices(problem) if type(choice) is type(value))
    return any(choice == value for choice in same) and not (type(value) is int and value < 0)


def _misfit_of_grid(kernel: Kernel, config: Config) -> str | None:
    order, semantics = config.grid_order, config.dimension_semantics
    if order and sorted(order) != sorted(kernel.grid):
        return f"its grid order {' > '.join(order)} does not name {', '.join(kernel.grid)}"
    if any(semantic not in (PARALLEL, ARBITRARY) for semantic in semantics):
        return f"its dimension semantics are {', '.join(map(str, semantics))}"
    if kernel.grid and semantics and len(semantics) != len(kernel.grid):
        return f"it has semantics for {len(semantics)} grid axes of {len(kernel.grid)}"
    limit = config.vmem_limit_bytes
    if limit is not None and (type(limit) is not int or limit <= 0):
        return f"its VMEM limit is {limit!r} bytes"
    return None
