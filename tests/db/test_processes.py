"""Several processes, killed processes, locks, and a server that restarts."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from autotune.domain.errors import StoreError
from autotune.domain.key import Chip
from autotune.domain.record import Check, CheckVerdict
from autotune.domain.store import KeyResult
from autotune_db import engine, open_store, query, rows, transaction
from autotune_db.tables import TRIALS
from autotune_db.url import BUSY_TIMEOUT_S
from tests.samples.database import latest_snapshot
from tests.samples.records import NOON, key, record, save_trial, spec, trial

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@contextmanager
def writers(url, signal, *workers, count):
    """Processes that have imported everything and start to write when ``signal`` exists."""
    command = [sys.executable, "-m", "tests.servers.writer_process", url]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [*command, str(worker), str(count), str(signal)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for worker in workers
    ]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_that_start_and_write_at_once_lose_nothing(url, tmp_path):
    """None of them finds tables: all migrate, then all fight for the same numbers."""
    with writers(url, tmp_path / "go", 1, 2, 3, 4, count=25) as processes:
        (tmp_path / "go").touch()
        outputs = [process.communicate(timeout=600) for process in processes]
    assert [errors for _, errors in outputs] == [""] * 4
    acknowledged = sorted(int(line) for printed, _ in outputs for line in printed.split())
    assert acknowledged == list(range(100))
    with open_store(url, create=False) as opened:
        assert [tried.number for tried in opened.trials(key())] == acknowledged
        assert len({tried.config for tried in opened.trials(key())}) == 100


def test_a_writer_finds_a_gap_between_others(sqlite_url, tmp_path):
    """Between transactions that follow each other the file is free for 15 ms. Who looks ten times a
    second only misses it, in one of twenty waits."""
    over = threading.Event()

    def write_all_the_time():
        with closing(sqlite3.connect(tmp_path / "autotune.db", isolation_level=None)) as other:
            while not over.wait(0.015):
                other.execute("BEGIN IMMEDIATE")
                time.sleep(0.15)
                other.execute("COMMIT")

    open_store(sqlite_url, create=True).close()
    with open_store(sqlite_url, create=False, wait_s=2.0) as opened:
        thread = threading.Thread(target=write_all_the_time)
        thread.start()
        try:
            assert all(save_trial(opened, key(), trial(number)) for number in range(20))
        finally:
            over.set()
            thread.join()


def test_a_lock_that_stays(sqlite_url, tmp_path, monkeypatch):
    assert BUSY_TIMEOUT_S >= 30
    assert engine.BUSY_TIMEOUT_S == BUSY_TIMEOUT_S
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.2)
    with open_store(sqlite_url, create=True) as opened:
        with closing(sqlite3.connect(tmp_path / "autotune.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked by another program"):
                save_trial(opened, key(), trial())
        assert save_trial(opened, key(), trial())


def test_two_processes_that_switch_the_journal_at_once(tmp_path, monkeypatch):
    """SQLite then refuses at once, whatever the timeout (seen in 9 of 160 processes)."""
    real, refusals = engine._connect, [_busy_error(tmp_path / "other.db")]

    class Refusing:
        def __init__(self, path, mode, wait_s):
            self._connection = real(path, mode, wait_s)
            self.close = self._connection.close

        def execute(self, statement):
            if refusals:
                raise refusals.pop()
            return self._connection.execute(statement)

    path = tmp_path / "autotune.db"
    monkeypatch.setattr(engine, "_connect", Refusing)
    engine.use_write_ahead_log(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _busy_error(path):
    with (
        closing(sqlite3.connect(path)) as first,
        closing(sqlite3.connect(path, timeout=0)) as second,
    ):
        first.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught:
            second.execute("BEGIN IMMEDIATE")
    return caught.value


def until_it_waits(postgres, threads, *call):
    """Begun in a thread, and waiting for what another holds, or over."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    before = postgres.sql(waiting)
    begun = threads.submit(*call)
    while postgres.sql(waiting) == before and not begun.done():
        time.sleep(0.01)
    return begun


