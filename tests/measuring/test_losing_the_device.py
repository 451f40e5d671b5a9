"""A run that does not go to its end: what it says, and that what was measured by then is kept. The
session and the race are real, the measuring process is a script."""

from collections.abc import Callable
from typing import Any

import pytest

from autotune.compiling.process import ChildDiedError
from autotune.compiling.protocol import Loaded, Sample, Samples
from autotune.domain.codec import to_data
from autotune.domain.evidence import Measurement, MeasurementCandidate, NotMeasured
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import ProblemSpec, make_config
from autotune.measuring.session import MeasuringTask, RaceLimits, Session
from tests.fakes.compiler import FakeCompilers

TIMES_US = {"c0": 50.0, "c1": 80.0, "xla": 120.0}
OPENED = {
    "platform": "tpu",
    "kind": "TPU v5 lite",
    "id": 1,
    "cores": 1,
    "count": 4,
    "method": "device time",
}
FAST, DEFAULT = make_config({"b": 1}), make_config({"b": 2})
Answer = Callable[[list[str]], dict[str, Any]]


def samples_of(samples):
    return {"ok": to_data(Samples(samples))}


def no_profile(order):
    return samples_of([Sample(None, "the profiler wrote no profile")] * len(order))


def times(order):
    return samples_of([Sample(round(TIMES_US[name] * 1e6)) for name in order])


class Process:
    """Stands for the measuring process; ``open`` and ``sample`` may be replaced while it runs."""

    def __init__(self):
        self.running = True
        self.open: Callable[[], dict[str, Any]] = lambda: {"ok": OPENED}
        self.sample: Answer = times
        self.asked: list[Any] = []
        self.closed = False

    def ask(self, request, limit_s):
        self.running = True
        self.asked.append(request)
        kind = request["kind"]
        if kind == "open":
            return self.open()
        if kind == "sample":
            return self.sample(request["order"])
        return {"ok": to_data(Loaded()) if kind == "load" else None}

    def dies(self):
        self.running = False
        raise ChildDiedError("the measuring process died of SIGABRT", "")

    def stop(self):
        self.running = False

    def close(self):
        self.closed = True


def measure(process, **limits):
    work = MeasuringTask(
        ref=KernelRef(path="k.py", attribute="K"),
        chip=Chip.V5E,
        problem=ProblemSpec(dims=("n",), dtypes=("float32",)).parse("8"),
    )
    session = Session(FakeCompilers(), process, work, number=1, limits=RaceLimits(**limits))
    found = session.measure(
        [MeasurementCandidate(config=FAST), MeasurementCandidate(config=DEFAULT)], DEFAULT
    )
    assert process.closed
    return found


def samples(found, config):
    return next(len(t.samples_us) for t in found.timed if t.config == config)


def test_the_device_is_named_and_the_one_that_was_asked_for():
    process = Process()
    found = measure(process)
    assert isinstance(found, Measurement) and found.device == "TPU v5 lite, device 1 of 4"
    assert next(r["number"] for r in process.asked if r["kind"] == "open") == 1
    assert found.winner is not None and found.winner.config == FAST


def test_a_busy_device_is_one_sentence():
    process = Process()
    said = "the accelerator is busy, another process has it: pid 77\nand more"
    process.open = lambda: {"error": {"stage": "open", "type": "CannotOpenError", "message": said}}
    assert measure(process) == NotMeasured(said.splitlines()[0])


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_stops_in_the_middle_keeps_what_was_measured(is_lost):
    """The device, or the profiler."""
    process = Process()

    def once(order):
        process.sample = (lambda _: process.dies()) if is_lost else no_profile
        process.open = process.dies if is_lost else process.open
        return times(order)

    process.sample = once
    found = measure(process)
    assert isinstance(found, Measurement)
    assert [samples(found, c) for c in (FAST, DEFAULT, None)] == [2, 2, 2]
    if is_lost:
        assert found.winner is None
        assert found.void.startswith("the device was lost: the measuring process died of SIGABRT")
    else:
        assert found.winner is None or found.of(DEFAULT).refused


@pytest.mark.parametrize("at", [0, 1])
def test_a_run_that_is_told_to_stop_keeps_what_was_measured(at):
    process = Process()
    ready = 5  # requests: open, inputs, three to load
    found = measure(process, stop=lambda: len(process.asked) >= ready + at)
    assert isinstance(found, Measurement) and found.stopped_by == "budget spent"
    assert found.count == 6 * at
