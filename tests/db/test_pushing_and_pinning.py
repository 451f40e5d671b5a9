"""Pushing, pinning, rolling back, pruning: the contract of the ports of results."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from autotune.domain.key import Key
from autotune.domain.outcome import Estimated
from autotune.domain.record import Method, Record
from autotune.domain.result import KeyResult
from autotune_db import pushing
from autotune_db.store import SqlStore, open_store
from tests.samples.database import latest_snapshot, snapshot_records
from tests.samples.records import NOON, estimate, key, record, save_trial, spec, trial


def members(store: SqlStore, number: int | None = None) -> dict[Key, Record]:
    records = snapshot_records(store, latest_snapshot(store) if number is None else number)
    assert records is not None
    return {published.key: published for published in records}


def later(seconds: int, *, m: int = 4096, time_us: float = 5.5) -> Record:
    return record(key(m=m), time_us, NOON + timedelta(seconds=seconds))


def _whole(m: int) -> KeyResult:
    return KeyResult(record=later(1, m=m), trials=tuple(trial(n) for n in range(3)))


@contextmanager
def counted(store: SqlStore) -> Iterator[Counter[str]]:
    """How many statements of each kind are executed."""
    counts: Counter[str] = Counter()

    def see(_: Any, __: Any, statement: str, *___: Any) -> None:
        counts[statement.split()[0].upper()] += 1

    engine = store._work._engine
    event.listen(engine, "before_cursor_execute", see)
    try:
        yield counts
    finally:
        event.remove(engine, "before_cursor_execute", see)


class TestPush:
    def test_no_trial_of_it_teaches_a_search(self, store: SqlStore) -> None:
        timed = trial(0, Estimated(estimate=estimate(), program="p"))
        store.push([spec()], [KeyResult(record=later(1, m=64), trials=(timed,))], "ci")
        assert store.trials(key(m=64)) and not store.timed_trials(key(), 9)

    def test_it_is_one_snapshot_and_says_who(self, store: SqlStore) -> None:
        done = store.push([spec()], [KeyResult(record=later(n, m=n)) for n in (1, 2, 3)], "ci")
        assert (done.records, done.trials, done.lost, done.snapshot) == (3, 0, 0, 1)
        assert {published.pushed_by for published in members(store).values()} == {"ci"}
        (only,) = store.snapshots()
        assert (only.made_by, only.note) == ("ci", "3 pushed, up to record 3")
        assert store.kernels() == [spec()]

    def test_who_pushed_is_not_for_the_push_to_say(self, store: SqlStore) -> None:
        forged = replace(record(), pushed_by="admin")
        trials = (replace(trial(), pushed_by="admin"),)
        store.push([spec()], [KeyResult(record=forged, trials=trials)], "ci")
        assert [tried.pushed_by for tried in store.trials(key())] == ["ci"]
        assert members(store)[key()].pushed_by == "ci"

    def test_the_same_again_changes_nothing(self, store: SqlStore) -> None:
        result = KeyResult(record=record(), trials=(trial(0), trial(1)))
        first = store.push([spec()], [result], "ci")
        again = store.push([spec()], [result], "other")
        assert (first.records, first.trials) == (1, 2)
        assert (again.records, again.trials, again.lost, again.snapshot) == (0, 0, 0, 1)
        assert members(store)[key()].pushed_by == "ci"

    def test_the_evidence_of_others_stays(self, store: SqlStore) -> None:
        save_trial(store, key(), trial(0, bm=8))
        mine = replace(trial(0, bm=8), seconds=99.0)
        done = store.push(
            [spec()], [KeyResult(record=record(), trials=(mine, trial(0, bm=16)))], "x"
        )
        assert done.trials == 1
        assert store.trials(key()) == [
            trial(0, bm=8),
            replace(trial(0, bm=16), number=1, pushed_by="x"),
        ]

    @pytest.mark.parametrize("other", [later(-1, time_us=1.0), later(1, time_us=9.0)])
    def test_an_older_or_slower_record_loses(self, store: SqlStore, other: Record) -> None:
        store.save_record(record())
        done = store.push([], [KeyResult(record=other)], "ci")
        assert (done.records, done.lost, done.snapshot) == (0, 1, 1)
        assert members(store) == {key(): record()}

    def test_another_kind_of_evidence_may_be_slower(self, store: SqlStore) -> None:
        store.save_record(record())
        measured = replace(later(1, time_us=9.0), method=Method.MEASURED)
        assert store.push([], [KeyResult(record=measured)], "ci").records == 1
        estimated = later(2, time_us=1.0)
        done = store.push([], [KeyResult(record=estimated)], "ci")
        assert (done.records, done.lost) == (0, 1)  # what was measured stays

    def test_all_or_nothing(self, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pushing.snapshots, "publish", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.push([spec()], [KeyResult(record=later(1, m=m)) for m in (1, 2)], "ci")
        assert (latest_snapshot(store), store.kernels(), store.records()) == (0, [], [])

    def test_as_many_statements_for_many_results_as_for_few(self, store: SqlStore) -> None:
        few = [_whole(m) for m in (1, 2)]
        many = [_whole(m) for m in range(1, 301)]
        with counted(store) as for_few:
            store.push([spec()], few, "ci")
        with counted(store) as for_many:
            assert store.push([spec()], many, "ci").records == 298
        assert sum(for_many.values()) <= sum(for_few.values()) + 5
        with counted(store) as again:
            assert store.push([spec()], many, "other").trials == 0
        assert "INSERT" not in again and again["SELECT"] <= 2

    def test_of_two_records_of_a_key_in_a_push_the_better_one_counts(self, store: SqlStore) -> None:
        fast, slow = later(1, time_us=1.0), later(2, time_us=2.0)
        done = store.push([spec()], [KeyResult(record=fast), KeyResult(record=slow)], "ci")
        assert (done.records, done.lost) == (1, 1)
        assert members(store) == {key(): replace(fast, pushed_by="ci")}

    def test_what_lost_may_be_pushed_again_after_a_roll_back(self, store: SqlStore) -> None:
        store.save_record(later(0, time_us=9.0))
        store.save_record(later(1, time_us=1.0))
        result = [KeyResult(record=later(2, time_us=5.0))]
        assert store.push([spec()], result, "ci").lost == 1
        store.roll_back(1)
        assert store.push([spec()], result, "ci").records == 1


class TestPins:
    def test_a_pinned_record_stays_until_it_is_unpinned(self, store: SqlStore) -> None:
        old, new, newer = later(0), later(1), later(2)
        for published in (old, new):
            store.save_record(published)
        assert store.pin(1, "ann") == 3
        assert members(store)[key()] == old
        store.save_record(newer)
        assert members(store)[key()] == old == store.record(key())
        assert list(store.records()) == [old]
        assert store.unpin(1) == 5
        assert members(store)[key()] == newer == store.record(key())
        assert [members(store, n)[key()] for n in (2, 3, 4, 5)] == [new, old, old, newer]
        assert store.snapshots()[2].made_by == "ann"

    def test_another_pin_takes_the_place_of_the_first(self, store: SqlStore) -> None:
        for n in range(3):
            store.save_record(later(n))
        store.pin(1)
        store.pin(2)
        assert store.record(key()) == later(1)
        store.unpin(2)
        assert store.record(key()) == later(2)

    @pytest.mark.parametrize("number", [0, -1, 9, 2**63])
    def test_what_is_not_there(self, store: SqlStore, number: int) -> None:
        store.save_record(record())
        assert store.pin(number) is None
        assert store.unpin(number) is None
        assert store.roll_back(number) is None
        assert latest_snapshot(store) == 1


class TestRollBack:
    def test_everything_is_as_it_was_and_goes_on_from_there(self, store: SqlStore) -> None:
        first, other, bad = later(0), later(1, m=1), later(2)
        for published in (first, other, bad):
            store.save_record(published)
        assert store.roll_back(1, "ann") == 4
        assert members(store) == {key(): first}
        assert store.record(key(m=1)) is None
        store.save_record(later(3, m=7))
        assert members(store) == {key(): first, key(m=7): later(3, m=7)}
        assert members(store, 3) == {key(): bad, key(m=1): other}
        assert store.roll_back(3) == 6
        assert members(store) == {key(): bad, key(m=1): other}

    def test_pins_come_back_and_go(self, store: SqlStore) -> None:
        for n in range(2):
            store.save_record(later(n))
        store.pin(1)  # 3
        store.unpin(1)  # 4
        store.pin(2)  # 5
        store.roll_back(3)  # 6
        store.save_record(later(9))  # 7
        assert store.record(key()) == later(0)
        store.roll_back(4)  # 8
        store.save_record(later(10))
        assert store.record(key()) == later(10)


class TestPrune:
    def test_old_snapshots_go_and_records_stay(self, url: str) -> None:
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

    def test_what_the_newest_rests_on_stays(self, url: str) -> None:
        times = iter(NOON + timedelta(days=n) for n in range(100))
        with open_store(url, create=True, clock=lambda: next(times)) as store:
            for n in range(3):
                store.save_record(later(n))
            store.roll_back(1)
            store.prune(NOON + timedelta(days=90))
            assert [snapshot.number for snapshot in store.snapshots()] == [4, 1]
            assert members(store) == {key(): later(0)}

    def test_and_what_that_rests_on(self, url: str) -> None:
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


class Model:
    """What the snapshots must hold, kept as plain dictionaries."""

    def __init__(self) -> None:
        self.saved: list[Record] = []
        self.pins: dict[Key, Record] = {}
        self.free: dict[Key, Record] = {}
        self.history: list[tuple[dict[Key, Record], dict[Key, Record]]] = [({}, {})]

    def done(self) -> None:
        self.history.append((dict(self.free), dict(self.pins)))

    def shown(self, number: int) -> dict[Key, Record]:
        free, pins = self.history[number]
        return free | pins


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(["save", "pin", "unpin", "back"]), st.integers(0, 7)),
        max_size=14,
    )
)
def test_any_history_is_what_it_should_be(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Each snapshot, the way from each to each other, and the single records."""
    path = tmp_path_factory.mktemp("fleet") / "fleet.db"
    model = Model()
    with open_store(str(path), create=True) as store:
        for count, (what, which) in enumerate(steps):
            _step(store, model, what, which, count)
        for number in range(1, len(model.history)):
            assert members(store, number) == model.shown(number)
            for since in range(len(model.history)):
                change = store.snapshot_change(number, since)
                assert change is not None
                made = {k: r for k, r in model.shown(since).items() if k not in change.removed}
                assert made | {r.key: r for r in change.records} == model.shown(number)
        for published in model.saved:
            assert store.record(published.key) == model.shown(-1).get(published.key)


def _step(store: SqlStore, model: Model, what: str, which: int, count: int) -> None:
    if what == "save":
        new = later(count, m=which % 3 + 1)
        store.save_record(new)
        model.saved.append(new)
        model.free[new.key] = new
    elif not model.saved:
        return
    elif what == "back":
        number = which % (len(model.history) - 1) + 1
        assert store.roll_back(number) == len(model.history)
        free, pins = model.history[number]
        model.free, model.pins = free | pins, dict(pins)
    else:
        published = model.saved[which % len(model.saved)]
        number = model.saved.index(published) + 1
        if what == "pin":
            assert store.pin(number) == len(model.history)
            model.pins[published.key] = published
        else:
            assert store.unpin(number) == len(model.history)
            model.pins.pop(published.key, None)
    model.done()
