"""Several workers that die, come back and repeat themselves, under a clock that jumps: whatever
they do, a job has one holder, and what has ended stays as it is."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete

from autotune.domain.job import MOST_ATTEMPTS, MOST_LEASE_S, Job, Progress, State
from autotune_db.tables import JOB_LOGS, JOBS
from tests.db.test_jobs import ABLE, request
from tests.samples.records import NOON

WORKERS = st.sampled_from(["a", "b", "c"])
LEASES = st.sampled_from([1.0, 60.0, 600.0])
OPEN = (State.QUEUED, State.RUNNING)


@dataclass
class Expected:
    """A job as it should be."""

    state: State = State.QUEUED
    attempt: int = 0
    holder: Job | None = None
    lease_s: float = 0.0
    lapses: datetime = NOON
    cancelled: bool = False


class Workers(RuleBasedStateMachine):
    def __init__(self, store, patch):
        super().__init__()
        self.jobs, self.now = store.jobs, NOON
        self.expected: dict[int, Expected] = {}
        self.claims: list[tuple[Job, float]] = []
        self.ended: dict[int, Job] = {}

        def clear(connection, _):
            connection.execute(delete(JOB_LOGS)), connection.execute(delete(JOBS))

        store._work.write(clear)
        patch(store.jobs, "_now", lambda _: self.now)

    @rule(m=st.integers(1, 3))
    def add(self, m):
        job, is_new = self.jobs.add(request(m=m))
        assert is_new == (job.number not in self.expected)
        self.expected.setdefault(job.number, Expected())

    @rule(seconds=st.sampled_from([0.5, 30.0, 61.0, 3600.0, 400 * 86400.0, -59.0, -400 * 86400.0]))
    def jump(self, seconds):
        self.now += timedelta(seconds=seconds)

    @rule(worker=WORKERS, lease_s=LEASES)
    def claim(self, worker, lease_s):
        number = self._next()
        job = self.jobs.claim(worker, ABLE, lease_s, f"secret {len(self.claims)}")
        assert (job and job.number) == number
        if job is None:
            return
        due = self.expected[job.number]
        due.state, due.attempt, due.holder = State.RUNNING, due.attempt + 1, job
        due.lease_s, due.lapses = lease_s, self.now + timedelta(seconds=lease_s)
        assert (job.attempt, job.worker) == (due.attempt, worker)
        self.claims.append((job, lease_s))

    def _next(self):
        """Which job is to be had, after those that nobody is to try again have ended."""
        free = []
        for number, due in self.expected.items():
            if due.state is State.RUNNING:
                if due.lapses > self.now + timedelta(seconds=MOST_LEASE_S):
                    due.lapses = self.now + timedelta(seconds=due.lease_s)
                if due.lapses >= self.now:
                    continue
                if due.cancelled or due.attempt >= MOST_ATTEMPTS:
                    due.state = State.CANCELLED if due.cancelled else State.FAILED
            if due.state in OPEN:
                free.append(number)
        return min(free, default=None)

    @rule()
    def ask_again(self):
        """The answer to the last claim was lost."""
        if self.claims:
            job, lease_s = self.claims[-1]
            due = self.expected[job.number]
            if due.holder is job and due.state is State.RUNNING:
                assert self.jobs.claim(job.worker, ABLE, lease_s, job.claim) == self.jobs.get(
                    job.number
                )

    @rule(data=st.data(), what=st.sampled_from(["beat", "done", "failed", "stopped", "broke"]))
    def report(self, data, what):
        """Of any claim that there ever was, and once more: the second answer is the first."""
        if not self.claims:
            return
        job, lease_s = data.draw(st.sampled_from(self.claims))
        due = self.expected[job.number]
        holds = due.holder is job and due.state is State.RUNNING
        if not holds and due.holder is job:
            return  # what it said last, it may say again: below
        answers = {self._tell(job, what) for _ in range(2)}
        assert answers == {holds and not (what == "beat" and due.cancelled)}
        forged = replace(job, claim="guessed")
        assert not self._tell(forged, what)
        if not holds:
            return
        if what == "beat":
            due.lapses = self.now + timedelta(seconds=lease_s)
        elif what in ("done", "failed"):
            due.state = State(what)
        elif due.cancelled:
            due.state = State.CANCELLED
        elif what == "broke" and due.attempt >= MOST_ATTEMPTS:
            due.state = State.FAILED
        else:
            due.state, due.attempt = State.QUEUED, due.attempt - (what == "stopped")

    def _tell(self, job, what):
        if what == "beat":
            return self.jobs.heartbeat(job, Progress(note="works"))
        if what in ("done", "failed"):
            return self.jobs.finish(job, State(what), what)
        return self.jobs.give_back(job, what, counts=what == "broke")

    @rule(data=st.data())
    def cancel(self, data):
        if self.expected:
            number = data.draw(st.sampled_from(sorted(self.expected)))
            due = self.expected[number]
            self.jobs.cancel(number)
            if due.state is State.QUEUED:
                due.state = State.CANCELLED
            due.cancelled |= due.state is State.RUNNING

    @invariant()
    def jobs_are_as_expected(self):
        for number, due in self.expected.items():
            job = self.jobs.get(number)
            assert job is not None and (job.state, job.attempt) == (due.state, due.attempt)
            if job.state not in OPEN:
                assert self.ended.setdefault(number, job) == job


@pytest.mark.slow
def test_whatever_workers_and_clocks_do(store, monkeypatch):
    run_state_machine_as_test(
        lambda: Workers(store, monkeypatch.setattr),
        settings=settings(max_examples=15, stateful_step_count=30),
    )
