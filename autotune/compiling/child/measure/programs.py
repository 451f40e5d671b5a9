"""Executables that are compiled in one process and run in another, in the child."""

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from autotune.compiling.child.chips import abstract_mesh, compile_only_device
from autotune.compiling.child.compile.build import built, in_hbm, plain_xla, specs
from autotune.compiling.child.options import compile_with
from autotune.compiling.child.serving import StageError
from autotune.declaring.kernel import Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem


def module_name(name: str) -> str:
    """What the profile calls the program of a candidate."""
    return f"jit_measured_{name}"


def compiled(
    kernel: Kernel,
    problem: Problem,
    config: Config | None,
    name: str,
    chip: Chip | None,
    options: str | None = None,
    device: Any = None,
) -> Any:
    """The program of a config, or of plain XLA, for a ``device``: by default a compile-only one of
    the chip, or the CPU where no chip is named. Raises ``StageError``."""
    import jax

    arrays = list(kernel.inputs(problem))
    try:
        if kernel.mesh_axes(problem):
            raise ValueError("a kernel of a mesh is not measured: one device is timed at a time")
        if any(array.donated for array in arrays):
            raise ValueError("a donated argument is used up by one run: it is not measured")
        if device is None:
            device = jax.devices("cpu")[0] if chip is None else compile_only_device(chip)
        with _context(device):  # a pallas_call takes up interpret mode as it is made
            function = in_hbm(_function(kernel, problem, config), arrays)
            named = jax.jit(_named(function, f"measured_{name}"))
            lowered = named.trace(*specs(arrays, device)).lower()
            return compile_with(lowered, None if device.platform == "cpu" else options)
    except Exception as error:
        raise StageError.of("compile", error) from error


def _context(device: Any) -> AbstractContextManager[Any]:
    """A TPU is told of itself; on a CPU, Pallas TPU kernels run in interpret mode."""
    if device.platform == "tpu":
        return abstract_mesh(device)
    if device.platform != "cpu":
        return nullcontext()
    from jax.experimental.pallas import tpu as pltpu

    force = getattr(pltpu, "force_tpu_interpret_mode", nullcontext)
    context: AbstractContextManager[Any] = force()
    return context


def save(program: Any, path: Path) -> int:
    """Write a program; the bytes that it took. Raises ``StageError`` where this version of JAX, or
    what the program does (callbacks), does not allow it."""
    from jax.experimental import serialize_executable

    try:
        data = pickle.dumps(serialize_executable.serialize(program))
    except Exception as error:
        raise StageError("serialize", error) from error
    path.write_bytes(data)
    return len(data)


def load(path: Path, device: Any) -> Any:
    """The program in a file that our own compiler process wrote. Raises ``StageError`` where this
    libtpu refuses it."""
    import inspect

    from jax.experimental import serialize_executable

    try:
        parts = pickle.loads(path.read_bytes())  # noqa: S301 (our own file, in our own folder)
        where = {"backend": device.client, "execution_devices": [device]}
        known = inspect.signature(serialize_executable.deserialize_and_load).parameters
        return serialize_executable.deserialize_and_load(
            *parts, **{name: value for name, value in where.items() if name in known}
        )
    except Exception as error:
        raise StageError("load", error) from error


def _function(kernel: Kernel, problem: Problem, config: Config | None) -> Callable[..., Any]:
    if config is not None:
        return built(kernel, problem, config)[0]
    return plain_xla(kernel, problem)


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The profile shows a program by the name of its function."""

    def measured(*arrays: Any) -> Any:
        return function(*arrays)

    measured.__name__ = measured.__qualname__ = name
    return measured
