"""Real Ray clusters: the compiler mostly only sleeps, what happens to nodes and drivers is real."""

import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from autotune.compiling.farm.pool import RayPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import CompileConfig, DescribeToolchain
from autotune.domain.errors import KernelImportError
from autotune.domain.key import Chip, installed_toolchain
from autotune.domain.outcome import CompileFailed, Crashed
from autotune.domain.problem import make_config
from tests.compiling.farm.conftest import PROBLEM, SLEEPING, add_nodes
from tests.servers.commands import autotune
from tests.servers.service import until

pytestmark = pytest.mark.slow

REF = find_kernel("vector_add")
ROOT = Path(__file__).parents[3]
DRIVER = Path(__file__).with_name("driver.py")


def compiled(pool, count, **axes):
    return [
        pool.submit(
            CompileConfig(
                ref=REF,
                problem=PROBLEM,
                config=make_config({**axes, "number": number}),
                chip=Chip.V5E,
            )
        )
        for number in range(count)
    ]


def start_driver(cluster, database):
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(DRIVER), cluster.address, str(database)]
    return subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, text=True)


def test_who_cannot_help_says_why_and_the_others_go_on(cluster, tmp_path):
    for name, text in (
        ("without", "raise ModuleNotFoundError(\"No module named 'autotune'\")"),
        ("broken", "raise ValueError('broken there')"),
        (
            "older",
            f"__path__ = [{str(ROOT / 'autotune')!r}]\n"
            "from autotune.domain import version\n"
            "version.VERSION = '0.0.1'",
        ),
    ):
        (tmp_path / name / "autotune").mkdir(parents=True)
        (tmp_path / name / "autotune" / "__init__.py").write_text(text)
        add_nodes(cluster, 1, env_vars={"PYTHONPATH": str(tmp_path / name)})
    add_nodes(cluster, 2)
    cluster.add_node(num_cpus=1, memory=2 << 30)
    said = []
    with RayPool(cluster.address, announce=said.append, worker=SLEEPING) as pool:
        assert pool.size == 2
        answers = [future.result().answer for future in compiled(pool, 4)]
    assert all(isinstance(one, CompileFailed) for one in answers)
    reasons = (
        "has no pallas-autotune",
        "has pallas-autotune 0.0.1, not",
        "has 2.0 GiB",
        "broken there",
    )
    assert len(said) == 4
    assert all(any(reason in line for line in said) for reason in reasons)


def test_what_dies_costs_nothing_that_is_finished(cluster):
    first, *_ = add_nodes(cluster, 2, 1, 1)
    with RayPool(cluster.address, worker=SLEEPING) as pool:
        (killer,) = compiled(pool, 1, kill=1)
        assert isinstance(killer.result().answer, Crashed)
        assert "3 compilers" in killer.result().answer.reason
        futures = compiled(pool, 24, sleep_ms=300)
        futures[0].result()
        cluster.remove_node(first, allow_graceful=False)
        assert {future.result().answer.message for future in futures} == {"asleep"}


def test_no_node_that_is_left_is_one_sentence(cluster, monkeypatch):
    monkeypatch.setattr("autotune.compiling.farm.slots._PATIENCE_S", 1.0)
    (node,) = add_nodes(cluster, 1)
    with RayPool(cluster.address, worker=SLEEPING) as pool:
        (future,) = compiled(pool, 1, sleep_ms=3_600_000)
        time.sleep(1)
        cluster.remove_node(node, allow_graceful=False)
        assert "start nodes" in str(future.exception(timeout=1200))


