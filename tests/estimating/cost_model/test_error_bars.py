"""What measured programs ask of the error bar: few or equal ones never make it narrower."""

from dataclasses import replace

import pytest

from autotune.domain.calibration import MeasuredProgram
from autotune.domain.error_bars import MeasuredBars
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.error_bars import measured_bars, with_measured_bars
from autotune.estimating.simulator import MODEL
from tests.samples import estimates, records


def row(family: int, number: int, off: float = 0.02, limit: str = "compute") -> MeasuredProgram:
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


def rows(families: int, each: int, off: float = 0.02) -> list[MeasuredProgram]:
    return [row(family, number, off) for family in range(families) for number in range(each)]


def bars(given: list[MeasuredProgram]) -> MeasuredBars:
    measured = measured_bars(given)
    assert measured is not None
    return measured


@pytest.mark.parametrize(
    "given",
    [
        rows(5, 3),  # few
        rows(4, 10),  # of few kernels
        [replace(row(f % 5, 0), program="same") for f in range(1000)],
        rows(1, 1000),
        rows(5, 1) * 1000,
        [replace(each, model="an older one") for each in rows(6, 9)] + rows(1, 1),
    ],
)
def test_few_or_equal_programs_never_make_a_bar_narrower(given: list[MeasuredProgram]) -> None:
    measured = bars(given)
    assert measured.kernel_error("compute", 0.05) == 0.05
    assert measured.kernel_error("compute", None) is None
    assert not measured.narrows and not measured.narrows_xla


def test_many_make_it_narrower_for_what_limits_five_of_them() -> None:
    measured = bars([*rows(5, 4), *(row(f, 9, limit="HBM") for f in range(4))])
    assert measured.kernel_error("compute", 0.05) == 0.02
    assert measured.kernel_error("compute", None) == 0.02
    assert measured.kernel_error("HBM", 0.05) == 0.05
    assert measured.xla_error(0.16) == 0.16


def test_a_family_that_is_left_out_makes_it_as_wide_as_that_asks() -> None:
    """Its factor on what it makes itself would be 450 %: no error is larger than 30."""
    given = rows(4, 4) + [row(4, n, 0.3) for n in range(4)]
    assert bars(given).kernel_error("compute", 0.05) == pytest.approx(0.3, abs=0.01)


def test_five_of_two_kernels_make_it_wider() -> None:
    assert bars(rows(2, 3, off=0.4)).kernel_error("compute", 0.05) == pytest.approx(0.4)
    assert bars(rows(2, 2, off=0.4)).kernel_error("compute", 0.05) == 0.05


def test_none_is_narrower_than_a_clock_is_good() -> None:
    assert bars(rows(6, 4, off=0.0)).kernel_error("compute", 0.05) == 0.02


def test_an_estimate_says_where_its_bar_is_from_and_takes_it_once() -> None:
    e = estimates.estimate(estimates.parts(issue=8.0, xla=2.0), xla_us=2.0, error=0.08)
    wide = with_measured_bars(e, bars(rows(2, 3, off=0.4)), "v5e")
    assert wide.error == pytest.approx((8 * 0.4 + 2 * 0.16) / 10, abs=0.005)
    assert wide.notes[-1].startswith("the error bar is from 6 programs of 2 kernels, timed")
    assert with_measured_bars(wide, bars(rows(2, 3, off=0.4)), "v5e") == wide
    assert with_measured_bars(e, bars(rows(2, 3, off=0.0)), "v5e") == e
    assert with_measured_bars(e, None, "v5e") is e
