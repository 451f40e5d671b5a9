"""From a miss to a config: a real service, a real worker, the real compiler."""

import json
import os
import signal
import subprocess
import sys

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, DescribeToolchain
from autotune.domain.job import Request, State
from autotune.domain.key import Chip
from autotune.domain.token import WRITER
from autotune_db import open_store
from tests.servers.commands import COMMAND, autotune
from tests.servers.service import running, until

QUESTION = "/v1/configs/vector_add?chip=v5e&shape=131072&{}"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["the database", "the service"])
def test_from_a_miss_to_a_config_with_one_call(pool, tmp_path, shared):
    """By a worker that shares the database with the service, and by one that calls it."""
    database = str(tmp_path / "fleet.db")
    with open_store(database, create=True) as store:
        store.save_kernel(pool.ask(DescribeKernel(ref=find_kernel("vector_add"))))
        _, token = store.tokens.create("ci", WRITER, None)
    key = pool.ask(DescribeToolchain())
    with running(database, trust_writers=True, recheck=False) as service:
        ask = QUESTION.format(f"jax={key.jax}&jaxlib={key.jaxlib}&libtpu={key.libtpu}")
        assert service.get(ask)[1]["match"] == "default"
        until(lambda: service.get("/v1/misses")[1]["misses"])
        miss = service.get("/v1/misses")[1]["misses"][0]["number"]
        status, made = service.post("/v1/jobs", {"miss": miss, "trials": 2}, token)
        assert status == 201
        own = str(tmp_path / "own.db")
        where = ["--db", database] if shared else ["--db", own, "--url", service.url]
        done = autotune("worker", "--drain", "--json", *where, "--token", token, cwd=tmp_path)
        assert json.loads(done.stdout)["jobs"] == 1, done.stderr
        found = service.get(f"/v1/jobs/{made['number']}")[1]
        assert (found["state"], found["progress"]["done"]) == ("done", 2), found
        until(lambda: service.get(ask)[1]["match"] == "exact")
        assert service.get(ask)[1]["record"]["verified"]


@pytest.mark.slow
def test_a_worker_that_is_killed_and_one_that_is_stopped(tmp_path):
    """The next one goes on with what they have found; one record in the end."""
    database = str(tmp_path / "fleet.db")
    assert autotune("db", "upgrade", "--db", database, cwd=tmp_path).returncode == 0
    command = [str(COMMAND), "worker", "--db", database, "--lease", "2", "--poll", "0.1"]
    with open_store(database, create=False) as store, running(database) as service:
        _, token = store.tokens.create("ci", WRITER, None)
        first = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        until(lambda: store.kernel("vector_add"))
        problem = {"dims": {"n": 16777216}, "dtype": "float32"}
        asked = {"kernel": "vector_add", "chip": "v5e", "problem": problem, "trials": 9}
        assert service.post("/v1/jobs", asked, token)[0] == 201

        def state():
            found = service.get("/v1/jobs/1")[1]
            return found["state"], found["progress"]["done"]

        until(lambda: state()[1] >= 2)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert state()[0] == "running"
        second = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        until(lambda: service.get("/v1/jobs/1")[1]["attempt"] == 2)
        second.send_signal(signal.SIGTERM)
        assert second.wait(600) == 0
        if state()[0] != "done":  # it may have been at the very end
            assert state()[0] == "queued"
            subprocess.run([*command, "--drain"], cwd=tmp_path, timeout=1200, check=True)
        assert state()[0] == "done", service.get("/v1/jobs/1")
        key = store.history("vector_add")[0].key
        trials = store.trials(key)
        assert [one.number for one in trials] == list(range(state()[1]))
        assert len(store.published("vector_add")) == 1


OWN_KERNEL = """
import jax
from jax.experimental import pallas as pl

import autotune


@autotune.tunable(block=[64, 128, 256])
def doubled(x, *, times=2, block=64):
    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * times

    spec = pl.BlockSpec((block, 128), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        body, grid=(x.shape[0] // block,), in_specs=[spec], out_specs=spec, out_shape=shape
    )(x)
"""


@pytest.mark.slow
def test_a_job_for_an_installed_decorated_function(tmp_path):
    """Under a name of its own; the second problem is known by its key alone."""
    site = tmp_path / "site"
    (site / "own_kernels").mkdir(parents=True)
    (site / "own_kernels" / "__init__.py").write_text(OWN_KERNEL)
    about = site / "own_kernels-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-kernels\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[autotune.kernels]\ntwice = own_kernels:doubled\n")
    database = str(tmp_path / "own.db")
    run = [sys.executable, "-m", "autotune"]
    env = {**os.environ, "PYTHONPATH": str(site), "AUTOTUNE_DATABASE_URL": database}

    def command(*args):
        done = subprocess.run(
            [*run, *args], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    asked = ("--chip", "v5e", "--trials", "2")
    command("search", "twice", "--args", "x=f32[512,128]", *asked)
    with open_store(database, create=False) as store:
        (spec,) = store.kernels()
        problem = spec.problems.parse("x.0=1024,x.1=128", "float32", ("times=3",))
        store.jobs.add(Request(kernel="doubled", problem=problem, chip=Chip.V5E, trials=2))
        command("worker", "--drain")
        job = store.jobs.get(1)
        assert job is not None and job.state is State.DONE, job
        assert {one.key.problem for one in store.records()} >= {problem}
