"""The contract of the ports of results, on SQLite and on a real PostgreSQL."""

from dataclasses import replace
from datetime import timedelta, timezone
from random import Random

import pytest
from sqlalchemy import event

from autotune.domain.browsing import SearchedKey
from autotune.domain.calibration import MeasuredProgram
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig
from autotune.domain.outcome import Estimated, Illegal, WrongResult
from autotune.domain.record import Standing
from autotune.domain.store import KeyResult
from autotune_db.store import open_store
from tests.samples.matching import ruled
from tests.samples.records import (
    NASTY,
    NOON,
    OUTCOMES,
    config,
    estimate,
    key,
    record,
    save_trial,
    spec,
    trial,
)


class TestTrials:
    def test_every_outcome_comes_back_equal(self, store):
        saved = [trial(number, outcome) for number, outcome in enumerate(OUTCOMES)]
        assert all(save_trial(store, key(), published) for published in saved)
        assert store.trials(key()) == saved

    def test_options_longer_than_an_index_takes_tell_keys_apart(self, store):
        """A hundred of them, as MaxText has, whose text does not compress."""
        letters = Random(1)
        names = sorted(f"xla_{letters.getrandbits(400):x}=1" for _ in range(100))
        keys = [
            replace(key(), toolchain=replace(key().toolchain, options=" ".join(names[:most])))
            for most in (0, 99, 100)
        ]
        for number, each in enumerate(keys, 1):
            save_trial(store, each, trial(bm=8 * number))
        for number, each in enumerate(keys, 1):
            assert store.trials(each) == [trial(bm=8 * number)]
        assert {each.key for each in store.history()} == set(keys)
        assert {place.toolchain for place in store.browse.targets()} == {k.toolchain for k in keys}

    def test_another_default_takes_the_place_of_the_first(self, store):
        """Where it was tried; else the place is free."""
        for number in range(3):
            save_trial(store, key(), trial(number))
        store.place_default(key(), trial(2).config)
        by_number = {t.number: t.config for t in store.trials(key())}
        assert by_number == {0: trial(2).config, 1: trial(1).config, 3: trial(0).config}
        store.place_default(key(), trial(2).config)
        assert {t.number: t.config for t in store.trials(key())} == by_number
        store.place_default(key(), trial(7).config)
        assert [t.number for t in store.trials(key())] == [1, 3, 4]
        assert store.history()[0].default_us is None

    def test_those_with_a_time_are_found_by_kernel_nearest_first(self, store):
        here, far = key(), replace(key(), chip=Chip.V4)
        other = replace(key(), problem=replace(key().problem, dims=(("m", 1), ("k", 2), ("a", 3))))
        timed = Estimated(estimate=estimate(), program="p")
        for number, of in enumerate((other, here, far)):
            save_trial(store, of, trial(number, timed))
            save_trial(store, of, trial(9, Illegal(reason="no"), bm=9))
        assert [k for k, _ in store.timed_trials(here, 1)] == [other]
        assert [k for k, _ in store.timed_trials(here, 9)] == [other, far]
        assert len(store.timed_trials(replace(here, fingerprint="new"), 9)) == 3
        assert not store.timed_trials(replace(here, kernel="another"), 9)

    def test_the_same_number_or_config_is_refused(self, store):
        for m, (other, is_kept) in enumerate(
            [
                (trial(0, bm=16), False),
                (trial(1, bm=8), False),
                (trial(0, bm=8), False),
                (replace(trial(1), config=config(8).replace(axes=config(8).axes[::-1])), False),
                (replace(trial(1), config=config(8).replace(grid_order=("m", "n", "k"))), True),
            ],
            1,
        ):
            of = key(m=m)
            assert save_trial(store, of, trial(0, bm=8))
            assert save_trial(store, of, other) is is_kept, other
            assert store.trials(of) == [trial(0, bm=8), *[other] * is_kept]

    def test_a_batch_takes_a_few_statements_and_is_summed_up(self, store):
        said = []
        new = [trial(number, bm=8 + number) for number in range(50)]
        event.listen(store._work._engine, "before_cursor_execute", lambda *a: said.append(a[2]))
        assert store.save_trials(key(), new) == 50
        assert len(said) < 12 and store.trials(key()) == new
        (summary,) = store.history()
        times = [each.estimate.time_us for each in new if each.estimate]
        assert (summary.trials, summary.best_us) == (50, min(times))
        assert summary.default_us == times[0]
        twice = [trial(50, bm=100), trial(51, bm=100)]
        assert store.save_trials(key(), twice) == 1

    def test_what_is_searched_here_takes_the_place_of_what_was_pushed(self, store):
        """By its number and by its config: nobody keeps a search from finding what is true."""
        timed = Estimated(estimate=estimate(1e-3), program="p")
        lies = (trial(0, timed, bm=8), trial(1, timed, bm=16), trial(2, timed, bm=32))
        store.push([spec()], [KeyResult(record=record(), trials=lies)], "ci")
        own = [trial(0, bm=16), trial(1, bm=64)]
        assert store.trials(key()) == [] and store.save_trials(key(), own) == 2
        assert store.trials(key()) == own
        left = replace(lies[2], pushed_by="ci")
        assert store.trials(key(), pushed=True) == [*own, left]
        (summary,) = store.history()
        estimated = own[0].estimate
        assert (summary.trials, summary.default_us) == (3, estimated and estimated.time_us)

    def test_keys_do_not_mix(self, store):
        assert save_trial(store, key(), trial())
        for number, other in enumerate(
            (
                key("rmsnorm"),
                key(m=8),
                key(chip=Chip.V4),
                key(jax="0.9.1"),
                replace(key(), fingerprint="beef"),
                replace(key(), toolchain=replace(key().toolchain, libtpu="0.0.31")),
                replace(key(), toolchain=replace(key().toolchain, jaxlib="0.8")),
                replace(key(), problem=replace(key().problem, dtype="float32")),
                replace(key(), problem=replace(key().problem, options=())),
            ),
            1,
        ):
            assert store.trials(other) == [], other
            assert save_trial(store, other, trial(number))
            assert store.trials(other) == [trial(number)], other
        assert store.trials(key()) == [trial()]

    def test_times_are_utc_and_one_without_a_zone_is_a_bug(self, store):
        in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
        save_trial(store, key(), replace(trial(), created_at=in_tokyo))
        created_at = store.trials(key())[0].created_at
        assert (created_at, created_at.utcoffset()) == (NOON, timedelta(0))
        with pytest.raises(Exception, match="no time zone"):
            save_trial(store, key(m=1), replace(trial(), created_at=NOON.replace(tzinfo=None)))
        assert store.trials(key(m=1)) == []


