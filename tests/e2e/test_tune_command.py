"""``autotune tune`` with the real TPU compiler: a workload, from its file to its records."""

import json
import signal
import subprocess
import sys

import pytest

from autotune.domain.codec import to_data
from autotune_db import open_store
from tests.servers.commands import autotune, autotune_here
from tests.servers.service import until

pytestmark = pytest.mark.slow

WORKLOAD = """
chips = ["v5e", "v6e"]

[[problem]]
kernel = "rmsnorm"
shape = "1024x1024"
weight = 3
config = "block_rows=64,block_features=1024"

[[problem]]
kernel = "rmsnorm"
shape = {rows = 1024, features = 1024}

[[problem]]
kernel = "vector_ad"
shape = "1024"

[[problem]]
kernel = "vector_add"
shape = "n=65536"
chips = ["v5e", "v9"]
"""
HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from autotune.cli.main import main
main()
"""
TUNE = ("tune", "model.toml", "--trials", "3")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A folder with a database after one run; its report, and what it wrote while it ran."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "model.toml").write_text(WORKLOAD)
    done = autotune(*TUNE, cwd=folder)
    assert done.returncode == 1, done.stderr
    again = autotune_here(*TUNE, "--json", "--name", "a/model", cwd=folder)
    assert again.returncode == 1, again.stderr
    return folder, json.loads(again.stdout), [done.stdout, done.stderr]


def test_all_is_tuned_but_what_cannot_be_and_that_names_its_line(tuned):
    _, report, (printed, errors) = tuned
    problems = report["problems"]
    asked = [(p["key"]["kernel"], p["key"]["chip"], p["weight"]) for p in problems]
    assert asked == [("rmsnorm", "v5e", 4), ("rmsnorm", "v6e", 4), ("vector_add", "v5e", 1)]
    assert all(p["record"]["verified"] and p["trials"] == 3 for p in problems)
    assert problems[0]["before"]["axes"]["block_rows"] == 64
    assert [one["line"] for one in report["invalid"]] == [14, 18]
    assert "line 14: vector_ad 1024: unknown kernel" in printed
    assert "line 18: vector_add n=65536: unknown chip 'v9'" in printed
    assert sum("/3 " in line for line in errors.splitlines()) == 3


def test_the_model_is_the_weighted_sum_of_its_problems(tuned):
    _, report, _ = tuned
    for row in report["model"]:
        part = [p for p in report["problems"] if p["key"]["chip"] == row["chip"]]
        for when in ("before_us", "after_us"):
            assert row[when] == pytest.approx(sum(p["weight"] * p[when] for p in part))


def test_it_is_kept_for_the_dashboard_under_the_name_of_the_file_or_the_one_given(tuned):
    folder, report, _ = tuned
    with open_store(str(folder / "test.db")) as store:
        (_, (name, tuned_at)) = saved = store.workloads.names()
        value = store.workloads.find(name)
    assert [name for name, _ in saved] == ["a/model", "model"]
    assert value is not None and value[1] == tuned_at
    entries = [(to_data(one.key), one.weight, one.before_us) for one in value[0].entries]
    assert entries == [(p["key"], p["weight"], p["before_us"]) for p in report["problems"]]
    assert [line.partition(":")[0] for line in value[0].missing] == ["not tuned", "not tuned"]


def test_what_is_finished_is_neither_compiled_nor_verified_again(tuned):
    folder, report, _ = tuned
    history = json.loads(autotune_here("history", "--trials", "--json", cwd=folder).stdout)
    assert [len(key["trials"]) for key in history] == [3, 3, 3]
    assert [p["verification_s"] for p in report["problems"]] == [0.0, 0.0, 0.0]


def test_ctrl_c_loses_nothing_and_the_same_command_goes_on(tmp_path):
    (tmp_path / "model.toml").write_text(WORKLOAD)
    command = [*TUNE[:3], "7", "--full", "--db", "test.db"]

    def trials():
        with open_store(str(tmp_path / "test.db"), create=True) as store:
            return {
                (key.key, one.number) for key in store.history() for one in store.trials(key.key)
            }

    with subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *command], cwd=tmp_path, stderr=subprocess.PIPE
    ) as run:
        until(lambda: len(trials()) >= 3 or run.poll() is not None)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 130 and b"Traceback" not in errors, errors
    saved = trials()
    assert 3 <= len(saved) < 21
    assert autotune(*command, cwd=tmp_path).returncode == 1
    assert saved < trials() and len(trials()) == 21
