"""Between which two releases something became slower."""

import json
from dataclasses import replace
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli import bisect
from autotune.cli.bisect import first_slower
from autotune.cli.step import StepQuestion
from autotune.compiling.environments import create
from autotune.compiling.environments.environment import LIBTPU, Environment
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Toolchain
from autotune.domain.step import Step
from autotune.estimating.cost_model.step import step_time
from tests.samples.operations import compiled_step, operation
from tests.samples.traces import V5E
from tests.servers.commands import assert_one_sentence, autotune_here

INDEX = "libtpu (0.0.40)\nAvailable versions: 0.0.40, 0.0.30.post1, 0.0.30, 0.0.25, 0.0.20, 0.0.9\n"


def timed(libtpu, us, line="block.py:9", **fields):
    """Of one operation; None: by its bytes."""
    schedule = operation("sum", line=line, simulated_us=us, hbm_bytes=10**8, **fields)
    toolchain = Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu=libtpu)
    return replace(step_time(compiled_step(schedule), V5E, tokens=0), toolchain=toolchain)


@pytest.fixture
def compiled(monkeypatch):
    """Steps that compilers would make of libtpu, a text where none can be installed. Gives the
    libtpu and the source of each that is asked for."""

    def compiled(*ends, between=()):
        asked = []
        steps = {step.toolchain.libtpu: step for step in between if isinstance(step, Step)}

        def make(_, name, **__):
            libtpu = name.partition(LIBTPU)[2]
            if libtpu in between:
                raise AutotuneError("no network")
            toolchain = Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu=libtpu)
            return Environment(name=name, python=libtpu, python_version="3", toolchain=toolchain)

        def ask(_, ways, **__):
            asked.extend(ways)
            if len(ways) == 2:
                return [ends[1]], {"v5e": ends[0]}, {}
            return [steps.get(ways[0][0], ends[1])], {}, {}

        monkeypatch.setattr(bisect, "create_environment", make)
        monkeypatch.setattr(create, "_run", lambda _: INDEX)
        monkeypatch.setattr(StepQuestion, "ask", ask)
        return asked

    return compiled


@pytest.fixture
def answer(tmp_path):
    (tmp_path / "block.py").write_text("def layer(): ...\n")
    where = ["block.py:layer", "--chip", "v5e", "--bisect", "block.py:9"]
    both = ["--python", "first", "--python", "second"]
    return lambda *more: autotune_here("step", *where, *both, *more, cwd=tmp_path)


def test_the_newer_libtpu_may_come_first(compiled, answer):
    fast = [timed(version, 10.0) for version in ("0.0.30", "0.0.30.post1")]
    compiled(timed("0.0.40", 10.0), timed("0.0.20", 30.0), between=fast)
    done = answer()
    assert "10.0 µs with libtpu 0.0.30, 30.0 µs with libtpu 0.0.25. 3 releases" in done.stdout
    assert create.libtpu_releases("0.0.20", "0.0.40") == ["0.0.25", "0.0.30", "0.0.30.post1"]
    assert create.libtpu_releases("0.0.30.post1", "0.0.9") == ["0.0.30", "0.0.25", "0.0.20"]


def test_each_step_has_the_configs_of_one_source(compiled, answer, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SOURCE", "tuned.bundle")
    asked = compiled(timed("0.0.20", 10.0), timed("0.0.40", 30.0))
    assert answer().returncode == 0
    assert len(asked) > 3
    assert {source for _, source in asked} == {"tuned.bundle"}


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("0.0.40", "no network"),
        (timed("0.0.40", 30.0, line="block.py:8"), "nothing is left of it"),
        (timed("0.0.40", None), "not timed as before"),
    ],
)
def test_nothing_is_answered_where_the_last_says_nothing(end, said, compiled, answer):
    compiled(timed("0.0.20", 10.0), timed("0.0.40", 30.0), between=[end])
    done = answer()
    assert done.returncode == 2
    assert said in done.stderr
    assert "30.0 µs" in done.stdout  # the step is there all the same
    printed = answer("--json")
    data = json.loads(printed.stdout)
    assert (printed.returncode, len(data["steps"])) == (2, 1) and said in data["failed"]["bisect"]


def test_a_release_that_cannot_be_compared_says_nothing(compiled, answer):
    """Of three between, two that would be *not slower* by a time of 0 or by bytes."""
    others = timed("0.0.30", 30.0, line="block.py:8"), timed("0.0.30.post1", None)
    compiled(timed("0.0.20", 10.0), timed("0.0.40", 300.0), between=[*others, timed("0.0.25", 9.0)])
    assert "with libtpu 0.0.25, 300.0 µs with libtpu 0.0.40" in answer().stdout


def test_what_is_new_was_not_there_before(compiled, answer):
    without = [timed(version, 30.0, line="block.py:8") for version in ("0.0.20", "0.0.25")]
    compiled(without[0], timed("0.0.40", 30.0), between=without)
    assert "with libtpu 0.0.25, 30.0 µs with libtpu 0.0.30." in answer().stdout


def test_a_workload_has_its_own_arguments(tmp_path):
    (tmp_path / "model.toml").write_text('step = "block.py:layer"\n')
    given = "--workload", "model.toml", "--args", "x=f32[8]"
    done = autotune_here("step", *given, cwd=tmp_path)
    assert_one_sentence(done, "leave out --args")


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_it_takes_the_logarithm_of_the_releases(case):
    count, first = case
    asked = []

    def is_slower(release):
        asked.append(release)
        return int(release) >= first

    names = [str(number) for number in range(count)]
    assert first_slower(names, is_slower) == (str(first - 1), str(first))
    assert len(asked) <= ceil(log2(count))


@pytest.mark.parametrize("broken", ["1", "2", "3"])
def test_a_release_that_says_nothing_is_passed_over(broken):
    def is_slower(name):
        if name == broken:
            raise AutotuneError("no network")
        return int(name) >= 3

    last, first = first_slower([*"01234"], is_slower)
    assert int(last) < 3 <= int(first)
    assert broken not in (last, first)
