"""Several problems of a model: each is tuned once, and none takes the others with it."""

import sys
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import click
import pytest

from autotune.cli.tune import _interpreters, tune
from autotune.compiling.environments.environment import FOLDER_VARIABLE, Environment, keep
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import StoreError
from autotune.domain.evidence import NotMeasured, Verdict
from autotune.domain.key import Chip, Choices
from autotune.domain.workload import Workload, WorkloadProblem
from autotune.publishing import task, timing, tuning
from autotune.publishing.publish import opened, running
from autotune.publishing.task import (
    NotTuned,
    Plan,
    Timing,
    TuningObserver,
    TuningTask,
    workload_tasks,
)
from autotune.publishing.tuning import tune_all
from autotune.searching.subject import SearchLimits
from tests.fakes.compiler import TOOLCHAIN, FakeCompilers, MemoryStore
from tests.publishing.test_publish import CHIP, SUBJECT
from tests.searching.test_loop import answer, space


class FullStore(MemoryStore):
    """There is room for no record of problem 7."""

    def save_record(self, record):
        if record.key.problem.dims[0][1] == 7:
            raise StoreError("the disk is full")


def tasks(*sizes):
    """The problem of the samples with another first size each."""

    def task(size):
        problem = SUBJECT.problem.with_dims(**{SUBJECT.problem.dims[0][0]: size})
        return TuningTask(ref=SUBJECT.ref, chip=CHIP.chip, problem=problem, weight=size)

    return list(map(task, sizes))


def tuned(monkeypatch, store, asked, observer=None, **plan):
    """Two trials of each."""
    monkeypatch.setattr(tuning, "explore_space", lambda *_: space())
    compilers = FakeCompilers(
        spec=SUBJECT.spec,
        chip=CHIP,
        choices=Choices(axes={}, default={}, grid=()),
        compiled=answer,
        verified=lambda _: Verdict(ok=True, reason="right"),
    )
    any_store = store
    plan = {"limits": SearchLimits(trials=2), **plan}
    return tune_all(
        running(compilers), opened(any_store), asked, Plan(**plan), observer or TuningObserver()
    )


def test_what_cannot_be_published_leaves_the_others_their_report(monkeypatch):
    full, right = tuned(monkeypatch, FullStore(), tasks(7, 8))
    assert (full.record, full.publication.failure) == (None, "the disk is full")
    assert right.record is not None


def test_equal_problems_are_one_with_the_sum_of_their_weights(monkeypatch):
    totals = []
    observer = TuningObserver()
    observer.begin = totals.append
    results = tuned(monkeypatch, MemoryStore(), tasks(8, 7, 8), observer)
    assert [result.task.weight for result in results] == [16, 7] and totals == [2]


def test_a_task_that_cannot_be_described_leaves_the_others(monkeypatch):
    (good,) = tasks(8)
    bad = replace(good, problem=ProblemWords(shape="z=8"), line=3)
    done, refused = tuned(monkeypatch, MemoryStore(), [bad, good, replace(bad, chip=Chip.V7X)])
    assert done.record is not None
    assert isinstance(refused, NotTuned) and refused.problem.line == 3


class Withdrawn(TuningObserver):
    """Lets nothing be published from a moment on."""

    def __init__(self, after):
        self.left = after

    def may_publish(self):
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("after", [0, 1])
def test_nothing_is_published_that_the_observer_withdraws(monkeypatch, after):
    """Before its publication, and while it is timed."""
    measured = []
    monkeypatch.setattr(
        timing, "new_measure", lambda *_: lambda *asked: measured.append(asked) or NotMeasured("no")
    )
    store = FullStore()
    (result,) = tuned(monkeypatch, store, tasks(8), Withdrawn(after))
    assert result.publication is None and len(store.kept) == 2
    assert len(measured) == after


def test_ctrl_c_ends_a_race_and_publishes_nothing(monkeypatch):
    """The race runs in a thread, which hears no signal."""
    timed, ended, left = Event(), Event(), list[bool]()

    def new_measure(*asked):
        stop = asked[-1]

        def measure(*_):
            timed.set()
            for _ in range(60):
                if stop():
                    break
                time.sleep(0.05)
            left.append(stop())
            return NotMeasured("it was ended")

        return measure

    class Waiting(Future[Any]):
        def result(self, timeout=None):
            timed.wait(60)
            raise KeyboardInterrupt

    class Threads(tuning.ThreadPoolExecutor):
        def submit(self, *asked):
            super().submit(*asked).add_done_callback(lambda _: ended.set())
            return Waiting()

    monkeypatch.setattr(timing, "new_measure", new_measure)
    monkeypatch.setattr(tuning, "ThreadPoolExecutor", Threads)
    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        tuned(monkeypatch, store, tasks(8))
    assert ended.wait(60) and left == [True] and not store.published


def test_finalists_are_timed_where_the_chip_is_attached(monkeypatch):
    asked = []

    def session(pool, process, work, **options):
        asked.append((work.chip, options["number"], options["limits"].seconds))
        return SimpleNamespace(measure=lambda *_: NotMeasured("it is busy"))

    monkeypatch.setattr(timing, "Session", session)
    for attached in ([], [CHIP.chip]):
        monkeypatch.setattr(task, "attached_chips", lambda chips=attached: chips)
        (result,) = tuned(monkeypatch, FullStore(), tasks(8), timing=Timing(device=2, seconds=7.0))
        assert result.record is not None
    assert asked == [(CHIP.chip, 2, 7.0)]


def test_a_chip_counts_once_however_it_is_spelled():
    asked = WorkloadProblem(kernel="vector_add", shape="65536", chips=("v5e", " V5E", "v5e", "v9"))
    found = list(workload_tasks([asked], (), Path()))
    assert [getattr(entry, "chip", "none") for entry in found] == ["none", Chip.V5E]


def test_problems_of_a_version_under_two_names_are_compiled_together(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    made = Environment(name="0.12.0", python="/it", python_version="3.13", toolchain=TOOLCHAIN)
    (tmp_path / made.name).mkdir()
    keep(tmp_path, made)
    one, two, three = (WorkloadProblem(kernel=name) for name in "abc")
    problems = (replace(one, jax=("0.12.0", "0.12.0")), replace(two, jax=("0.12", "0.12.0")), three)
    with click.Context(tune):
        found = _interpreters(Workload(problems=problems), None, None)
    assert {python: [p.kernel for p in some.problems] for python, some in found.items()} == {
        "/it": ["a", "b"],
        sys.executable: ["c"],
    }
