"""The contract of ``domain.job.Queue``, which each implementation inherits: the database's
own queue, on SQLite and PostgreSQL, and the one that a worker reaches over HTTP."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from autotune.answering.http import Remote
from autotune.answering.push import RemoteJobs
from autotune.domain.job import (
    MOST_ATTEMPTS,
    MOST_LOG,
    Ability,
    Ending,
    JobLog,
    Progress,
    Request,
    State,
)
from autotune.domain.token import WRITER
from autotune.publishing.jobs.worker import Lease
from autotune_db.tables import JOBS
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question, record
from tests.servers.service import running

OTHER = replace(SPEC, name="rms", fingerprint="1111")
ABLE = Ability(
    kernels={spec.name: spec.fingerprint for spec in (SPEC, OTHER)}, toolchain=question().toolchain
)
LEASE_S = 600.0  # no machine is so busy: silence is written, not waited for


def request(kernel=SPEC.name, m=512, **changes):
    key = question(m, kernel=kernel)
    made = Request(kernel=kernel, problem=key.problem, chip=key.chip, trials=3)
    return replace(made, **changes)


def claimed(queue, worker="a"):
    job = queue.claim(worker, ABLE, LEASE_S)
    assert job is not None
    return job


def silence(store, job):
    """As if its worker had not been heard of for longer than the lease."""

    def write(connection, _):
        is_job = JOBS.c.id == job.number
        times = connection.execute(select(JOBS.c.heard_at, JOBS.c.lapses_at).where(is_job)).one()
        values = {name: at - timedelta(seconds=2 * LEASE_S) for name, at in times._mapping.items()}
        connection.execute(update(JOBS).where(is_job).values(values))

    store._work.write(write)


class QueueContract:
    """``store``: the database behind the queue. ``finds``: what the worker does before it says that
    a job is done."""

    @pytest.fixture
    def queue(self):
        raise NotImplementedError

    @pytest.fixture
    def finds(self):
        return lambda _: None

    def test_the_oldest_first_and_one_for_each_worker(self, queue, store):
        for m in (1, 2):
            store.jobs.add(request(m=m))
        jobs = [queue.claim(worker, ABLE, LEASE_S) for worker in "abc"]
        assert [job and job.number for job in jobs] == [1, 2, None]
        first = jobs[0]
        assert first is not None and first.worker.endswith("a")
        assert (first.request, first.attempt, first.state) == (request(m=1), 1, State.RUNNING)
        assert first == store.jobs.get(1)

    def test_what_a_worker_cannot_run_is_left_to_others(self, queue, store):
        jobs = [
            request("flash"),
            request(fingerprint="beef"),
            *(
                request(toolchain=replace(ABLE.toolchain, **{part: "9"}))
                for part in ("jax", "jaxlib", "libtpu")
            ),
        ]
        for asked in jobs:
            store.jobs.add(asked)
            assert queue.claim("a", ABLE, LEASE_S) is None, asked
        store.jobs.add(request("rms", fingerprint="1111", toolchain=ABLE.toolchain))
        assert claimed(queue).number == len(jobs) + 1

    def test_progress_can_be_read(self, queue, store):
        store.jobs.add(request())
        mine = claimed(queue)
        progress = Progress(done=3, goal=9, best_us=1.5, default_us=2.0, note="compiling")
        assert queue.heartbeat(mine, progress)
        job = store.jobs.get(1)
        assert job is not None and job.progress == progress
        assert job.heard_at is not None and mine.heard_at is not None
        assert job.heard_at >= mine.heard_at

    def test_what_a_worker_says_can_be_read(self, queue, store):
        """Each attempt has its log; nothing in it acts on a terminal, and it has an end."""
        store.jobs.add(request())
        first = claimed(queue)
        assert store.jobs.logs(1) == []
        for said in ("begins\n", "begins\n\x1b[2Jgo\u202eod\0\n"):
            assert queue.write_log(first, said)
        assert queue.give_back(first, "it broke", counts=True)
        assert not queue.write_log(first, "late")
        second = claimed(queue, "b")
        assert queue.write_log(second, "\x1b" * MOST_LOG)
        log, other = store.jobs.logs(1)
        said = "begins\n\\x1b[2Jgo\\u202eod\\x00\n"
        assert log == JobLog(attempt=1, text=said, ended=Ending.FAILED)
        assert (other.attempt, len(other.text)) == (2, MOST_LOG)
        assert other.text.startswith("…") and other.text.endswith(r"\x1b\x1b")

    def test_what_a_stopped_worker_said_stays_before_what_the_next_one_says(self, queue, store):
        store.jobs.add(request())
        for said in ("one", "two"):
            mine = claimed(queue, said)
            assert queue.write_log(mine, "begins\n") and queue.write_log(mine, f"{said}\n")
            assert queue.give_back(mine, "stopped", counts=False)
        assert store.jobs.logs(1) == [JobLog(attempt=1, text="one\ntwo\n")]
        assert queue.write_log(claimed(queue), "x" * (MOST_LOG - 5))
        (log,) = store.jobs.logs(1)
        assert (log.text[:7], len(log.text)) == ("…two\nxx", MOST_LOG)

    def test_a_line_that_cannot_be_encoded_is_shown(self, queue, store):
        store.jobs.add(request())
        lease = Lease(queue, claimed(queue), LEASE_S)
        lease.say("kernel \udc80")
        lease.write_log()
        (log,) = store.jobs.logs(1)
        assert log.text.endswith(" kernel \\udc80\n")

    def test_nobody_writes_the_log_of_another(self, queue, store):
        store.jobs.add(request()), store.jobs.add(request(m=2))
        mine = claimed(queue)
        other = f"{mine.worker}-else"  # of the same token
        for change in ({"worker": other}, {"attempt": 2}, {"number": 2}):
            assert not queue.write_log(replace(mine, **change), "it was not me"), change
        assert [store.jobs.logs(number) for number in (1, 2)] == [[], []]

    def test_it_ends_once(self, queue, store, finds):
        store.jobs.add(request())
        mine = claimed(queue)
        finds(request())
        assert queue.finish(mine, State.DONE, "twice as fast")
        assert queue.finish(mine, State.DONE, "twice as fast")  # the answer was lost
        assert not queue.finish(mine, State.FAILED, "no")
        assert not queue.heartbeat(mine, Progress())
        job = store.jobs.get(1)
        assert job is not None and job.finished_at is not None
        assert (job.state, job.message) == (State.DONE, "twice as fast")

    @pytest.mark.parametrize("who", ["b", "a"])
    def test_a_silent_workers_job_is_anothers(self, queue, store, who):
        """Where the same worker takes it again, what it began before is over."""
        store.jobs.add(request())
        first = claimed(queue, "a")
        silence(store, first)
        second = claimed(queue, who)
        assert (second.number, second.attempt) == (first.number, 2)
        assert [log.ended for log in store.jobs.logs(1)] == [Ending.DIED]
        assert not queue.heartbeat(first, Progress())  # it is alive after all: it stops
        assert [log.ended for log in store.jobs.logs(1)] == [Ending.LATE]
        assert not queue.finish(first, State.FAILED, "late")
        assert not queue.give_back(first, "late", counts=True)
        assert queue.heartbeat(second, Progress())

    def test_after_so_many_deaths_it_has_failed(self, queue, store):
        store.jobs.add(request())
        for n in range(MOST_ATTEMPTS):
            silence(store, claimed(queue, f"w{n}"))
        assert queue.claim("next", ABLE, LEASE_S) is None
        job = store.jobs.get(1)
        assert job is not None and job.state is State.FAILED
        assert job.message.startswith(f"its workers died: {MOST_ATTEMPTS} of them, the last was")
        assert job.message.endswith(f"w{MOST_ATTEMPTS - 1}")

    def test_given_back(self, queue, store):
        store.jobs.add(request())
        for _ in range(MOST_ATTEMPTS + 2):  # a worker that is stopped is no failure
            mine = claimed(queue)
            assert mine.attempt == 1 and queue.give_back(mine, "stopped", counts=False)
            assert queue.give_back(mine, "stopped", counts=False)  # the answer was lost
        for n in range(MOST_ATTEMPTS):
            mine = claimed(queue)
            assert mine.attempt == n + 1 and queue.give_back(mine, "it broke", counts=True)
        assert queue.claim("a", ABLE, LEASE_S) is None
        job = store.jobs.get(1)
        assert job is not None and (job.state, job.message) == (State.FAILED, "it broke")

    def test_one_that_is_cancelled_ends_at_the_next_heartbeat(self, queue, store):
        store.jobs.add(request())
        mine = claimed(queue)
        store.jobs.cancel(1)
        assert not queue.heartbeat(mine, Progress())
        assert queue.give_back(mine, "its worker was stopped", counts=False)
        assert store.jobs.counts() == {"cancelled": 1}


class TestDatabase(QueueContract):
    @pytest.fixture
    def queue(self, store):
        return store.jobs

    def test_a_worker_without_kernels_gets_nothing(self, queue, store):
        store.jobs.add(request())
        assert queue.claim("a", replace(ABLE, kernels={}), LEASE_S) is None


class TestService(QueueContract):
    @pytest.fixture
    def store(self, sqlite_url):
        with new_store(sqlite_url.removeprefix("sqlite:///")) as opened:
            yield opened

    @pytest.fixture
    def local(self, tmp_path):
        """The worker's own database."""
        with new_store(tmp_path / "local.db") as opened:
            for spec in (SPEC, OTHER):
                opened.save_kernel(spec)
            yield opened

    @pytest.fixture
    def queue(self, store, sqlite_url, local):
        secret = store.tokens.create("ci", WRITER, None)[1]
        with running(sqlite_url) as service:
            yield RemoteJobs(Remote(service.url, 30.0, secret), local)

    @pytest.fixture
    def finds(self, local):
        return lambda asked: local.save_record(record(question(asked.problem["m"])))
