"""What a worker does with jobs, with a real queue and a scripted search."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.cli import job_watch
from autotune.cli.job_watch import JobWatch
from autotune.domain.errors import NoLegalConfigError, StoreError
from autotune.domain.job import Progress, Request, State
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, TimedOut
from autotune.publishing import task
from autotune.publishing.jobs import worker as module
from autotune.publishing.jobs.worker import Worker
from autotune.publishing.task import Plan, Timing
from autotune.searching.subject import same_problem
from tests.fakes.compiler import FakeCompilers
from tests.samples.database import new_store
from tests.samples.matching import NOON, SPEC, question
from tests.samples.records import estimate, trial
from tests.servers.service import Failing, until

LEASE_S = 1.0


class Script:
    """Stands for tuning; ``during`` runs in it, with the observer of the job."""

    def __init__(self, monkeypatch):
        self.during: Callable[[Any], object] = lambda watch: None
        self.published: list[str] = []
        self.record: object | None = SimpleNamespace(reason="twice as fast")
        self.tasks: list[Any] = []
        monkeypatch.setattr(module, "tune_one", self._tune)

    def _tune(self, compilers, store, task, plan, watch):
        same_problem(SPEC, task.problem)
        self.tasks.append((task, plan))
        self.during(watch)
        if watch.is_stopped() or not watch.may_publish():
            return SimpleNamespace(publication=None)
        self.published.append("it")
        publication = SimpleNamespace(record=self.record, failure="twice as fast")
        return SimpleNamespace(publication=publication)


def until_stopped(watch):
    deadline = time.monotonic() + 120
    while not watch.is_stopped():
        assert time.monotonic() < deadline, "it was never told to stop"
        time.sleep(0.01)


@pytest.fixture
def script(monkeypatch):
    return Script(monkeypatch)


@pytest.fixture
def store(tmp_path):
    with new_store(tmp_path / "jobs.db") as store:
        yield store


def ask(store, m=1024, **changes):
    key = question(m)
    asked = Request(kernel="mm", problem=key.problem, chip=key.chip, **changes)
    return store.jobs.add(asked)[0]


def new_worker(store, name="w1", timing=None, jobs=None, **more):
    refs = {"mm": object()}
    return Worker(
        FakeCompilers(spec=SPEC),
        store,
        jobs or store.jobs,
        refs,
        name=name,
        watching=JobWatch,
        lease_s=LEASE_S,
        poll_s=0.01,
        plan=Plan(timing=timing),
        **more,
    )


def work(store, script, during=None, **more):
    """A worker does all that is asked for: one job, and ``during`` in its search."""
    ask(store)
    script.during = during or script.during
    return new_worker(store, **more).run(drain=True)


def job(store, number=1):
    known = store.jobs.get(number)
    assert known is not None
    return known


def said(store, number=1):
    """The log of the last attempt, without the times at which it was said."""
    *_, log = store.jobs.logs(number)
    return [line.partition(" ")[2] for line in log.text.splitlines()]


def test_all_jobs_one_after_another(store, script):
    ask(store, 1), ask(store, 2)
    assert new_worker(store).run(drain=True) == 2
    assert [one.state for one in store.jobs.list()] == [State.DONE, State.DONE]
    assert (job(store).message, job(store).worker) == ("twice as fast", "w1")
    assert store.kernels() == [SPEC]  # so that jobs for it can be asked for


def test_nothing_to_publish_is_a_failure(store, script):
    script.record = None
    work(store, script)
    assert (job(store).state, job(store).message) == (State.FAILED, "twice as fast")


def test_progress_is_told(store, script):
    def search(watch):
        watch.announce("compiling \udc80")
        for number, time_us in enumerate((9.0, 3.0, None)):
            slow = TimedOut(reason="60 s", limit_s=60.0)
            outcome = Estimated(estimate=estimate(time_us), program="") if time_us else slow
            watch.trial_done(trial(number, outcome))
        deadline = time.monotonic() + 120
        while job(store).progress.done < 3 or not store.jobs.logs(1):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    work(store, script, search)
    note = r"compiling \udc80"
    assert job(store).progress == Progress(done=3, best_us=3.0, default_us=9.0, note=note)
    begin, told, first, second, end = said(store)
    assert begin == f"attempt 1: mm {question().problem} on v5e"
    assert (told, end) == (note, "twice as fast")
    assert "best 9.0 µs, before verification (1.00×)" in first
    assert "best 3.0 µs, before verification (3.00×)" in second


def test_a_log_that_cannot_be_written_stops_nothing(store, script, monkeypatch, caplog):
    """As by a service of an older version. It is told once."""
    again = threading.Event()

    def refused(*_):
        again.set()
        raise StoreError("it answered with status 404")

    monkeypatch.setattr(store.jobs, "write_log", refused)
    work(store, script, lambda watch: again.wait(120))
    assert (job(store).state, store.jobs.logs(1)) == (State.DONE, [])
    assert caplog.text.count("status 404") == 1


def test_a_job_that_another_one_ended_is_not_called_done(store, script, monkeypatch, caplog):
    caplog.set_level("INFO", "autotune.worker")
    ask(store, 1), ask(store, 2)
    finish = store.jobs.finish
    monkeypatch.setattr(
        store.jobs, "finish", lambda one, *how: one.number == 2 and finish(one, *how)
    )
    new_worker(store).run(drain=True)
    assert [said(store, number)[-1] for number in (1, 2)] == ["twice as fast"] * 2
    assert "job 2 is done" in caplog.text and "job 1 is done" not in caplog.text


def test_cancelled_while_it_runs(store, script):
    def search(watch):
        store.jobs.cancel(1)
        until_stopped(watch)

    work(store, script, search)
    assert job(store).state is State.CANCELLED
    assert said(store)[-1].startswith("it was cancelled")
    assert script.published == []


def test_a_worker_that_lost_its_job_stops_and_publishes_nothing(store, script, monkeypatch):
    """It could not be heard for longer than its lease; another one has taken the job."""
    real = store.jobs.heartbeat

    def search(watch):
        deaf = threading.Event()
        monkeypatch.setattr(
            store.jobs, "heartbeat", lambda *a: (_ for _ in ()).throw(StoreError("gone"))
        )
        deaf.wait(2 * LEASE_S)
        able = new_worker(store).ability()
        assert store.jobs.claim("w2", able, LEASE_S) is not None
        monkeypatch.setattr(store.jobs, "heartbeat", real)
        until_stopped(watch)

    work(store, script, search)
    assert script.published == []
    assert (job(store).state, job(store).worker, job(store).attempt) == (State.RUNNING, "w2", 2)


def test_one_that_nobody_hears_stops(store, script, monkeypatch):
    """It cannot know whether another one has its job by now."""

    def gone(*_):
        raise StoreError("gone")

    def search(watch):
        monkeypatch.setattr(store.jobs, "heartbeat", gone)
        until_stopped(watch)

    work(store, script, search, jobs=_Once(store.jobs))
    assert script.published == []
    assert (job(store).state, job(store).attempt) == (State.QUEUED, 0)  # no attempt that failed


def test_a_second_ctrl_c_gives_the_job_back_too(store, script):
    def search(watch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(store, script, search)
    assert (job(store).state, job(store).attempt) == (State.QUEUED, 0)


def test_one_that_lost_it_at_the_very_end_publishes_nothing(store, script):
    """Between two heartbeats: it asks once more before it publishes."""

    def search(watch):
        store.jobs.give_back(job(store), "", counts=False)

    work(store, script, search, jobs=_Once(store.jobs))
    assert script.published == []
    assert job(store).state is State.QUEUED


class _Once:
    """A queue that gives one job."""

    def __init__(self, jobs):
        self._jobs, self._given = jobs, False

    def __getattr__(self, name):
        return getattr(self._jobs, name)

    def claim(self, *arguments):
        if self._given:
            return None
        self._given = True
        return self._jobs.claim(*arguments)


def test_one_that_is_stopped_gives_its_job_back(store, script):
    one = new_worker(store)

    def search(watch):
        one.stop()
        until_stopped(watch)

    ask(store)
    script.during = search
    assert one.run() == 1
    assert (job(store).state, job(store).attempt) == (State.QUEUED, 0)
    script.during = lambda watch: None
    new_worker(store, "w2").run(drain=True)
    assert (job(store).state, job(store).worker) == (State.DONE, "w2")


@pytest.mark.parametrize(
    ("error", "attempts", "message"),
    [
        (NoLegalConfigError("a \udc80 fits"), 1, r"a \udc80 fits"),
        (ZeroDivisionError("a \x1b[2J bug"), 3, r"ZeroDivisionError: a \x1b[2J bug"),
        (StoreError("the database is gone"), 3, "the database is gone"),
    ],
)
def test_what_goes_wrong_is_said_and_tried_again_where_it_may_pass(
    store, script, error, attempts, message, caplog
):
    runs = []

    def search(watch):
        runs.append(1)
        raise error

    work(store, script, search)
    assert (job(store).state, job(store).message) == (State.FAILED, message)
    assert len(runs) == attempts and said(store)[-1] == message
    assert (caplog.records[-1].levelname, caplog.messages[-1]) == ("WARNING", f"job 1: {message}")


def test_a_database_that_is_away_is_waited_for(store, script, monkeypatch):
    real, calls = store.jobs.claim, []

    def claim(*arguments):
        calls.append(1)
        if len(calls) < 3:
            raise StoreError("gone")
        return real(*arguments)

    ask(store)
    one = new_worker(store)
    monkeypatch.setattr(store.jobs, "claim", claim)
    assert one.run(drain=True) == 1
    assert job(store).state is State.DONE


@pytest.mark.parametrize(
    ("attached", "says"),
    [
        ([Chip.V5E], ""),
        ([], ". Estimated, not measured: no TPU is attached to this machine."),
        ([Chip.V6E], ". Estimated, not measured: a v6e is attached, no v5e."),
    ],
)
def test_an_estimate_says_why_it_is_one(store, script, monkeypatch, attached, says):
    for room in (task, job_watch):
        monkeypatch.setattr(room, "attached_chips", lambda: attached)
    ask(store)
    new_worker(store, timing=Timing()).run(drain=True)
    assert job(store).message == "twice as fast" + says
    ask(store, 2)
    new_worker(store).run(drain=True)
    assert job(store, 2).message == "twice as fast"


@pytest.fixture
def leases_pass(store, monkeypatch):
    """Waits for three leases by a clock that goes on when the holder was heard, so that no machine
    is too busy for it; nobody else gets the job."""
    now, heard, beat = [NOON], [NOON], store.jobs.heartbeat

    def heartbeat(*given):
        at = now[0]
        is_heard = beat(*given)
        heard.append(at)
        return is_heard

    monkeypatch.setattr(store.jobs, "_now", lambda _: now[0])
    monkeypatch.setattr(store.jobs, "heartbeat", heartbeat)
    monkeypatch.setattr(module, "_BEATS", 6000)
    monkeypatch.setattr(f"{__name__}.LEASE_S", 600.0)

    def pass_by():
        for _ in range(5):
            now[0] += timedelta(seconds=400)
            until(lambda: heard[-1] == now[0])
            assert store.jobs.claim("w2", new_worker(store).ability(), LEASE_S) is None

    return pass_by


def test_a_job_stays_its_worker_s_while_its_end_is_told(store, script, monkeypatch, leases_pass):
    """Over HTTP that sends the record and its trials, which may take longer than a lease."""
    finish = store.jobs.finish

    def slowly(mine, state, message):
        leases_pass()
        return finish(mine, state, message)

    monkeypatch.setattr(store.jobs, "finish", slowly)
    work(store, script)
    assert (job(store).state, job(store).worker, job(store).attempt) == (State.DONE, "w1", 1)


def test_it_lives_while_its_queue_answers(store, script):
    """Only what the queue has answered counts: a worker without one does nothing."""
    answers = []
    worker = new_worker(store, answered=lambda: answers.append(1))
    worker.run(drain=True)
    assert len(answers) == 1
    ask(store)
    worker.run(drain=True)
    told = len(answers)
    assert told >= 4  # two claims, and a heartbeat before it publishes; on a busy machine more

    gone = Failing(store)
    worker = new_worker(store, answered=lambda: answers.append(1), jobs=gone.jobs)
    gone.gone = True
    threading.Timer(0.1, worker.stop).start()
    worker.run()
    assert len(answers) == told
