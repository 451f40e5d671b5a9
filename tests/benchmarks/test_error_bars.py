"""Error bars for families that nobody measured."""

import pytest

from benchmarks.calibration.error_bars import (
    Unsure,
    _errors,
    _given,
    caution,
    coverage,
    of_operations,
    width,
)

KERNELS = ("kernels", "v5e")


def row(**changed):
    return {
        "side": "given",
        "chip": "v6e",
        "family": "pallas_mosaic_tpu_add",
        "time_us": 100.0,
        "estimate_us": 110.0,
        "bar": 0.2,
        **changed,
    }


def test_a_family_of_many_rows_counts_as_much_as_one_of_few():
    few, many = [0.3, 0.3], [0.01] * 98
    assert width({"few": few, "many": many}) == 0.3


def test_nine_of_ten_errors_of_families_that_are_left_out_are_within():
    """Products alone would give attention 4 %: its own errors must not decide its bar."""
    known = {KERNELS: {"matmul": [0.04] * 5, "attention": [0.1001] * 5}}
    assert caution(known) == 2.51
    *_, attention = coverage(known)
    assert attention.endswith("| attention | 5 | 10.0% | 5 |")


def test_bars_are_made_from_given_rows_with_a_bar_of_the_measured_program_alone():
    other = row(peak_mb=100.0, made_mb=101.0, estimate_us=500.0)
    wrong = [
        row(estimate_us=500.0, **of) for of in ({"bar": None}, {"side": "held"}, {"tuned": "x"})
    ]
    read = _errors(_given([row(), other, *wrong]), [], Unsure(0.0, 0.0))
    assert read["kernels", "v6e"]["pallas_mosaic_tpu_add"] == [pytest.approx(0.1)]


def test_what_operations_may_take_beside_their_time_is_apart_from_the_bar_of_a_chip():
    by_kind, unsure = {"convolution": 55.0, "": 45.0, "sort": 10.0}, Unsure(0.1, 2.0)
    plain = row(family="normalization", operations_run=55, xla_us=110.0, by_kind=by_kind)
    read = _errors([plain], [], unsure)
    assert read["XLA", "v6e"]["normalization"] == [pytest.approx(0.025)]
    assert unsure.bar(plain, 0.025) == pytest.approx(0.1)
    timed = of_operations([plain], unsure)["timed_kinds"]["value"]
    assert timed == ["", "convolution"]  # by a tenth of the row at least
