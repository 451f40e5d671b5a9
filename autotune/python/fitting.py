"""Whether a config from outside can be handed to a kernel: a service may be old, or lie."""

from collections.abc import Callable, Sequence

from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.key import Key
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config, Problem, make_config
from autotune.domain.record import Record, Trial
from autotune.wording.units import micros


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
    refused = kernel.constraint(problem, config) if kernel.constraint else None
    return refused or _misfit_of_grid(kernel, config)


def of_another_default(
    kernel: Kernel, record: Record, trials: Callable[[Key], Sequence[Trial]]
) -> str | None:
    """Why it may be slower than the default that the kernel has now, in one sentence; None where it
    was compared with that, or ``trials`` of its key know better."""
    key, compared = record.key, record.default.config or Config(axes=())
    known = dict(compared.axes)
    try:
        today = kernel.default_axes(key.problem, key.chip.value)
    except ImportError:  # of a package that is not here: another runs the same kernel
        return None
    if known.keys() != today.keys() or today in (known, dict(record.config.axes)):
        return None
    tried = [t.estimate for t in trials(key) if t.estimate and dict(t.config.axes) == today]
    known_us = [e.time_us for e in tried if e.model == record.estimate.model]
    if known_us and record.estimate.time_us <= min(known_us):
        return None
    time = f"takes {micros(min(known_us))}" if known_us else "has no known time"
    return f"was compared with the default {compared}; today's, {make_config(today)}, {time}"


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
