"""Schemathesis on a running service: all of its checks, with a token and without."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.domain.job import Request
from autotune_service.middleware import access
from tests.samples.database import latest_snapshot
from tests.samples.matching import question
from tests.servers.service import running, until

CONFIG = Path(__file__).with_name("schemathesis.toml")


def schemathesis(service, cwd, *more, token=None, without=""):
    """``token``: for the schema; calls have none unless ``more`` brings one. ``without``: a method
    whose operations are left out."""
    schema = cwd / "openapi.json"
    until(lambda: service.get("/openapi.json", token)[0] == 200)  # a new token is soon known
    described = service.get("/openapi.json", token)[1]
    schema.write_text(json.dumps(described))
    command = [
        *(Path(sys.executable).with_name("schemathesis"), "--config-file", CONFIG, "run", schema),
        *("--url", service.url, "--checks", "all", "--seed", "1", "--no-color"),
        *("--suppress-health-check", "too_slow"),  # of this machine, not of the service
        *("--request-timeout", "300"),  # so is this: only a hang reaches it
        *(("--exclude-method", without.upper()) if without else ()),
        *more,
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=cwd, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    methods = [method for operations in described["paths"].values() for method in operations]
    chosen = [method for method in methods if method != without]
    assert f"{len(chosen)} selected / {len(methods)} total" in done.stdout
    assert "(not applicable)" not in done.stdout  # the stateful phase follows links


@pytest.fixture(autouse=True)
def unlimited(monkeypatch):
    """Who guesses tokens is answered late, as Schemathesis is with each operation: its thousands of
    calls would take hours. ``tests/attacks`` has the limit."""
    monkeypatch.setattr(access, "_FAILURES_PER_SECOND", 0)


@pytest.mark.slow
def test_nothing_breaks_and_every_answer_is_in_the_schema(service, store, admin, tmp_path):
    key = question(9, 9)
    store.jobs.add(Request(kernel=key.kernel, problem=key.problem, chip=key.chip))
    bearer = f"Authorization: Bearer {admin}"
    phases = ("--phases", "fuzzing,stateful")  # the others are below, with a token for all
    schemathesis(service, tmp_path, "-H", bearer, "--max-examples", "25", *phases)
    assert service.get("/healthz")[0] == 200


@pytest.fixture
def closed(store, database):
    with running(database, closed=True) as service:
        yield service


@pytest.mark.slow
def test_nothing_breaks_where_reading_is_closed(closed, admin, tmp_path):
    """Among the checks is one that each operation with a token refuses calls without."""
    bearer = f"Authorization: Bearer {admin}"
    schemathesis(closed, tmp_path, "-H", bearer, "--phases", "examples,coverage", token=admin)
    assert closed.get("/healthz")[0] == 200


@pytest.mark.slow
def test_without_a_token_nothing_is_written(service, store, tmp_path):
    # Who has no token is told so, not which methods there are.
    checks = ("--exclude-checks", "unsupported_method")
    phases = ("--phases", "examples,fuzzing")  # what lacks its token is looked at no further
    schemathesis(service, tmp_path, "--max-examples", "3", *phases, *checks, without="get")
    assert latest_snapshot(store) == 2
    assert store.jobs.list() == []


def test_without_a_token_a_closed_service_tells_nothing(closed, admin):
    """Each operation of the schema, but for the few that are open to all."""
    until(lambda: closed.get("/openapi.json", admin)[0] == 200)  # a new token is soon known
    paths = closed.get("/openapi.json", admin)[1]["paths"]
    statuses = {
        path: closed.raw(method.upper(), re.sub(r"{\w+}", "1", path), b"{}")[0]
        for path, operations in paths.items()
        for method in operations
    }
    assert len(statuses) > 20
    answered = {path for path, status in statuses.items() if status != 401}
    assert answered == {"/healthz", "/readyz", "/metrics"}
