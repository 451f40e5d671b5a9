"""What measured programs ask of the error bar: few or equal ones never make it narrower."""

from dataclasses import replace

import pytest

from autotune.answering.matching import match_in
from autotune.cli.show import find_trial
from autotune.domain.calibration import MeasuredProgram
from autotune.domain.outcome import Estimated
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.error_bars import measured_bars, quantile, with_measured_bars
from autotune.estimating.simulator import MODEL, constants
from autotune.wording.measurement import programs_of
from autotune_db import open_store
from tests.samples import estimates, records


def row(family, number, off=0.02, limit="compute"):
    return MeasuredProgram(
        key=records.key(f"kernel{family}"),
        config=make_config({"b": number}),
        program=f"{family} {number}",
        measured_us=100.0,
        samples=9,
        estimate_us=100.0 * (1 + off),
        relayout_us=0.0,
        limited_by=limit,
        model=MODEL,
    )


def rows(families, each, off=0.02):
    return [row(family, number, off) for family in range(families) for number in range(each)]


def bars(given):
    measured = measured_bars(given)
    assert measured is not None
    return measured


def shown(given, error=0.05):
    """Of a kernel alone, with the bar of the product."""
    e = estimates.estimate(estimates.parts(issue=8.0), error=error)
    return with_measured_bars(e, measured_bars(given), "v5e")


@pytest.mark.parametrize(
    "given",
    [
        [],
        rows(2, 2, off=0.4),  # few
        rows(1, 1000, off=0.4),  # of one kernel
        rows(2, 1, off=0.4) * 1000,
        [replace(row(f % 5, 0, 0.4), program="same") for f in range(1000)],
        [replace(each, model="an older one") for each in rows(6, 9, off=0.4)],
        rows(10, 10, off=0.0),  # narrower than the product's
    ],
)
def test_few_equal_old_or_good_programs_change_nothing(given):
    e = shown([])
    assert shown(given) == e and e.error == 0.05


def test_no_limit_gets_narrower_by_rows_of_another():
    """Ten good of HBM and five bad of short steps."""
    given = [row(f, 0, 0.01, "HBM") for f in range(10)]
    given += [row(f, 1, 0.6, "step overhead") for f in range(5)]
    assert (shown(given).error or 0) >= 0.05
    assert shown(given, error=1.7).error == 1.7  # as that of a remote DMA


def test_what_is_not_known_stays_so():
    assert shown(rows(6, 4, off=0.4), error=None).error is None


def test_a_family_that_is_left_out_makes_it_as_wide_as_that_asks():
    """Its factor on what it makes itself would be 450 %: no error is larger than 30."""
    given = rows(4, 4) + [row(4, n, 0.3) for n in range(4)]
    assert bars(given).kernels == pytest.approx(0.3, abs=0.01)


def test_five_of_two_kernels_make_it_wider():
    assert shown(rows(2, 3, off=0.4)).error == pytest.approx(0.4)


def test_a_file_makes_it_only_wider_and_is_named():
    own = rows(2, 3, off=0.4)
    good = [replace(row(f, 9, 0.0), from_file=True) for f in range(2, 40)]
    bad = [replace(each, estimate_us=180.0) for each in good]
    copies = [replace(each, estimate_us=100.0, from_file=True) for each in own]
    assert shown(own + good).error == shown(copies + own).error == shown(own + copies).error
    assert shown(own + good).error == pytest.approx(0.4)
    assert (shown(own + bad).error or 0) > 0.7
    assert "38 of them as a file has it" in programs_of(bars(own + bad))
    assert "file" not in programs_of(bars(own + copies))


def test_kernel_and_xla_each_take_the_wider_bar():
    e = estimates.estimate(estimates.parts(issue=8.0, xla=2.0), xla_us=2.0, error=0.07)
    wide = with_measured_bars(e, bars(rows(2, 3, off=0.4)), "v5e")
    assert wide.error == pytest.approx((8 * 0.4 + 2 * constants.xla_error("v5e")) / 10)
    unsure = replace(e, error=(8 * constants.kernel_error("v5e") + 2 * 1.0) / 10)  # a sort in XLA
    shown_error = with_measured_bars(unsure, bars(rows(2, 3, off=0.4)), "v5e").error
    assert shown_error == pytest.approx((8 * 0.4 + 2 * 1.0) / 10)


def test_a_database_shows_its_bar_and_stores_that_of_the_product(tmp_path):
    e, key = estimates.estimate(estimates.parts(issue=8.0), error=0.05), records.key("kernel0")
    with open_store(str(tmp_path / "test.db"), create=True) as store:
        store.save_kernel(records.spec(key.kernel))
        store.save_trials(key, [records.trial(0, Estimated(estimate=e, program="p"))])
        store.save_record(replace(records.record(key), estimate=e))
        store.save_calibration(rows(2, 3, off=0.4))
        outcome = find_trial(store, 1).trial.outcome
        assert isinstance(outcome, Estimated) and outcome.estimate.error == pytest.approx(0.4)
        text = "the error bar is from 6 programs of 2 kernels, timed on a TPU"
        assert outcome.estimate.notes == (text,)
        stored, record = store.trial(1), store.record(key)
        answered = match_in(store, key).record
    assert stored and stored[1].outcome == Estimated(estimate=e, program="p")
    assert record and answered and record.estimate == answered.estimate == e


@pytest.mark.parametrize(("count", "share", "rank"), [(10, 0.9, 9), (11, 0.9, 10), (6, 0.75, 5)])
def test_a_quantile_is_the_nearest_rank(count, share, rank):
    assert quantile(range(1, count + 1), share) == rank