def test_drivers_take_turns(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP_MS", "1000")  # 72 of them, in one slot
    add_nodes(cluster, 1)
    with start_driver(cluster, tmp_path / "long.db") as long:
        assert long.stdout is not None and long.stdout.readline() == "trial\n"
        with RayPool(cluster.address, worker=SLEEPING) as pool:
            for future in compiled(pool, 3, sleep_ms=1):
                future.result()
            assert long.poll() is None
        long.kill()


def test_who_comes_and_goes_ends_nothing_that_another_driver_runs(cluster, tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    monkeypatch.setenv("FAKE_ASKED", str(asked))
    monkeypatch.setenv("FAKE_SLEEP_MS", "15000")
    monkeypatch.setattr("autotune.compiling.farm.slots._OPEN_S", 3.0)
    add_nodes(cluster, 1)
    with start_driver(cluster, tmp_path / "long.db") as long:
        while not asked.exists():
            time.sleep(0.1)
        with RayPool(cluster.address, worker=SLEEPING) as pool:
            assert pool.size == 1  # though it is busy
        assert long.stdout is not None and long.stdout.readline() == "trial\n"
        long.kill()
    assert set(Counter(asked.read_text().splitlines()).values()) == {1}


def test_a_refused_node_keeps_no_compiler_and_is_tried_once_more(cluster, monkeypatch):
    monkeypatch.setattr("autotune.compiling.farm.slots._AGAIN_S", 1.0)
    add_nodes(cluster, 1)
    with RayPool(cluster.address, worker=SLEEPING) as pool:
        ask = pool._process.ask
        child = Path("/proc", str(ask({"kind": "pid"}, 60.0)["ok"]))
        (slot,) = pool._slots._slots.values()
        assert child.exists()
        pool._slots.refuse(slot.node, "it is tested")
        until(lambda: not child.exists())
        assert "ok" in ask({"kind": "hello"}, 60.0)


def test_a_node_that_lacks_a_kernel_is_asked_about_others(cluster, tmp_path):
    lacking = tmp_path / "without" / "autotune_kernels"
    lacking.mkdir(parents=True)
    (lacking / "__init__.py").write_text("")
    add_nodes(cluster, 1, env_vars={"PYTHONPATH": str(lacking.parent)})
    said = []
    with RayPool(cluster.address, announce=said.append, worker=SLEEPING) as pool:
        (future,) = compiled(pool, 1)
        with pytest.raises(KernelImportError, match="it has no kernel"):
            future.result()
        assert pool.ask(DescribeToolchain()).jax == "1" and not said
        add_nodes(cluster, 1)
        until(lambda: len(pool._slots._slots) == 2)
        assert all(isinstance(one.result().answer, CompileFailed) for one in compiled(pool, 4))


def test_a_driver_that_is_killed_goes_on_and_compiles_nothing_twice_but_what_was_under_way(
    cluster, tmp_path, monkeypatch
):
    asked, database = tmp_path / "asked", tmp_path / "trials.db"
    monkeypatch.setenv("FAKE_ASKED", str(asked))
    monkeypatch.setenv("FAKE_SLEEP_MS", "50")
    add_nodes(cluster, 2)
    with start_driver(cluster, database) as driver:
        for _ in range(10):
            driver.stdout.readline()
        driver.kill()
    with start_driver(cluster, database) as again:
        told, _ = again.communicate(timeout=12000)
    assert told.splitlines()[-1] == "72 trials"  # all that the space has
    times = Counter(asked.read_text().splitlines())
    assert len(times) == 72
    assert sum(times.values()) - 72 <= 2  # as many as there are slots


def test_a_search_over_a_cluster_names_the_jax_of_its_nodes(cluster, tmp_path):
    add_nodes(cluster, 1)
    done = autotune(
        *("search", "vector_add", "--shape", "n=4096", "--chip", "v5e", "--trials", "1"),
        *("--ray", cluster.address),
        cwd=tmp_path,
    )
    assert done.returncode in (0, 1), done.stderr
    toolchain = installed_toolchain()
    with sqlite3.connect(tmp_path / "test.db") as database:
        dump = "\n".join(database.iterdump())
    assert f"--chip v5e --jax {toolchain.jax}" in dump
