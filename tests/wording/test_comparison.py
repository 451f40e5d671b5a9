"""Why one estimate is faster than another: the verdict, the parts that are named, and ties."""

from dataclasses import replace

from autotune.domain import explanation
from autotune.domain.comparison import NamedEstimate, compare
from autotune.wording.facts import why
from tests.samples.estimates import estimate, parts


def said(one, other):
    return why(
        compare(
            NamedEstimate(name="trial 1", estimate=one),
            NamedEstimate(name="trial 2", estimate=other),
        )
    )


def test_the_largest_parts_are_named_with_what_they_come_from():
    slow = estimate(parts(issue=20, latency=62, matrix=8), steps=512)
    fast = estimate(parts(issue=18, latency=2, fill=9), steps=64)
    assert said(slow, fast) == (
        "Trial 2 is 3.10 times as fast as trial 1, by estimate. It waits 60.0 µs less for DMA "
        "latency (64 instead of 512 grid steps). Against that, it waits 9.0 µs more for its first "
        "blocks."
    )
    assert said(fast, slow).startswith("Trial 2 is 3.10".replace("2", "1"))


def test_a_difference_that_the_model_cannot_tell_is_a_tie():
    one, other = estimate(parts(issue=100)), estimate(parts(issue=96, hbm=2))
    text = said(one, other)
    assert text.startswith("A tie: trial 2 is estimated 2.0% faster than trial 1")
    assert "and less than 3.0% cannot be told apart" in text
    assert "What differs most: trial 2 needs 4.0 µs less to issue" in text
    assert said(one, one) == "A tie: trial 1 and trial 2 are estimated equally fast."
    exact = [replace(e, resolution=0.01) for e in (one, other)]
    assert said(*exact).startswith("Trial 2 is 1.02 times as fast")


def test_every_part_has_its_words():
    for name in explanation.PARTS:
        slow = estimate({**parts(issue=1), name: 50.0})
        assert "less" in said(slow, estimate(parts(issue=1)))
