"""The accelerator itself, in the child: opening it, warming up, running, timing. Never the parent.

Only this process opens the device. Programs run one at a time, on inputs that are rotated so that
none of them is read from a cache.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autotune.compiling.child.compile.build import placed
from autotune.compiling.child.measure.profile import call_times_ps
from autotune.compiling.child.measure.programs import module_name
from autotune.compiling.child.measure.xspace import Plane, UnreadableProfileError, planes
from autotune.compiling.child.verify.numbers import values
from autotune.compiling.protocol import Device
from autotune.declaring.kernel import Kernel
from autotune.domain.measurement import DEVICE_TIME, WALL_CLOCK, NotMeasured
from autotune.domain.problem import Problem

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


def why_not(message: str) -> str:
    """A sentence about what JAX says when a backend cannot be used."""
    said = message.splitlines()[0][:240] if message else "nothing was said"
    low = message.lower()
    if any(words in low for words in ("already in use", "lockfile", "device or resource busy")):
        return f"the accelerator is busy, another process has it: {said}"
    if any(
        words in low
        for words in (
            "no tpu",
            "not found",
            "unable to initialize",
            "no devices",
            "unknown backend",
            "failed to",
        )
    ):
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
        name: call_times_ps(planes, module_name(name), calls)
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
