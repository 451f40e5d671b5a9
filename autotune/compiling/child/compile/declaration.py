"""What is wrong with a declaration that imports, in the child: found with its default config."""

from collections.abc import Callable, Sequence
from typing import Any

from autotune.compiling.child.chips import told_of
from autotune.compiling.child.trace.pallas_call import abstract
from autotune.declaring.kernel import Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import AxisValue, Problem, make_config


def complaint(kernel: Kernel, problem: Problem, chip: Chip) -> str | None:
    """A sentence, or None. A default that cannot be built is no mistake: it can be a legal answer
    that this problem has no default."""
    with told_of(chip, kernel.mesh_axes(problem)):
        return (
            _other_axes(kernel, problem, chip)
            or _other_default(kernel, problem)
            or _other_outputs(kernel, problem, chip)
        )


def choices(kernel: Kernel, problem: Problem, chip: str | None) -> dict[str, list[AxisValue]]:
    """The values of each axis, that of the default on a chip among them: what heuristics or a
    table of a kernel's authors say is always worth trying."""
    choices = {axis.name: list(axis.choices(problem)) for axis in kernel.axes}
    if kernel.default_on is not None:
        for name, value in kernel.default_axes(problem, chip).items():
            if value not in choices.get(name, [value]):
                choices[name].append(value)
    return choices


def _other_default(kernel: Kernel, problem: Problem) -> str | None:
    default = {} if kernel.default_on is not None else kernel.default_axes(problem, None)
    for axis in kernel.axes:
        known = list(axis.choices(problem))
        if axis.name in default and default[axis.name] not in known:
            return (
                f"its default {axis.name}={default[axis.name]} is not among the choices of that "
                f"axis for {problem}: {', '.join(map(str, known)) or 'there are none'}; add it to "
                "them, or have the declaration's `check` refuse such a problem"
            )
    return None


def _other_axes(kernel: Kernel, problem: Problem, chip: Chip) -> str | None:
    axes, default = [a.name for a in kernel.axes], list(kernel.default_axes(problem, chip.value))
    if sorted(axes) == sorted(default):
        return None
    return f"its default gives {', '.join(default) or 'nothing'}, its axes are {', '.join(axes)}"


def _other_outputs(kernel: Kernel, problem: Problem, chip: Chip) -> str | None:
    """A reference or baseline whose results have other shapes or dtypes than the kernel's."""
    inputs = abstract(kernel.inputs(problem))
    config = make_config(kernel.default_axes(problem, chip.value), grid_order=kernel.grid)
    try:
        kernel_outputs = _outputs(kernel.build(problem, config), inputs)
    except Exception:
        return None
    for name, make in (("reference", kernel.reference), ("baseline", kernel.baseline)):
        if make is None:
            continue
        try:
            outputs = _outputs(make(problem), inputs)
        except Exception as error:
            return f"its {name} raises {type(error).__name__}: {error}".splitlines()[0]
        if outputs != kernel_outputs:
            got = ", ".join(outputs)
            return f"its {name} gives {got}, the kernel gives {', '.join(kernel_outputs)}"
    return None


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[str]:
    import jax

    leaves = jax.tree_util.tree_leaves(jax.eval_shape(function, *inputs))
    return [f"{leaf.dtype}[{','.join(str(size) for size in leaf.shape)}]" for leaf in leaves]
