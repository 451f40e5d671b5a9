"""Times of a step's operations: simulated as code comes, remembered for whoever asks next."""

import os
import time

import pytest

from autotune.compiling.child.compile import step as operation_times
from autotune.compiling.child.compile.step import OperationTimes
from autotune.compiling.child.listings import FinalListing
from autotune.domain.key import Chip
from autotune.estimating.simulator.assembly import AssemblyError

TIMED = (1.5, 4096)
SIGNATURES = {"a": "multiply", "twin": "multiply", "b": "add", "c": "copy"}


class Compiler:
    """Has made code of these instructions since it was asked last."""

    def __init__(self, **made):
        self._made = made

    def more(self, *, is_last):
        for name, text in self._made.items():
            yield name, FinalListing(text, False, text) if isinstance(text, str) else text


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        operation_times.scheduled,
        "simulated",
        lambda text, *_, **__: TIMED if text == "code" else f"no {text}",
    )


def times(options="", chip=Chip.V5E):
    return OperationTimes(SIGNATURES, chip, {}, options)


def hear(known, **made):
    known.hear(Compiler(**made))


def test_what_another_run_has_simulated_is_known_by_what_it_does():
    first = times()
    assert (first.total, first.left) == (3, 3)
    hear(first, a="code", c="queue", elsewhere="code")
    for known in (first, times()):
        assert known.left == 1
        assert known.get("a") == known.get("twin") == TIMED
        assert known.get("c") == "no queue" and known.get("b") is None
    assert times("xla_x=1").left == times(chip=Chip.V6E).left == 3


def test_what_has_no_code_is_not_waited_for_again():
    first = times()
    hear(first, a=None, b=AssemblyError("torn"))
    assert first.left == 2  # the compiler may not have come to its end
    torn = Compiler(b=AssemblyError("torn"))
    first.hear(torn, is_last=True, is_running=False)
    first.end()
    again = times()
    assert again.left == 0 and again.get("b") == "torn" and isinstance(again.get("a"), str)


def test_a_line_that_was_cut_short_is_not_believed(tmp_path):
    hear(times(), a="code")
    (file,) = tmp_path.rglob("*.operations")
    whole = file.read_text()
    for end in range(len(whole) - 1):  # of a whole line, the last byte ends it
        file.write_text(whole[:end])
        assert times().get("a") is None
        hear(times(), b="code")
        assert times().get("a") is None and times().get("b") == TIMED


def test_what_no_step_has_used_for_long_is_forgotten(tmp_path, monkeypatch):
    def files():
        return {file.name for file in folder.iterdir()}

    hear(times(), a="code")
    (used,) = tmp_path.rglob("*.operations")
    folder, day = used.parent, 86_400
    for name, days in (("old.operations", 61), ("new.operations", 59), ("x.verdicts", 99)):
        (folder / name).write_text("x" * 200)
        os.utime(folder / name, times=(time.time() - days * day,) * 2)
    os.utime(used, times=(0, 0))
    assert times().get("a") == TIMED  # it is used now
    assert files() == {used.name, "new.operations", "x.verdicts"}
    monkeypatch.setattr(operation_times, "_MOST_BYTES", 200)
    times()
    assert files() == {used.name, "x.verdicts"}


def test_what_is_around_kernels_is_timed_and_remembered_apart(monkeypatch):
    def simulated(*_, is_plain, **__):
        return float(is_plain), 1

    monkeypatch.setattr(operation_times.scheduled, "simulated", simulated)
    for calls in ({}, {"kernel": None}):
        known = OperationTimes(SIGNATURES, Chip.V5P, calls, "")
        hear(known, a="code")
        assert known.get("a") == (float(not calls), 1)
