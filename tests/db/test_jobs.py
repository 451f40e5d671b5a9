"""The contract of jobs and tokens, on SQLite and a real PostgreSQL."""

import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from autotune.domain.errors import InvalidInputError
from autotune.domain.job import Ability, Progress, Request, State
from autotune.domain.token import ADMIN, WRITER
from autotune_db import query
from autotune_db.store import open_store
from autotune_db.tables import JOBS
from tests.samples.records import NOON, key

ABLE = Ability(kernels={"matmul": "f00d", "rmsnorm": "1111"}, toolchain=key().toolchain)
LONG, SHORT = 60.0, 0.05


def request(kernel="matmul", m=4096, **changes):
    asked = key(kernel, m=m)
    made = Request(kernel=kernel, problem=asked.problem, chip=asked.chip)
    return replace(made, **changes)


@pytest.fixture
def jobs(store):
    return store.jobs


class TestQueue:
    def test_whoever_has_the_versions_compiles_with_any_options(self, jobs):
        asked = request(toolchain=replace(key().toolchain, options="xla_a=1"))
        made, is_new = jobs.add(asked)
        assert is_new and jobs.add(request(toolchain=key().toolchain))[1]
        taken = jobs.claim("w", ABLE, LONG)
        assert taken is not None and taken.request == made.request == asked

    def test_the_same_job_ends_before_it_is_read(self, jobs, monkeypatch):
        """It was in the way, and is gone."""
        real, answers = query.insert, [False]
        monkeypatch.setattr(
            query, "insert", lambda *given: answers.pop() if answers else real(*given)
        )
        made, is_new = jobs.add(request())
        assert (made.state, is_new, answers) == (State.QUEUED, True, [])


class TestLease:
    def test_nobody_takes_a_job_by_a_shorter_one(self, jobs):
        jobs.add(request())
        assert jobs.claim("a", ABLE, LONG) is not None
        time.sleep(2 * SHORT)
        assert jobs.claim("thief", ABLE, SHORT) is None

    @pytest.mark.parametrize("lapses_at", [None, NOON])
    def test_of_a_job_that_an_earlier_version_took(self, store, lapses_at):
        """It moves only the last sign of life: the end of a lease is of the holder before."""
        jobs = store.jobs
        jobs.add(request())
        mine = jobs.claim("a", ABLE, SHORT)
        assert mine is not None

        def forget(connection, _):
            connection.execute(update(JOBS).values(lapses_at=lapses_at))

        store._work.write(forget)
        time.sleep(2 * SHORT)
        assert jobs.claim("b", ABLE, SHORT) is None
        assert jobs.heartbeat(mine, Progress())


ROOT = Path(__file__).parents[2]
CLAIMER = """
import sys, time
from tests.db.test_jobs import ABLE
from autotune.domain.job import State
from autotune_db import open_store
with open_store(sys.argv[1], create=False) as store:
    empty = 0
    while empty < 3:
        job = store.jobs.claim(sys.argv[2], ABLE, 60)
        if job is None:
            empty += 1
            time.sleep(0.05)
        else:
            print(job.number, flush=True)
            assert store.jobs.finish(job, State.DONE, sys.argv[2])
"""


@pytest.mark.slow
def test_exactly_one_of_many_processes_gets_each(url):
    with open_store(url, create=True) as store:
        for m in range(1, 61):
            store.jobs.add(request(m=m))
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", CLAIMER, url, f"w{n}"],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(4)
        ]
        seen = [int(line) for worker in workers for line in worker.communicate()[0].split()]
        assert all(worker.returncode == 0 for worker in workers)
        assert sorted(seen) == list(range(1, 61))
        assert store.jobs.counts() == {"done": 60}


class TestTokens:
    def test_only_the_secret_finds_it(self, store):
        tokens = store.tokens
        made, secret = tokens.create("ci", WRITER, None)
        assert tokens.find(secret) == made
        assert tokens.find(secret + "x") is None and tokens.find("") is None
        assert [token.name for token in tokens.list()] == ["ci"]
        assert list(tokens.valid().values()) == [made]

    def test_the_secret_is_not_kept(self, sqlite_url, tmp_path):
        with open_store(sqlite_url, create=True) as store:
            _, secret = store.tokens.create("ci", WRITER, None)
        for file in tmp_path.iterdir():
            assert secret.encode() not in file.read_bytes()

    def test_a_name_belongs_to_one_valid_token(self, store):
        first, _ = store.tokens.create("ci", WRITER, None)
        with pytest.raises(InvalidInputError, match="token 1 has the name ci already"):
            store.tokens.create("ci", WRITER, None)
        assert len(store.tokens.list()) == 1
        store.tokens.revoke(first.number)
        store.tokens.create("ci", WRITER, None)
        said = [entry.change for entry in store.audit.entries()]
        assert said == [
            "made token 2, ci, writer",
            "revoked token 1, ci",
            "made token 1, ci, writer",
        ]

    def test_revoked(self, store):
        made, secret = store.tokens.create("ci", ADMIN, None)
        revoked = store.tokens.revoke(made.number)
        assert revoked is not None and revoked.revoked_at is not None
        assert store.tokens.find(secret) is None and not store.tokens.valid()
        assert store.tokens.revoke(made.number) == revoked
        assert store.tokens.revoke(99) is None

    def test_expired(self, url):
        now = [NOON]
        with open_store(url, create=True, clock=lambda: now[0]) as store:
            _, secret = store.tokens.create("ci", WRITER, NOON + timedelta(days=1))
            assert store.tokens.find(secret)
            now[0] = NOON + timedelta(days=1)
            assert store.tokens.find(secret) is None and not store.tokens.valid()
