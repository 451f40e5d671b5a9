"""Which of two estimates is the faster: ties by resolution, by error bars where it is unknown."""

from dataclasses import replace

import pytest

from autotune.domain.comparison import (
    NamedEstimate,
    XlaVerdict,
    by_measurement,
    compare,
    expected_range,
)
from autotune.domain.evidence import Timed
from autotune.domain.record import Evidence
from tests.samples.estimates import estimate, parts


def test_other_chips_and_old_estimates_are_told_apart_by_their_error_bars():
    one, other = (NamedEstimate(name="x", estimate=estimate(parts(issue=us))) for us in (100, 96))
    assert not compare(one, other).tie
    assert compare(one, other, alike=False).tie
    assert compare(one, other, alike=False).margin == 0.05
    old = NamedEstimate(name="old", estimate=replace(one.estimate, resolution=0.0))
    assert compare(old, other).tie


@pytest.mark.parametrize(
    ("interval", "slower", "verdict"),
    [
        ((0.75, 0.8, 0.85), False, XlaVerdict.MEASURED_FASTER),
        ((1.1, 1.2, 1.3), True, XlaVerdict.MEASURED_SLOWER),
        ((0.9, 1.0, 1.1), False, XlaVerdict.MEASURED_TIE),
    ],
)
def test_plain_xla_that_was_measured(interval, slower, verdict):
    low, ratio, high = interval
    xla = Timed(config=None, samples_us=(6.6,), ratio=ratio, low=low, high=high, slower=slower)
    assert by_measurement(xla) is verdict


@pytest.mark.parametrize(
    ("bound_us", "expected_us", "span_us"),
    [
        (1.3, 1.0, (1.3, 1.3)),
        (0.95, 1.0, (0.95, 1.1)),
        (None, 1.0, (0.9, 1.1)),
        (1.3, None, (0, 0)),
    ],
)
def test_nothing_is_expected_below_its_bound(bound_us, expected_us, span_us):
    baseline = Evidence(config=None, time_us=bound_us, expected_us=expected_us, expected_error=0.1)
    assert expected_range(baseline) == pytest.approx(span_us)
