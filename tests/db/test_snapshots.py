"""Snapshots and misses: the contract of the ports of results, on both databases."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from autotune_db import misses, open_store, snapshots
from autotune_db.tables import KEYS
from tests.samples.dashboard import CHECKS
from tests.samples.database import latest_snapshot, snapshot_records
from tests.samples.records import NOON, key, record, save_trial, spec, trial


def test_who_publishes_waits_for_who_is_at_it(url, monkeypatch):
    """Else the second is read as snapshot 1 or 2, and changes when the first commits."""
    at_it, go_on = threading.Event(), threading.Event()

    real = snapshots.publish

    def slowly(*given, **named):
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
    def test_beyond_a_bound_what_was_asked_for_the_least_is_forgotten(self, store, monkeypatch):
        monkeypatch.setattr(misses, "MOST_MISSES", 3)
        save_trial(store, key(m=1), trial())
        for m in range(1, 7):
            store.save_misses({(key(m=m), "default"): 10 if m < 3 else 1})
        assert [miss.key for miss in store.misses()] == [key(m=1), key(m=2), key(m=6)]
        keys = store._work.read(lambda s: s.scalar(select(func.count()).select_from(KEYS)))
        assert keys == 3 or store.url.startswith("postgresql")

    def test_a_key_that_a_check_names_is_not_forgotten(self, store, monkeypatch):
        monkeypatch.setattr(misses, "MOST_MISSES", 1)
        check = CHECKS[0]
        store.save_check(check)
        for wanted in (check.key, check.target, key(), key(m=1)):
            store.save_misses({(wanted, "default"): 1})
        assert store.checks() == [check]
        assert store.check(check.key, check.target) == check

    def test_what_nobody_asks_for_any_more_is_forgotten(self, url):
        now = [NOON]
        with open_store(url, create=True, clock=lambda: now[0]) as store:
            store.save_misses({(key(m=1), "default"): 100, (key(m=2), "default"): 1})
            now[0] += timedelta(days=20)
            store.save_misses({(key(m=2), "default"): 1})
            now[0] += timedelta(days=20)
            store.save_misses({(key(m=3), "default"): 1})
            assert [miss.key for miss in store.misses()] == [key(m=2), key(m=3)]

    def test_kernels_that_nobody_has_described_count_only_where_they_are_to(self, store):
        store.save_kernel(spec())
        asked = {(key(), "default"): 1, (key("invented"), "default"): 1}
        store.save_misses(asked, known_only=True)
        assert [miss.key for miss in store.misses()] == [key()]
        store.save_misses(asked)
        assert len(store.misses()) == 2
