"""Error bars for families that nobody measured."""

import pytest

from autotune.estimating.simulator import constants
from benchmarks.calibration import tokamax_rows as names
from benchmarks.calibration.error_bars import (
    Unsure,
    _errors,
    _given,
    caution,
    coverage,
    never_seen,
    new_kinds,
    of_few,
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


def test_a_kind_is_timed_where_enough_rows_are_mostly_of_it_and_any_other_is_less_sure_as_few_are():
    bar_of = {"chip": "v6e", "family": "a", "limited_by": "XLA", "operations_run": 1}
    rows = [
        row(**bar_of, id=n, xla_us=110.0, by_kind={kind: 60.0, "sort": 40.0})
        for n, kind in enumerate([*("gather",) * 4, *("",) * 9])
    ]
    far = row(**bar_of, id=99, xla_us=110.0, by_kind={"": 1.0}, time_us=300.0)
    data = constants.bars() | {"XLA": {"v6e": {"value": 0.05}}}
    made = new_kinds([*rows, far], data)
    assert made["timed_kinds"]["value"] == [""]  # of gathers too few, of a sort too little
    assert new_kinds([*rows, far, far], data)["timed_kinds"]["value"] == []
    known = 0.05 * (1 + data["moves"]["value"])
    assert made["other"]["new kind"]["value"] == round(known * (of_few(1) - 1), 3) > 0


def test_the_bar_of_kernels_never_seen_is_wider_the_fewer_others_there_are():
    """What ten families say of the next: Student's t against a normal distribution."""
    assert of_few(4) == pytest.approx(2.132 / 1.645, abs=1e-3)
    assert of_few(10_000) == pytest.approx(1, abs=1e-3)
    parts_us = {"vector and matrix issue": 100.0, "DMA latency waits": 10.0}
    rows = [
        row(family=f"pallas_mosaic_tpu_{name}", steps=11, parts_us=parts_us, limited_by="compute")
        for name in ("ragged_dot", "flash_attention")
    ]
    known = never_seen({KERNELS: {name: [0.1] for name in ("ragged_dot", "ragged dot", "b")}}, rows)
    assert known["other"]["never seen"]["value"] == round(0.1 * of_few(2), 3)
    assert known["shortest step"]["v7x"]["value"] == known["other"]["step"]["value"] * 10 == 10
    shares = {"vector and matrix issue": 1.0, "DMA latency waits": 0.091}
    assert known["shown"]["v7x"]["value"] == shares
    called = [names.KERNELS[f"mosaic_tpu_{name}"] for name in ("ragged_dot", "flash_attention")]
    assert known["seen"]["value"] == called
