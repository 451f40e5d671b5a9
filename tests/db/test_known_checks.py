"""What is known of a config under another toolchain is said of it whatever is published later."""

from dataclasses import replace
from datetime import timedelta

import pytest

from autotune.domain.key import Toolchain
from autotune.domain.record import MOST_CHECKS, Check, CheckVerdict, RecordCheck, Unchecked
from autotune.domain.store import KeyResult
from tests.samples.database import latest_snapshot, snapshot_records
from tests.samples.matching import ruled
from tests.samples.records import NOON, key, record, spec, trial

NEW, NEWER = (Toolchain(jax=jax, jaxlib=jax, libtpu="9") for jax in ("9.0", "9.1.dev3+local.2"))
FIRST = record(key(), 5.5, NOON)
SECOND = replace(
    record(key(), 4.5, NOON + timedelta(seconds=60)),
    config=replace(FIRST.config, vmem_limit_bytes=1 << 20),
)


def found(toolchain=NEW, verdict=CheckVerdict.BROKEN, minutes=5):
    at = NOON + timedelta(minutes=minutes)
    return RecordCheck(toolchain=toolchain, verdict=verdict, checked_at=at, finding=f"{verdict}!")


def tell(store, *checks, of=FIRST):
    store.publish_checks([(of.key, of.config, check) for check in checks])


def in_force(store, number=None):
    records = snapshot_records(store, number or latest_snapshot(store))
    (only,) = records or ()
    assert number or store.record(key()) == only
    return only


@pytest.fixture
def store(store):
    """Snapshot 1 has the first record."""
    store.save_kernel(spec())
    store.save_record(FIRST)
    return store


def test_all_that_is_told_at_once_is_noted(store):
    tell(store, found(NEW), found(NEWER, CheckVerdict.SAME))
    assert in_force(store).checks == (found(NEW), found(NEWER, CheckVerdict.SAME))
    assert (latest_snapshot(store), in_force(store, 1)) == (2, FIRST)
    tell(store, found(NEW), found(NEWER, CheckVerdict.SAME))
    assert latest_snapshot(store) == 2
    noted = store.audit.entries()[0].change
    assert str(NEW) in noted and str(NEWER) in noted


def test_there_is_an_end_to_what_one_record_says(store):
    """What is broken is kept before what works, the last before the first; telling again changes
    nothing."""
    many = [found(Toolchain(jax=f"9.{n}", jaxlib="9", libtpu="9"), minutes=n) for n in range(1000)]
    works = found(NEWER, CheckVerdict.SAME, minutes=2000)
    tell(store, *many[:500], works, *many[500:])
    assert in_force(store).checks == tuple(many[-MOST_CHECKS:])
    before = latest_snapshot(store)
    tell(store, works, *many)
    assert latest_snapshot(store) == before


def test_all_records_are_noted_in_one_snapshot(store):
    other = replace(FIRST, key=replace(FIRST.key, fingerprint="other"))
    missing = replace(FIRST, key=key(m=9))
    store.save_record(other)
    store.publish_checks([(of.key, of.config, found()) for of in (FIRST, other, missing)])
    assert latest_snapshot(store) == 3
    assert [of.checks for of in store.records()] == [(found(),)] * 2
    assert store.record(missing.key) is None


def pinned(store):
    """The first, although the second is newer."""
    store.save_record(SECOND)
    store.pin(1)


def test_of_what_is_pinned_too_and_the_pin_stays(store):
    pinned(store)
    tell(store, found())
    assert in_force(store) == replace(FIRST, checks=(found(),))
    store.save_record(replace(SECOND, created_at=NOON + timedelta(hours=1)))
    assert in_force(store) == replace(FIRST, checks=(found(),))
    assert store.unpin(1)
    assert in_force(store).config == SECOND.config
    assert in_force(store).checks == ()


def test_a_check_that_came_with_a_record_behind_a_pin_is_known_later(store):
    pinned(store)
    anew = replace(SECOND, created_at=NOON + timedelta(hours=1), checks=(found(),))
    for trials in ((), (trial(),)):
        store.push([spec()], [KeyResult(record=anew, trials=trials)], by="")
    assert len(store.published()) == 3
    store.unpin(1)
    assert in_force(store) == anew