class TestReplaceOutcome:
    def test_a_wrong_result_keeps_everything_and_cannot_win(self, store):
        for number in range(2):
            save_trial(store, key(), trial(number))
        wrong = WrongResult(
            reason=NASTY, estimate=estimate(), check="values", error=33.5, where="output 0 at (1,)"
        )
        store.replace_outcome(key(), trial(1).config, wrong)
        assert store.trials(key()) == [trial(0), trial(1, wrong)]
        assert store.history()[0].outcomes == (("estimated", 1), ("wrong result", 1))


class TestMisses:
    def test_the_most_wanted_first_until_there_is_a_record(self, store):
        wanted, rare = key(m=1), key(m=2)
        store.save_misses({(wanted, "default"): 1})
        store.save_misses({(wanted, "default"): 1, (rare, "default"): 1})
        misses = store.misses()
        assert [(miss.key, miss.count) for miss in misses] == [(wanted, 2), (rare, 1)]
        assert misses[0].first_at <= misses[0].last_at
        assert [miss.key for miss in store.misses(limit=1)] == [wanted]
        store.save_record(record(wanted))
        assert [miss.key for miss in store.misses()] == [rare]


class TestHistory:
    def test_a_key(self, store):
        times = {0: 9.0, 1: 5.0, 2: 7.0}
        for number, time_us in times.items():
            outcome = Estimated(estimate=estimate(time_us), program="")
            save_trial(store, key(), trial(number, outcome))
        save_trial(store, key(), trial(3, Illegal(reason="no")))
        expected = SearchedKey(
            id=1,
            key=key(),
            outcomes=(("estimated", 3), ("illegal", 1)),
            best_us=5.0,
            default_us=9.0,
            standing=None,
            last_at=trial(3).created_at,
        )
        assert store.history() == [expected]
        store.save_record(record())
        assert store.history() == [replace(expected, standing=Standing.PROVEN)]
        store.save_record(replace(record(), pushed_by="ci"))
        assert store.history()[0].standing is Standing.PROVEN
        for verified in (False, True):
            store.save_record(replace(record(time_us=5.0), verified=verified))
            assert store.history()[0].best_verified is verified
        store.replace_outcome(
            key(), trial(1).config, WrongResult(reason="off", estimate=estimate(5.0))
        )
        assert (store.history()[0].best_us, store.history()[0].best_verified) == (7.0, False)


