"""Snapshots and misses: the contract of the ports of results, on both databases."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from autotune.domain.record import Record
from autotune_db import misses, open_store, snapshots
from autotune_db.store import SqlStore
from autotune_db.tables import KEYS
from tests.samples.dashboard import CHECKS
from tests.samples.database import latest_snapshot, snapshot_records
from tests.samples.records import NOON, key, record, save_trial, spec, trial


def changed(store: SqlStore, number: int, since: int) -> list[Record]:
    """Where nothing is taken out."""
    change = store.snapshot_change(number, since)
    assert change is not None and not change.removed
    return list(change.records)


class TestSnapshots:
    def test_a_newer_record_does_not_change_an_older_snapshot(self, store: SqlStore) -> None:
        first, other, newer = record(), record(key(m=1)), record(time_us=1.0)
        for published in (first, other, newer):
            store.save_record(published)
        assert snapshot_records(store, 1) == [first]
        assert snapshot_records(store, 2) == [other, first]
        assert snapshot_records(store, 3) == [newer, other]

    def test_only_what_an_older_one_does_not_have(self, store: SqlStore) -> None:
        saved = [record(), record(key(m=1)), record(time_us=1.0), record(time_us=2.0)]
        for published in saved:
            store.save_record(published)
        assert changed(store, 4, since=2) == [saved[3]]
        assert changed(store, 3, since=1) == [saved[2], saved[1]]
        assert changed(store, 4, since=4) == []

    def test_a_publication_that_fails_leaves_none(
        self, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("stop")

        monkeypatch.setattr("autotune_db.snapshots.publish", fail)
        with pytest.raises(RuntimeError, match="stop"):
            store.save_record(record())
        monkeypatch.undo()
        assert (latest_snapshot(store), store.record(key())) == (0, None)


@contextmanager
def publishers(url: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.servers.publisher_process", url, str(n)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for n in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_snapshot_never_changes_while_processes_publish(url: str) -> None:
    """Read each as soon as it is there, and again at the end."""
    seen: dict[int, list[Record]] = {}
    with open_store(url, create=True) as store, publishers(url, 3) as processes:
        order = []
        while any(process.poll() is None for process in processes):
            number = latest_snapshot(store)
            if number not in seen:
                order.append(number)
                seen[number] = list(snapshot_records(store, number) or [])
        assert [process.returncode for process in processes] == [0] * 3
        assert order == sorted(order)
        assert len(order) > 10  # it did read while they published
        numbers = [snapshot.number for snapshot in store.snapshots(1000)]
        assert len(numbers) == 90
        assert numbers == sorted(set(numbers), reverse=True)
        for number, records in seen.items():
            assert snapshot_records(store, number) == records


def test_who_publishes_waits_for_who_is_at_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the second is read as snapshot 1 or 2, and changes when the first commits."""
    at_it, go_on = threading.Event(), threading.Event()

    real = snapshots.publish

    def slowly(*given: Any, **named: Any) -> Any:
        at_it.set()
        go_on.wait(300)
        return real(*given, **named)

    with open_store(url, create=True) as store, ThreadPoolExecutor(2) as threads:
        monkeypatch.setattr("autotune_db.snapshots.publish", slowly)
        first = threads.submit(store.save_record, record())
        assert at_it.wait(300)
        monkeypatch.undo()
        second = threads.submit(store.save_record, record(key(m=1)))
        with pytest.raises(TimeoutError):
            second.result(timeout=0.5)
        assert latest_snapshot(store) == 0  # readers do not wait
        go_on.set()
        first.result(), second.result()
        assert snapshot_records(store, 1) == [record()]
        assert snapshot_records(store, 2) == [record(key(m=1)), record()]


class TestMisses:
    def test_each_kind_of_answer_is_counted_apart(self, store: SqlStore) -> None:
        store.save_misses({(key(), "default"): 1, (key(), "nearest"): 2})
        misses = store.misses()
        assert [(miss.answer, miss.count) for miss in misses] == [("nearest", 2), ("default", 1)]
        assert [store.miss(miss.number) for miss in misses] == misses
        assert store.miss(99) is None and store.miss(-1) is None

    def test_the_same_with_its_dimensions_in_another_order_is_counted_with_it(
        self, store: SqlStore
    ) -> None:
        missed = key()
        turned = replace(missed.problem, dims=missed.problem.dims[::-1])
        asked = {(missed, "default"): 1, (replace(missed, problem=turned), "default"): 2}
        assert len(asked) == 2
        store.save_misses(asked)
        assert [miss.count for miss in store.misses()] == [3]

    def test_beyond_a_bound_what_was_asked_for_the_least_is_forgotten(
        self, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(misses, "MOST_MISSES", 3)
        save_trial(store, key(m=1), trial())
        for m in range(1, 7):
            store.save_misses({(key(m=m), "default"): 10 if m < 3 else 1})
        assert [miss.key for miss in store.misses()] == [key(m=1), key(m=2), key(m=6)]
        keys = store._work.read(lambda s: s.scalar(select(func.count()).select_from(KEYS)))
        assert keys == 3 or store.url.startswith("postgresql")

    def test_a_key_that_a_check_names_is_not_forgotten(
        self, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(misses, "MOST_MISSES", 1)
        check = CHECKS[0]
        store.save_check(check)
        for wanted in (check.key, check.target, key(), key(m=1)):
            store.save_misses({(wanted, "default"): 1})
        assert store.checks() == [check]
        assert store.check(check.key, check.target) == check

    def test_what_nobody_asks_for_any_more_is_forgotten(self, url: str) -> None:
        now = [NOON]
        with open_store(url, create=True, clock=lambda: now[0]) as store:
            store.save_misses({(key(m=1), "default"): 100, (key(m=2), "default"): 1})
            now[0] += timedelta(days=20)
            store.save_misses({(key(m=2), "default"): 1})
            now[0] += timedelta(days=20)
            store.save_misses({(key(m=3), "default"): 1})
            assert [miss.key for miss in store.misses()] == [key(m=2), key(m=3)]

    def test_kernels_that_nobody_has_described_count_only_where_they_are_to(
        self, store: SqlStore
    ) -> None:
        store.save_kernel(spec())
        asked = {(key(), "default"): 1, (key("invented"), "default"): 1}
        store.save_misses(asked, known_only=True)
        assert [miss.key for miss in store.misses()] == [key()]
        store.save_misses(asked)
        assert len(store.misses()) == 2

    def test_all_or_none(self, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("stop")

        monkeypatch.setattr(misses, "_forget", fail)
        with pytest.raises(RuntimeError, match="stop"):
            store.save_misses({(key(), "default"): 1, (key(m=1), "default"): 1})
        assert store.misses() == []