ANEW = replace(FIRST, created_at=NOON + timedelta(hours=1))


def push(store, record, by):
    return store.push([spec()], [KeyResult(record=record)], by=by)


def push_with_a_check(store):
    before = latest_snapshot(store)
    checked = replace(FIRST, checks=(found(NEWER),))
    assert push(store, checked, "").snapshot == before + 1
    assert in_force(store).check(NEWER) == found(NEWER)


def roll_back_to_a_pin(store):
    store.save_record(SECOND)
    store.pin(1)
    number = latest_snapshot(store)
    store.unpin(1)
    assert store.roll_back(number)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.save_record(ANEW),
        lambda store: push(store, FIRST, "ci"),
        lambda store: push(store, ANEW, "ci"),
        push_with_a_check,
        lambda store: [store.save_record(record) for record in (SECOND, ANEW)],
        lambda store: [store.save_record(SECOND), store.pin(1)],
        lambda store: [store.save_record(SECOND), store.roll_back(1)],
        roll_back_to_a_pin,
    ],
    ids=["again", "pushed", "pushed anew", "checked", "after another", "pin", "back", "to a pin"],
)
def test_whatever_is_done_later_it_is_known(store, change):
    tell(store, found())
    change(store)
    record = in_force(store)
    assert record.config == FIRST.config
    assert record.check(NEW) == found()
    assert in_force(store, 1) == FIRST


def test_what_was_rolled_back_and_is_pushed_again_is_known(store):
    other = record(key(m=1), 5.5, NOON)
    store.save_record(other)
    tell(store, found(), of=other)
    store.roll_back(1)
    assert store.record(other.key) is None
    anew = replace(other, created_at=NOON + timedelta(hours=1))
    assert store.push([spec()], [KeyResult(record=anew)], by="ci").records == 1
    served = store.record(other.key, claimed=True)
    assert served is not None and served.checks == (found(),)


def check(minutes=5, of=FIRST.key, **changes):
    usual = Check(
        key=of,
        config=FIRST.config,
        toolchain=NEW,
        chip=of.chip,
        verdict=CheckVerdict.NOT_CHECKED,
        checked_at=NOON + timedelta(minutes=minutes),
        cause=Unchecked.NO_KERNEL,
    )
    return replace(usual, **changes)


def test_the_newest_check_that_is_pushed_stays(store):
    store.save_check(check(5))
    older, newer = check(4, detail="older"), check(6, detail="newer")
    assert store.push_checks([older], by="ci") == []
    assert store.checks() == [check(5)]
    assert not [entry for entry in store.audit.entries() if "checks" in entry.change]
    assert len(store.push_checks([newer, older], by="ci")) == 1
    assert store.checks() == [replace(newer, pushed_by="ci")]
    assert len(store.push_checks([newer], by="other")) == 1  # again: it is told again
    assert store.checks() == [replace(newer, pushed_by="ci")]


def test_a_rule_stays_with_its_key_until_another_one_takes_its_place(store):
    small = replace(FIRST, key=replace(FIRST.key, problem=FIRST.key.problem.with_dims(m=128)))
    keys = [FIRST.key, small.key]
    for published in (FIRST, small):
        store.save_record(published)
    carrier = store.save_rule(keys, ruled())
    assert carrier is not None and carrier.key == FIRST.key
    store.save_record(SECOND)
    assert store.record(SECOND.key) == replace(SECOND, rule=ruled())
    assert [published.rule for published in store.records() if published.key == small.key] == [None]
    store.save_record(replace(SECOND, rule=None, pushed_by="x", checked_by="w"))
    newer = replace(ruled(), problems=9)
    carrier = store.save_rule(keys, newer)
    assert carrier is not None and carrier.key == small.key
    assert [published.rule for published in store.records() if published.rule] == [newer]
    assert store.save_rule(keys, None) is None
    assert not [published.rule for published in store.records() if published.rule]
