"""Pushing, pinning, rolling back, pruning: the contract of the ports of results."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from autotune.domain.key import Key
from autotune.domain.outcome import Estimated
from autotune.domain.record import Method, Record
from autotune.domain.store import CandidateDecision, CandidateState, KeyResult
from autotune_db import snapshots
from autotune_db.store import open_store
from tests.samples.database import latest_snapshot, new_store, snapshot_records
from tests.samples.records import NOON, estimate, key, record, spec, trial


def members(store, number=None, *, claimed=True):
    number = latest_snapshot(store) if number is None else number
    records = snapshot_records(store, number, claimed=claimed)
    assert records is not None
    return {published.key: published for published in records}


def later(seconds, *, m=4096, time_us=5.5):
    return record(key(m=m), time_us, NOON + timedelta(seconds=seconds))


def _whole(m):
    return KeyResult(record=later(1, m=m), trials=tuple(trial(n) for n in range(3)))


@contextmanager
def counted(store):
    """How many statements of each kind are executed."""
    counts = Counter()

    def see(_, __, statement, *___):
        counts[statement.split()[0].upper()] += 1

    engine = store._work._engine
    event.listen(engine, "before_cursor_execute", see)
    try:
        yield counts
    finally:
        event.remove(engine, "before_cursor_execute", see)


class TestPush:
    def test_no_trial_of_it_teaches_a_search(self, store):
        timed = trial(0, Estimated(estimate=estimate(), program="p"))
        store.push([spec()], [KeyResult(record=later(1, m=64), trials=(timed,))], "ci")
        assert store.trials(key(m=64), pushed=True) and not store.trials(key(m=64))
        assert not store.timed_trials(key(), 9)

    def test_it_is_one_snapshot_and_says_who(self, store):
        done = store.push([spec()], [KeyResult(record=later(n, m=n)) for n in (1, 2, 3)], "ci")
        assert (done.records, done.trials, done.lost, done.snapshot) == (3, 0, 0, 1)
        assert {published.pushed_by for published in members(store).values()} == {"ci"}
        (only,) = store.snapshots()
        assert (only.made_by, only.note) == ("ci", "3 pushed, up to record 3")
        assert store.kernels() == [spec()]

    def test_who_pushed_is_not_for_the_push_to_say(self, store):
        forged = replace(record(), pushed_by="admin")
        trials = (replace(trial(), pushed_by="admin"),)
        store.push([spec()], [KeyResult(record=forged, trials=trials)], "ci")
        assert [tried.pushed_by for tried in store.trials(key(), pushed=True)] == ["ci"]
        assert members(store)[key()].pushed_by == "ci"

    @pytest.mark.parametrize("other", [later(-1, time_us=1.0), later(1, time_us=9.0)])
    def test_an_older_or_slower_record_loses(self, store, other):
        store.save_record(record())
        done = store.push([], [KeyResult(record=other)], "ci")
        assert (done.records, done.lost, done.snapshot) == (0, 1, 1)
        assert members(store) == {key(): record()}

    def test_another_kind_of_evidence_may_be_slower(self, store):
        store.save_record(replace(record(), pushed_by="ci"))
        measured = replace(later(1, time_us=9.0), method=Method.MEASURED)
        assert store.push([], [KeyResult(record=measured)], "ci").records == 1
        estimated = later(2, time_us=1.0)
        done = store.push([], [KeyResult(record=estimated)], "ci")
        assert (done.records, done.lost) == (0, 1)  # what was measured stays

    def test_all_or_nothing(self, store, monkeypatch):
        monkeypatch.setattr(snapshots, "publish", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.push([spec()], [KeyResult(record=later(1, m=m)) for m in (1, 2)], "ci")
        assert (latest_snapshot(store), store.kernels(), store.records()) == (0, [], [])

    def test_as_many_statements_for_many_results_as_for_few(self, store):
        few = [_whole(m) for m in (1, 2)]
        many = [_whole(m) for m in range(1, 301)]
        with counted(store) as for_few:
            store.push([spec()], few, "ci")
        with counted(store) as for_many:
            assert store.push([spec()], many, "ci").records == 298
        assert sum(for_many.values()) <= sum(for_few.values()) + 5
        with counted(store) as again:
            assert store.push([spec()], many, "other").trials == 0
        assert sum(again.values()) <= sum(for_few.values()) + 5


class TestPrune:
    def test_old_snapshots_go_and_records_stay(self, url):
        times = iter(NOON + timedelta(days=n) for n in range(100))
        with open_store(url, create=True, clock=lambda: next(times)) as store:
            for n in range(6):
                store.save_record(later(n))
            assert store.prune(NOON + timedelta(days=4)) == 4
            assert [snapshot.number for snapshot in store.snapshots()] == [6, 5]
            assert snapshot_records(store, 2) is None
            assert len(store.published()) == 6
            change = store.snapshot_change(6, since=2)
            assert change is not None and change.records == [later(5)]

    def test_and_what_that_rests_on(self, url):
        times = iter(NOON + timedelta(days=n) for n in range(100))
        with open_store(url, create=True, clock=lambda: next(times)) as store:
            store.save_record(later(0))
            store.save_record(later(1))
            store.roll_back(1)  # 3 rests on 1
            store.save_record(later(2, m=7))  # 4 too
            store.roll_back(4)  # 5 rests on 4
            before = members(store)
            assert store.prune(NOON + timedelta(days=90)) == 2
            assert [snapshot.number for snapshot in store.snapshots()] == [5, 4, 1]
            assert members(store) == before


Node = tuple[Any, tuple[int, ...], dict[Key, int]]
"""A snapshot: its base, what was saved over it, what is pinned over that: numbers of records."""


class Model:
    """What the snapshots must hold. ``refused``: numbers of claims."""

    def __init__(self):
        self.saved: list[Record] = []
        self.refused: frozenset[int] = frozenset()
        self.now: Node = None, (), {}
        self.history = [(self.now, self.refused)]

    def shown(self, number, *, claimed):
        node, refused = self.history[number]
        return (self._layer(node, refused, True) if claimed else {}) | self._layer(
            node, refused, False
        )

    def _layer(self, node, refused, claimed):
        if node is None:
            return {}
        base, new, pins = node
        shown = self._layer(base, refused, claimed)
        for number in (*new, *pins.values()):
            record = self.saved[number - 1]
            if number not in refused and bool(record.pushed_by) is claimed:
                shown[record.key] = record
        return shown

    def save(self, record):
        self.saved.append(record)
        base, new, pins = self.now
        self.now = base, (*new, len(self.saved)), pins

    def pin(self, number, *, pinned):
        base, new, pins = self.now
        others = {key: n for key, n in pins.items() if key != self.saved[number - 1].key}
        self.now = base, new, others | ({self.saved[number - 1].key: number} if pinned else {})


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 5, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["save", "claim", "claim", "refuse", "pin", "unpin", "back"]),
            st.integers(0, 7),
        ),
        max_size=14,
    )
)
def test_any_history_is_what_it_should_be(tmp_path_factory, steps):
    """Each snapshot, the way from each to each other, and the single records, with what is claimed
    and without."""
    path = tmp_path_factory.mktemp("fleet") / "fleet.db"
    model = Model()
    with new_store(path) as store:
        for count, (what, which) in enumerate(steps):
            _step(store, model, what, which, count)
        for number, claimed in product(range(1, len(model.history)), (False, True)):
            shown = model.shown(number, claimed=claimed)
            assert members(store, number, claimed=claimed) == shown
            for since in {0, number - 1, len(model.history) - 1}:
                change = store.snapshot_change(number, since, claimed=claimed)
                before = model.shown(since, claimed=claimed)
                made = {k: r for k, r in before.items() if k not in change.removed}
                assert made | {r.key: r for r in change.records} == shown
        for published, claimed in product(model.saved, (False, True)):
            shown = model.shown(-1, claimed=claimed)
            assert store.record(published.key, claimed=claimed) == shown.get(published.key)


def _step(store, model, what, which, count):
    if what in ("save", "claim"):
        by = "ci" if what == "claim" else ""
        new = later(count, m=which % 3 + 1)
        own = new.config.replace(vmem_limit_bytes=count + 1 << 20)  # what was refused stays so
        new = replace(new, config=own, pushed_by=by)
        store.save_record(new)
        model.save(new)
    elif not model.saved:
        return
    elif what == "refuse":
        store.check_claims()
        numbers = {job.request.candidate or 0 for job in store.jobs.list(limit=1000)}
        known = filter(None, map(store.candidate, sorted(numbers, reverse=True)))
        waiting = [c for c in known if c.decision.state is CandidateState.UNVERIFIED]
        if not waiting:
            return
        candidate = waiting[which % len(waiting)]
        store.decide(candidate.number, CandidateDecision(state=CandidateState.REFUSED))
        model.refused |= {model.saved.index(candidate.record) + 1}
    elif what == "back":
        number = which % (len(model.history) - 1) + 1
        assert store.roll_back(number) == len(model.history)
        target = model.history[number][0]
        model.now = target, (), dict(target[2])
    else:
        number = which % len(model.saved) + 1
        done = store.pin(number) if what == "pin" else store.unpin(number)
        assert done == len(model.history)
        model.pin(number, pinned=what == "pin")
    model.history.append((model.now, model.refused))
