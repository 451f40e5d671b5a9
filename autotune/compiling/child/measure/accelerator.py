"""The accelerator itself, in the child: opening it, warming up, running, timing. Never the parent.

Only this process opens the device. Programs run one at a time, on inputs that are rotated so that
none of them is read from a cache.

Executables may be compiled in another process: they are saved there and loaded here.
"""

import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autotune.compiling.child.chips import compile_only_device, told_of
from autotune.compiling.child.compile.build import built, in_hbm, placed, plain_xla, specs
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.listings import compile_with
from autotune.compiling.child.measure.profile import call_times_ps
from autotune.compiling.child.measure.xspace import Plane, UnreadableProfileError, planes
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.verify.numbers import values
from autotune.compiling.protocol import Device
from autotune.declaring.kernel import Kernel
from autotune.domain.evidence import DEVICE_TIME, WALL_CLOCK, NotMeasured
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem


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

    try:
        if kernel.mesh_axes(problem):
            raise ValueError("a kernel of a mesh is not measured: one device is timed at a time")
        absent = chip if device is None else None
        if device is None:
            device = jax.devices("cpu")[0] if chip is None else compile_only_device(chip)
        # a pallas_call takes up interpret mode as it is made
        with told_of(absent, {}), _context(device):
            arrays = list(kernel.inputs(problem))
            if any(array.donated for array in arrays):
                raise ValueError("a donated argument is used up by one run: it is not measured")
            function = in_hbm(_function(kernel, problem, config), arrays)
            named = jax.jit(_named(function, f"measured_{name}"))
            traced = named.trace(*specs(arrays, device))
        with _context(device):  # to lower is not to ask
            return compile_with(traced.lower(), None if device.platform == "cpu" else options)
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


_ROTATED_BYTES = 512 << 20  # more than the VMEM of any chip and the last cache of most hosts
_MOST_SETS = 8
_WARM_UPS = 2

Inputs = list[list[Any]]


class CannotOpenError(Exception):
    """The device cannot be opened; the message is a sentence."""


def open_device(number: int) -> Any:
    """The device of that number on this host. Raises ``CannotOpenError``."""
    import jax

    try:
        devices = jax.local_devices()
    except Exception as error:
        raise CannotOpenError(why_not(str(error))) from error
    if not 0 <= number < len(devices):
        raise CannotOpenError(
            f"there is no device {number}: this machine has {len(devices)}, counted from 0"
        )
    return devices[number]


_NONE = "no tpu", "not found", "unable to initialize", "no devices", "unknown backend", "failed to"


def why_not(message: str) -> str:
    """A sentence about what JAX says when a backend cannot be used."""
    said = message.splitlines()[0][:240] if message else "nothing was said"
    low = message.lower()
    if any(words in low for words in ("already in use", "lockfile", "device or resource busy")):
        return f"the accelerator is busy, another process has it: {said}"
    if any(words in low for words in _NONE):
        return f"no accelerator can be opened here: {said}"
    return f"the accelerator cannot be opened: {said}"


def description(device: Any) -> Device:
    """Which device it is, and how its times are taken."""
    return Device(
        platform=device.platform,
        kind=device.device_kind,
        id=device.id,
        cores=getattr(device, "num_cores", 1) or 1,
        count=len(device.client.local_devices()),
        method=WALL_CLOCK if device.platform == "cpu" else DEVICE_TIME,
    )


def rotated_inputs(kernel: Kernel, problem: Problem, seed: int, device: Any) -> Inputs:
    """Sets of arguments, normal random numbers from the seed or what the declaration gives: so many
    that they are more than a cache holds, two at least."""
    import jax

    arrays = list(kernel.inputs(problem))

    def input_set(number: int) -> list[Any]:
        return [
            jax.device_put(
                values(array, np.random.default_rng([seed, number, n])), placed(array, device)
            )
            for n, array in enumerate(arrays)
        ]

    first = input_set(0)
    size = max(1, sum(array.nbytes for array in first))
    sets = min(_MOST_SETS, max(2, -(-_ROTATED_BYTES // size)))
    if size > 1 << 30:
        sets = 2
    return [first, *(input_set(number) for number in range(1, sets))]


def warm_up(program: Callable[..., Any], inputs: Inputs) -> None:
    """Run it until what happens only once has happened."""
    import jax

    for number in range(_WARM_UPS):
        jax.block_until_ready(program(*inputs[number % len(inputs)]))


def timed(
    order: Sequence[str], programs: dict[str, Any], inputs: Inputs, start: int, device: Any
) -> list[int | NotMeasured]:
    """Picoseconds of each run, in that order; ``start``: the set of arguments of the first."""
    runs = [(name, inputs[(start + n) % len(inputs)]) for n, name in enumerate(order)]
    if device.platform == "cpu":
        return [_wall_ps(programs[name], given) for name, given in runs]

    def run() -> None:
        for name, given in runs:
            _run(programs[name], given)

    return read(order, _profiled(run))


def read(order: Sequence[str], planes: Sequence[Plane] | NotMeasured) -> list[int | NotMeasured]:
    """The time of each run in an order, from the planes of its profile."""
    if isinstance(planes, NotMeasured):
        return [planes] * len(order)
    by_name = {
        name: call_times_ps(planes, f"jit_measured_{name}", calls)
        for name, calls in Counter(order).items()
    }
    seen: Counter[str] = Counter()
    answers: list[int | NotMeasured] = []
    for name in order:
        times = by_name[name]
        answers.append(times if isinstance(times, NotMeasured) else times[seen[name]])
        seen[name] += 1
    return answers


def _run(program: Callable[..., Any], given: Sequence[Any]) -> None:
    import jax

    jax.block_until_ready(program(*given))


def _wall_ps(program: Callable[..., Any], given: Sequence[Any]) -> int:
    started = time.perf_counter_ns()
    _run(program, given)
    return (time.perf_counter_ns() - started) * 1000


def _profiled(run: Callable[[], None]) -> list[Plane] | NotMeasured:
    """The planes of the profile of what ``run`` does."""
    import jax

    with TemporaryDirectory(prefix="autotune-profile-") as folder:
        with jax.profiler.trace(folder):
            run()
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        if not files:
            return NotMeasured("the profiler wrote no profile")
        try:
            return [plane for file in files for plane in planes(file.read_bytes())]
        except UnreadableProfileError as error:
            return NotMeasured(str(error))
