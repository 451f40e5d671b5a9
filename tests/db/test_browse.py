"""What the dashboard asks, on SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import timedelta

import pytest

from autotune.domain.browsing import KeyFilter
from autotune.domain.job import Progress
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, Illegal
from autotune.domain.problem import Problem
from autotune.domain.step import StepKind, StepTime, TunedStep
from autotune.domain.store import KeyResult
from autotune.domain.workload import TunedEntry, TunedWorkload
from tests.samples.database import key_id
from tests.samples.records import NASTY, NOON, estimate, key, record, save_trial, spec, trial

OLD = key(jax="0.8.0")
OTHER = key(chip=Chip.V6E)
MISSED = key(m=7)
TIMES = (50.0, 20.0, None, 30.0, 20.0, 10.0)


@pytest.fixture
def filled(store):
    """Key 1 has six trials, one of them without a time; 2 another toolchain, 3 another chip."""
    store.save_kernel(spec())
    for number, time_us in enumerate(TIMES):
        save_trial(store, key(), trial(number, _outcome(time_us)))
    save_trial(store, OLD, trial(0))
    save_trial(store, OTHER, trial(0))
    store.save_record(record())
    store.save_misses({(MISSED, "nearest"): 3, (key(), "default"): 9})
    return store


def _outcome(time_us):
    if time_us is None:
        return Illegal(reason="no")
    return Estimated(estimate=estimate(time_us), program=str(time_us))


def test_a_word_is_found_wherever_it_stands(store):
    mode = 'größe say"so back\\slash 100%'
    odd = replace(
        key(m=8),
        kernel="conv_3x3",
        fingerprint="a=b",
        problem=Problem(dims=(("m", 8),), dtype="bf16", options=(("mode", mode),)),
    )
    save_trial(store, key(), trial(0))
    save_trial(store, odd, trial(0))
    for word in ("conv_3x3", "3x3", "a=b", "größe", 'say"so', "back\\slash", "100%", "m=8"):
        problems = store.browse.numbered(store.browse.fitting(KeyFilter(words=(word,))))
        assert [searched.key for searched in problems] == [odd], word


def test_a_word_may_be_a_place_or_a_state(store):
    slow = replace(key(), kernel="splash", chip=Chip.V6E)
    for which, times_us in ((key(), (20.0, 10.0)), (slow, (30.0, 25.0))):
        for number, time_us in enumerate(times_us):
            save_trial(store, which, trial(number, _outcome(time_us)))
    for word, ids in (
        ("chip:v6e", [2]),
        ("kernel:splash", [2]),
        ("kernel:v6e", []),
        ("jax:0.9", [1, 2]),
        ("status:unpublished", [1, 2]),
        ("status:broken", []),
        ("status:nonsense", []),
    ):
        problems = store.browse.numbered(store.browse.fitting(KeyFilter(words=(word,))))
        assert sorted(searched.id for searched in problems) == ids, word


def test_problems_are_filtered(filled):
    for only, ids in (
        (KeyFilter(), [4, 3, 2, 1]),
        (KeyFilter(chip=Chip.V6E), [3]),
        (KeyFilter(toolchain=OLD.toolchain), [2]),
        (KeyFilter(chip=Chip.V6E, toolchain=OLD.toolchain), []),
        (KeyFilter(chip=Chip.V4), []),
    ):
        only = replace(only, kernel="matmul")
        assert filled.browse.fitting(only) == ids
        assert [searched.id for searched in filled.browse.numbered(ids)] == ids


def test_numbers_that_there_are_not(filled):
    browse = filled.browse
    for number in (0, -1, 99, 2**63, 2**70):
        assert browse.searched(number) is browse.trial(number) is browse.key_of(number) is None
        assert browse.by_number(1, number) is None or number == 0


def test_trials_by_number_kind_and_time(filled):
    def numbers(kind, *, fastest=False, offset=0):
        numbered = filled.browse.trials(1, kind, fastest=fastest, offset=offset, limit=3)
        return [tried.trial.number for tried in numbered]

    assert numbers(None) == [0, 1, 2]
    assert numbers(None, offset=4) == [4, 5]
    assert numbers("illegal") == [2]
    assert numbers("estimated", offset=1) == [1, 3, 4]
    assert numbers(None, fastest=True)[0] == 5
    assert numbers(None, fastest=True, offset=3) == [3, 0]


def test_the_best_so_far_gets_only_better(filled):
    steps = filled.browse.best_so_far(1)
    assert [(step.number, step.time_us) for step in steps] == [(0, 50.0), (1, 20.0), (5, 10.0)]
    assert steps[1].at == NOON + timedelta(seconds=1)
    assert filled.browse.best_so_far(99) == []


def test_wanted_are_misses_without_a_record(filled):
    wanted = filled.browse.missed_keys(0, 9)
    assert [(missed.miss.key, missed.miss.count) for missed in wanted] == [(MISSED, 3)]
    assert filled.browse.searched(wanted[0].key_id) is not None
    assert filled.browse.missed_keys(1, 9) == []


def test_the_last_word_of_a_search_counts(filled):
    assert filled.searches.status(1) is None
    filled.searches.report(key(), "9 points", Progress(goal=9, note="compiling"), over=False)
    last = Progress(done=9, goal=9, best_us=1.5, default_us=3.0)
    filled.searches.report(key(), "9 points", last, over=True)
    status = filled.searches.status(1)
    assert (status.space, status.progress, status.over) == ("9 points", last, True)
    assert filled.searches.status(2) is None


def test_a_pause_is_not_in_the_time_that_is_left(store):
    """A search that was stopped over night goes on at its rate."""
    store.save_kernel(spec())
    for number in range(6):
        at = NOON + timedelta(seconds=3 * number, hours=12 * (number > 2))
        save_trial(store, key(), replace(trial(number), created_at=at))
    store.searches.report(key(), "", Progress(done=6, goal=10), over=False)
    (running,) = store.browse.running(NOON)
    assert running.left_s == 12


def test_the_sums_beside_a_key_are_those_of_its_trials(filled):
    number = key_id(filled, key())

    def sums():
        searched = filled.browse.searched(number)
        return searched.best_us, searched.default_us, searched.trials

    assert sums() == (10.0, 50.0, 6)
    filled.replace_outcome(key(), trial(5).config, Illegal(reason="its result was wrong"))
    filled.replace_outcome(key(), trial(0).config, _outcome(60.0))
    assert sums() == (20.0, 60.0, 6)
    pushed = KeyResult(record=record(), trials=(trial(9, _outcome(5.0)),))
    filled.push([spec()], [pushed], "ci")
    assert sums() == (5.0, 60.0, 7)


def test_a_workload_is_as_it_was_saved_last(store):
    entry = TunedEntry(key=key(), weight=2.5, before_us=None, reason=NASTY)
    time = StepTime(kind=StepKind.KERNEL, line=NASTY, before_us=2.0, after_us=1.0)
    step = TunedStep(chip=Chip.V5E, devices=1, times=(time,), error=None)
    first = TunedWorkload(
        name="model\udcff", entries=(entry, entry), missing=(NASTY,), steps=(step,)
    )
    store.workloads.save(first)
    store.workloads.save(replace(first, name="other"))
    store.workloads.save(replace(first, entries=(entry,)))
    names = [name for name, _ in store.workloads.names()]
    assert sorted(names) == ["model?", "other"]
    first_saved, other = (store.workloads.find(name) for name in sorted(names))
    assert first_saved is not None and other is not None
    assert first_saved[0].entries == (entry,) and first_saved[0].missing == (NASTY,)
    assert other[0].entries == (entry, entry) and other[0].steps == (step,)
    assert store.workloads.find("none") is None
