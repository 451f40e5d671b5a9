"""Schemathesis on a running service: all of its checks, with a token and without."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.domain.job import Request
from autotune_db import SqlStore
from tests.samples.database import latest_snapshot
from tests.samples.matching import question
from tests.servers.service import Running

CONFIG = Path(__file__).with_name("schemathesis.toml")


def schemathesis(service: Running, cwd: Path, *more: str) -> None:
    command = [
        Path(sys.executable).with_name("schemathesis"),
        "--config-file",
        CONFIG,
        "run",
        f"{service.url}/openapi.json",
        "--checks",
        "all",
        "--seed",
        "1",
        "--no-color",
        "--suppress-health-check",
        "too_slow",  # of this machine, not of the service
        "--request-timeout",
        "300",  # so is this: only a hang reaches it
        *more,
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=cwd, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "24 selected / 24 total" in done.stdout
    assert "(not applicable)" not in done.stdout  # the stateful phase follows links


@pytest.mark.slow
@pytest.mark.parametrize("phases", ["examples,coverage", "fuzzing,stateful"])
def test_nothing_breaks_and_every_answer_is_in_the_schema(
    service: Running, store: SqlStore, admin: str, tmp_path: Path, phases: str
) -> None:
    key = question(9, 9)
    store.jobs.add(Request(kernel=key.kernel, problem=key.problem, chip=key.chip))
    bearer = f"Authorization: Bearer {admin}"
    schemathesis(service, tmp_path, "-H", bearer, "--max-examples", "25", "--phases", phases)
    assert service.get("/healthz")[0] == 200


@pytest.mark.slow
def test_without_a_token_nothing_is_written(
    service: Running, store: SqlStore, tmp_path: Path
) -> None:
    # Who has no token is told so, not which methods there are.
    without = ("--exclude-checks", "unsupported_method")
    schemathesis(service, tmp_path, "--max-examples", "5", *without)
    assert latest_snapshot(store) == 2
    assert store.jobs.list() == []
