"""Which of two estimates is the faster: ties by resolution, by error bars where it is unknown."""

from dataclasses import replace

from autotune.domain.comparison import NamedEstimate, compare
from tests.samples.estimates import estimate, parts


def test_other_chips_and_old_estimates_are_told_apart_by_their_error_bars():
    one, other = (NamedEstimate(name="x", estimate=estimate(parts(issue=us))) for us in (100, 96))
    assert not compare(one, other).tie
    assert compare(one, other, alike=False).tie
    assert compare(one, other, alike=False).margin == 0.05
    old = NamedEstimate(name="old", estimate=replace(one.estimate, resolution=0.0))
    assert compare(old, other).tie
