"""A row that cannot be read costs that row: all else goes on and names it once."""

import json
import logging
import re
import sqlite3
from contextlib import closing

import pytest

from autotune.answering import push
from autotune.domain.job import Ability, Progress, Request
from autotune.domain.token import ADMIN
from autotune_db import damage, open_store
from autotune_service.app import create_app
from tests.samples.dashboard import fill
from tests.samples.database import by_hand, new_store
from tests.samples.matching import SPEC, question
from tests.servers.commands import autotune_here
from tests.servers.service import running

TOOLCHAIN = "jax=0.10.2,jaxlib=0.10.2,libtpu=0.0.42"
ASK = ("--shape", "1024x128", "--chip", "v5e", "--toolchain", TOOLCHAIN)
COMMANDS = (
    ["history", "--trials"],
    ["show", "1"],
    ["lookup", "mm", *ASK],
    ["export", "out.bundle"],
    ["misses"],
    ["log"],
    ["snapshots", "list"],
    ["snapshots", "records"],
    ["token", "list"],
    ["push", "--url", "http://127.0.0.1:9"],
    ["rule", "mm", "--chip", "v5e"],
    ["doctor"],
)
DAMAGE = {
    "kernels": ["spec"],
    "keys": ["problem"],
    "trials": ["config", "outcome", "created_at"],
    "records": ["config", "evidence", "created_at"],
    "snapshots": ["created_at"],
    "checks": ["content"],
    "misses": ["last_at"],
    "workloads": ["content"],
    "jobs": ["request", "progress", "created_at"],
    "searches": ["progress", "heard_at"],
    "audit": ["created_at"],
    "tokens": ["created_at"],
}
FAST = ("outcome",)


@pytest.fixture
def database(tmp_path):
    file = str(tmp_path / "fleet.db")
    with new_store(file, fill) as store:
        store.tokens.create("old", ADMIN, None)
        store.searches.report(question(), "a space", Progress(), over=False)
        store.jobs.add(wanted(question(3)))
    return file


def wanted(key):
    return Request(kernel=key.kernel, problem=key.problem, chip=key.chip)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        pytest.param(table, column, marks=() if column in FAST else pytest.mark.slow)
        for table in DAMAGE
        for column in DAMAGE[table]
    ],
)
def test_a_row_that_cannot_be_read_costs_that_row(
    database, tmp_path, table, column, caplog, monkeypatch
):
    damage._log_once.cache_clear()
    monkeypatch.setattr(push, "_PAUSES_S", ())  # nobody listens: no try after the first helps
    with closing(sqlite3.connect(database)) as connection, connection:
        (number,) = connection.execute(f"SELECT min(id) FROM autotune_{table}").fetchone()
        bad = "not a date" if column.endswith("_at") else '{"'
        statement = f"UPDATE autotune_{table} SET {column} = ? WHERE id = ?"
        assert connection.execute(statement, (bad, number)).rowcount == 1
    for command in COMMANDS:
        done = autotune_here(*command, "--db", database, cwd=tmp_path)
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2), done.stderr
        assert done.returncode != 2 or command[0] in ("push", "rule", "lookup", "show"), done.stderr
    with running(database) as service:
        routes = create_app(database).default.state.routes
        for route in (route.path for route in routes if "GET" in route.methods):
            route = route.replace("/workloads/{name:path}", "/workloads/model")
            path = route.replace("{form}", "csv").replace("{name:path}", "mm")
            assert service.raw("GET", re.sub(r"{\w+}", "1", path))[0] < 500, path
    place = f"row {number} of autotune_{table} cannot be read"
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum(place in line for line in said) == (table != "snapshots")
    done = autotune_here("db", "check", "--db", database, "--json", cwd=tmp_path)
    ((listed, remedy),) = (
        ((row["table"], row["id"]), row["remedy"]) for row in json.loads(done.stdout)
    )
    assert (done.returncode, listed) == (1, (f"autotune_{table}", number))
    if table != "keys":
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.executescript(remedy)
        done = autotune_here("db", "check", "--db", database, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "every row can be read\n")


def test_a_job_that_cannot_be_read_keeps_no_worker_from_the_next(database):
    by_hand(database, "UPDATE autotune_jobs SET request = '{' WHERE state = 'queued'")
    able = Ability(kernels={SPEC.name: SPEC.fingerprint}, toolchain=question().toolchain)
    with open_store(database, create=False) as store:
        job, _ = store.jobs.add(wanted(question(5)))
        claimed = store.jobs.claim("w", able, 60)
        assert claimed is not None and claimed.number == job.number
