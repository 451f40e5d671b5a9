"""What checks find is noted on published records, and on nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_check import CheckVerdict, RecordCheck
from autotune.domain.toolchain import Toolchain
from autotune_db.store import SqlStore
from tests.samples.records import NOON, config, key, record

NEW = Toolchain(jax="9.0", jaxlib="9.0", libtpu="9.0")


def later(n: int) -> Record:
    return replace(record(), created_at=NOON + timedelta(days=n))


def found(of: Record, verdict: CheckVerdict = CheckVerdict.BROKEN) -> RecordCheck:
    return RecordCheck(
        toolchain=NEW, verdict=verdict, checked_at=datetime(2026, 11, 22, tzinfo=UTC)
    )


def note(store: SqlStore, *records: Record) -> None:
    store.publish_checks(
        [(published.key, published.config, found(published)) for published in records]
    )


def served(store: SqlStore, where: Key | None = None) -> Record:
    published = store.record(where or key())
    assert published is not None
    return published


def test_all_records_are_noted_in_one_snapshot(store: SqlStore) -> None:
    other = replace(record(), key=replace(key(), fingerprint="other"))
    for published in (record(), other):
        store.save_record(published)
    note(store, record(), other)
    assert store.snapshots()[0].number == 3
    assert [served(store, published.key).checks for published in (record(), other)] == [
        (found(other),)
    ] * 2
    assert len(store.records()) == 2
    note(store, record(), other)  # known
    assert store.snapshots()[0].number == 3


def test_a_record_that_was_published_in_between_is_left_alone(store: SqlStore) -> None:
    store.save_record(record())
    newer = replace(later(1), config=config(bm=8))
    store.save_record(newer)
    note(store, record())
    assert served(store) == newer
    assert store.snapshots()[0].number == 2


def test_a_record_that_is_not_there(store: SqlStore) -> None:
    note(store, record())
    assert list(store.snapshots()) == []


def test_a_pinned_record_is_noted_and_stays_pinned(store: SqlStore) -> None:
    newer = replace(later(1), config=config(bm=8))
    store.save_record(record())
    store.save_record(newer)
    store.pin(1)
    note(store, record())
    assert served(store) == record().with_check(found(record()))
    store.save_record(replace(later(2), config=config(bm=16)))
    assert served(store).config == record().config
    store.unpin(1)
    assert served(store).config == config(bm=16)


@pytest.mark.parametrize("rolled_back", [False, True])
def test_what_a_pin_hides_comes_back_when_it_ends(store: SqlStore, rolled_back: bool) -> None:
    newer = replace(later(1), config=config(bm=8))
    store.save_record(record())
    store.save_record(newer)
    store.pin(1)
    if rolled_back:
        store.roll_back(3)
    note(store, record())
    assert served(store).checks
    store.unpin(1)
    assert served(store).config == (record().config if rolled_back else newer.config)
