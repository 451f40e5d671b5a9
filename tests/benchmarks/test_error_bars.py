"""Error bars for families of kernels that nobody measured."""

import pytest

from benchmarks.calibration.agreement import Pair
from benchmarks.calibration.error_bars import coverage, unseen


def pairs(chip, family, *ratios):
    return [
        Pair(
            subset="somebody",
            chip=chip,
            family=family,
            group="all",
            limited_by="compute",
            measured_us=100.0,
            estimated_us=100.0 * ratio,
        )
        for ratio in ratios
    ]


def test_the_fewer_families_are_known_the_wider_another_one_may_be():
    assert unseen([0.1]) == pytest.approx(0.2)
    assert unseen([0.1, 0.02]) == pytest.approx(0.15)
    assert unseen([0.1, 0.02, 0.05, 0.03]) == pytest.approx(0.125)


def test_a_bar_is_judged_on_the_family_that_it_was_not_made_from():
    """Products alone would give attention 6 %; its own errors of 20 % must not widen that."""
    known = [
        *pairs("v5e", "matmul", 1.03, 0.97, 1.03),
        *pairs("v5e", "attention", 1.2, 0.8, 1.05, 1.0),
    ]
    bars = {family: (rows, bar, within) for _, family, rows, bar, within in coverage(known)}
    assert bars["attention"] == (4, pytest.approx(0.06), 0.5)
    assert bars["matmul"] == (3, pytest.approx(0.4), 1.0)


def test_a_chip_with_one_family_is_judged_by_twice_the_others_of_other_chips():
    known = [
        *pairs("v5e", "matmul", 1.03),
        *pairs("v5e", "attention", 1.02),
        *pairs("v6e", "attention", 1.05),
    ]
    bars = {(chip, family): bar for chip, family, _, bar, _ in coverage(known)}
    assert bars["v6e", "attention"] == pytest.approx(0.12)