class TestRecords:
    @pytest.mark.parametrize(
        "saved",
        [
            record(),
            replace(record(), rule=ruled()),
            replace(record(), is_default=True, verified=False, reason="nothing was faster"),
        ],
        ids=["a winner", "with a rule", "the default"],
    )
    def test_it_comes_back_equal(self, store, saved):
        store.save_record(saved)
        assert store.record(key()) == saved
        assert list(store.records()) == [saved]

    def test_the_one_saved_last_wins(self, store):
        earlier = NOON - timedelta(days=1)
        for time_us, when in ((5.0, NOON), (4.0, NOON), (6.0, earlier)):
            store.save_record(record(time_us=time_us, created_at=when))
        assert store.record(key()) == record(time_us=6.0, created_at=earlier)
        assert len(list(store.records())) == 1


class TestKernels:
    def test_what_is_offered_never_takes_the_place_of_what_a_kernel_says_itself(self, store):
        store.offer_kernels([replace(spec(), doc="offered")])
        store.save_kernel(spec())
        store.save_kernel(spec(fingerprint="beef"))
        store.offer_kernels([replace(spec(), doc="offered again")])
        assert store.kernel("matmul", "f00d") == spec()
        assert store.kernel("matmul") == spec(fingerprint="beef")

    def test_what_is_known_is_not_written_again(self, store):
        """Each poll of a worker offers its kernels."""
        store.offer_kernels([spec()])
        statements = []
        event.listen(
            store._work._engine, "before_cursor_execute", lambda *a: statements.append(a[2])
        )
        store.offer_kernels([spec()])
        assert statements and not [statement for statement in statements if "INSERT" in statement]
        store.offer_kernels([spec(), spec(fingerprint="beef")])
        assert len(store.kernels()) == 2


def test_what_was_saved_is_there_after_closing(url):
    with open_store(url, create=True) as first:
        save_trial(first, key(), trial())
        first.save_record(record())
        first.save_kernel(spec())
    with open_store(url, create=False) as second:
        assert second.trials(key()) == [trial()]
        assert second.record(key()) == record()
        assert second.kernels() == [spec()]
        assert save_trial(second, key(), trial(1))


KNOWN = KnownConfig(
    kernel="matmul",
    problem=(("m", 8), ("dtype", "bfloat16")),
    chips=(Chip.V5E, Chip.V5P),
    axes=(("block_m", 8),),
    source="jax-rpa line 4",
)


def test_kept_once_and_brought_up_to_date(url):
    timed = replace(KNOWN, time_us=2.5, source="jax-rpa line 9")
    other = replace(KNOWN, kernel="rmsnorm")
    with open_store(url, create=True) as store:
        assert store.save_known_configs([KNOWN, other]) == 2
        assert store.save_known_configs([timed, timed]) == 0
        assert store.save_known_configs([KNOWN]) == 0  # says less: the time is kept
        assert store.known_configs("matmul") == [timed]
        assert store.known_configs() == [timed, other]


def test_a_program_is_timed_once_the_last_time_counts(url):
    row = MeasuredProgram(
        key=key(),
        config=None,
        program="p",
        measured_us=2.0,
        samples=9,
        estimate_us=1.0,
        relayout_us=0.0,
        limited_by="xla",
        model="m",
    )
    again = replace(row, measured_us=3.0)
    with open_store(url, create=True) as store:
        store.save_calibration([row, replace(row, key=key(jax="0.8.0"))])
        store.save_calibration([again])
        assert store.calibration(Chip.V5E, row.key.toolchain) == [again]
        assert store.calibration(Chip.V6E, row.key.toolchain) == []
        sent = replace(row, from_file=True)
        other = replace(sent, config=config(8))
        store.save_calibration([sent, other])
        assert store.calibration(Chip.V5E, row.key.toolchain) == [again, other]
        store.save_calibration([replace(sent, key=key(jax="0.8.0")), again])
        assert store.calibration(Chip.V5E, row.key.toolchain) == [again, other]
        store.save_calibration([newer := replace(sent, config=config(16))])
        assert store.calibration(Chip.V5E, row.key.toolchain) == [again, newer]
