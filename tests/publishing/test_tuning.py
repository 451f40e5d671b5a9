"""Several problems of a model: each is tuned once, and none takes the others with it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from autotune.cli.tune import _interpreters, tune
from autotune.compiling.environments.environment import FOLDER_VARIABLE, Environment, keep
from autotune.domain.errors import StoreError
from autotune.domain.verdict import Verdict
from autotune.domain.workload import Workload, WorkloadProblem
from autotune.publishing.publish import Publication
from autotune.publishing.tuning import Plan, TuningTask, tune_all
from autotune.publishing.whole_model import find_problems
from autotune.searching.limits import SearchLimits
from autotune.searching.result import SearchResult
from tests.fakes.compiler import TOOLCHAIN, FakeCompilers, MemoryStore
from tests.searching.test_loop import CHIP, SUBJECT, Quiet, answer, space


class Watching(Quiet):
    def announce(self, line: str) -> None:
        pass


class FullStore(MemoryStore):
    """There is room for no record of problem 7."""

    url = None

    def known_configs(self, kernel: str) -> list[Any]:
        return []

    def save_record(self, record: Any) -> None:
        if record.key.problem.dims[0][1] == 7:
            raise StoreError("the disk is full")


def test_what_cannot_be_published_leaves_the_others_their_report() -> None:
    name, store = SUBJECT.problem.dims[0][0], FullStore()
    tasks = [
        TuningTask(
            subject=replace(SUBJECT, problem=SUBJECT.problem.with_dims(**{name: size})),
            space=space(),
            watcher=Watching(),
        )
        for size in (7, 8)
    ]
    compilers = FakeCompilers(compiled=answer, verified=lambda _: Verdict(ok=True, reason="right"))
    told: list[tuple[SearchResult, Publication]] = []
    plan, fakes = Plan(limits=SearchLimits(trials=1)), (compilers, store)
    any_fakes: Any = fakes
    done = tune_all(*any_fakes, tasks, plan, lambda *one: told.append(one))
    full, right = [publication for _, publication in done]
    assert full is not None and (full.record, full.reason) == (None, "the disk is full")
    assert right is not None and right.record is not None
    assert len(told) == 2


def test_a_chip_counts_once_however_it_is_spelled() -> None:
    asked = [
        WorkloadProblem(kernel="vector_add", shape="65536", chips=("v5e", " V5E", "v5e", "v9"))
    ]
    spec = replace(SUBJECT.spec, problems=replace(SUBJECT.spec.problems))
    shape = ",".join(f"{n}={size}" for n, size in SUBJECT.problem.dims)
    compilers = FakeCompilers(spec=spec, chip=CHIP)
    asked = [replace(one, shape=shape, dtype=SUBJECT.problem.dtype) for one in asked]
    found, invalid = find_problems(compilers, asked, (), Path())
    assert [one.weight for one in found] == [1.0]
    assert len(invalid) == 1


def test_problems_of_a_version_under_two_names_are_compiled_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    made = Environment(name="0.12.0", python="/it", python_version="3.13", toolchain=TOOLCHAIN)
    (tmp_path / made.name).mkdir()
    keep(tmp_path, made)
    one, two, three = (WorkloadProblem(kernel=name) for name in "abc")
    problems = (
        replace(one, jax=("0.12.0", "0.12.0")),
        replace(two, jax=("0.12", "0.12.0")),
        three,
    )
    with click.Context(tune):
        found = _interpreters(Workload(problems=problems), None, None)
    assert {python: [p.kernel for p in some.problems] for python, some in found.items()} == {
        "/it": ["a", "b"],
        sys.executable: ["c"],
    }