class TestServerGone:
    @pytest.fixture
    def opened(self, postgres):
        with open_store(postgres.new_database(), create=True) as opened:
            yield opened

    def test_a_restart(self, opened, postgres):
        assert save_trial(opened, key(), trial(0))
        postgres.restart()
        assert opened.trials(key()) == [trial(0)]
        assert save_trial(opened, key(), trial(1))

    def test_a_connection_that_breaks_before_the_commit(self, opened, postgres, monkeypatch):
        real, cuts = query.insert, []

        def cut_once(*arguments):
            done = real(*arguments)
            if not cuts:
                cuts.append(1)
                database = opened._database.url.database
                postgres.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    f"WHERE datname = '{database}'"
                )
            return done

        monkeypatch.setattr(query, "insert", cut_once)
        assert save_trial(opened, key(), trial())
        assert cuts
        assert opened.trials(key()) == [trial()]

    def test_who_is_undone_for_a_deadlock_tries_again(self, opened):
        for of in (key(), key(m=1)):
            save_trial(opened, of, trial(0))
        both = threading.Barrier(2)

        def lock_in(order):
            def write(connection, again):
                for number in order:
                    query.sum_up(connection, [number])
                    if not again and number == order[0]:
                        both.wait(300)
                return again

            return opened._work.write(write)

        with ThreadPoolExecutor(2) as threads:
            assert sorted(threads.map(lock_in, [(1, 2), (2, 1)])) == [False, True]

    def test_a_push_meets_a_search_that_saves_the_same_trials(self, opened, postgres):
        """One with the same number, and one with the same config under another number."""
        save_trial(opened, key(), trial(0))
        tried = KeyResult(record=record(), trials=(trial(1, bm=4096), trial(2), trial(5)))

        def save(connection, _):
            for number in (1, 2):
                values = {**rows.trial_values(trial(number)), "key_id": 1}
                assert query.insert(connection, TRIALS, values)
            return until_it_waits(postgres, threads, opened.push, [spec()], [tried], "ci")

        with ThreadPoolExecutor(1) as threads:
            assert opened._work.write(save).result(60).trials == 2
        configs = {tried.number: tried.config for tried in opened.trials(key(), pushed=True)}
        searched_configs = {number: trial(number).config for number in (0, 1, 2, 5)}
        assert configs == searched_configs | {
            3: trial(1, bm=4096).config
        }  # the number that is free

    @pytest.mark.parametrize(
        "save",
        [
            lambda store, check: store.save_check(check),
            lambda store, check: store.push_checks([check], "w"),
        ],
        ids=["saved", "pushed"],
    )
    def test_a_push_meets_a_check_of_the_same_keys(self, opened, postgres, monkeypatch, save):
        """What the check is of is younger than what it was checked as."""
        monkeypatch.setattr(transaction, "_RETRY_PAUSES_S", ())  # nobody is undone and tries again
        both = key(chip=Chip.V6E), key()
        for of in both:
            save_trial(opened, of, trial(0))
        results = [KeyResult(record=record(of), trials=(trial(1),)) for of in both]
        same_check = Check(
            key=key(),
            config=trial(0).config,
            toolchain=key().toolchain,
            chip=Chip.V6E,
            verdict=CheckVerdict.SAME,
            checked_at=NOON,
        )

        def hold_the_second(connection, _):
            query.lock_keys(connection, [2], shared=True)
            return [
                until_it_waits(postgres, threads, opened.push, [spec()], results, "ci"),
                until_it_waits(postgres, threads, save, opened, same_check),
            ]

        with ThreadPoolExecutor(2) as threads:
            for begun in opened._work.write(hold_the_second):
                begun.result(60)
        assert [check.target for check in opened.checks()] == [both[0]]
        assert [len(opened.trials(of, pushed=True)) for of in both] == [2, 2]

    def test_claims_are_checked_after_who_publishes(self, opened, postgres):
        """One that was refused before makes a snapshot, which must not lack what another adds."""
        opened.save_record(replace(record(), pushed_by="ci"))

        def publish(connection, _):
            query.one_publisher(connection)
            begun = until_it_waits(postgres, threads, opened.check_claims)
            return begun, begun.done()

        with ThreadPoolExecutor(1) as threads:
            begun, was_done = opened._work.write(publish)
            assert not was_done and begun.result(60) == 1

    @pytest.mark.parametrize("breaks", [1, 2, 3])
    def test_a_connection_that_breaks_after_the_commit(self, opened, monkeypatch, breaks):
        left = breaks

        def lose_the_answer(*arguments):
            nonlocal left
            result = real(*arguments)
            if left:
                left -= 1
                raise DBAPIError("COMMIT", {}, Exception("cut"), connection_invalidated=True)
            return result

        real = transaction._once
        monkeypatch.setattr(transaction, "_once", lose_the_answer)
        monkeypatch.setattr(transaction, "_RETRY_PAUSES_S", (0.0, 0.0))
        if breaks > 2:
            with pytest.raises((StoreError, DBAPIError)):
                save_trial(opened, key(), trial())
            return
        assert save_trial(opened, key(), trial())
        left = breaks
        opened.save_record(record())
        left = breaks
        opened.save_kernel(spec())
        assert opened.trials(key()) == [trial()]
        monkeypatch.setattr(transaction, "_once", real)
        count = "SELECT count(*) FROM autotune_records"
        assert opened._work.read(lambda s: s.exec_driver_sql(count).scalar()) == 1


def test_opening_it_twice_in_one_process_cuts_nobody_off(sqlite_url):
    """Whoever opens and closes the file beside SQLite drops SQLite's locks on it: the next process
    to leave then takes the log away, and the first connection reads an old state for ever."""
    with open_store(sqlite_url, create=True) as first:
        first.save_record(record())
        with open_store(sqlite_url, create=False) as second:
            assert latest_snapshot(second) == 1
        code = (
            "import sys; from tests.samples.records import record\n"
            "from autotune_db import open_store\n"
            "with open_store(sys.argv[1], create=False) as store: store.save_record(record())"
        )
        seen = []
        for _ in range(2):
            subprocess.run(
                [sys.executable, "-c", code, sqlite_url], check=True, timeout=600, cwd=ROOT
            )
            seen.append(latest_snapshot(first))
        assert seen == [2, 3]
