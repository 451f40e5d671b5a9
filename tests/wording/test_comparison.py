"""Why one estimate is faster than another: the verdict, the parts that are named, and ties."""

from dataclasses import replace

from autotune.domain import explanation
from autotune.domain.comparison import NamedEstimate
from autotune.estimating.cost_model.comparison import compare
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


def test_several_parts_are_named_until_most_is_explained_and_a_reason_once():
    slow = estimate(parts(issue=10, scalar=40, latency=40, matrix=40, lanes=2), steps=9)
    fast = estimate(parts(issue=10), steps=3)
    text = said(slow, fast)
    assert text.count("3 instead of 9 grid steps") == 1
    for words in ("scalar work", "DMA latency", "matrix units"):
        assert words in text
    assert "cross-lane" not in text
    assert "Against that" not in text


def test_hbm_is_explained_by_bytes_and_then_by_bursts():
    slow = estimate(parts(hbm=100), hbm_bytes=40 << 20)
    assert "(moves 10.00 MiB instead of 40.00 MiB)" in said(
        slow, estimate(parts(hbm=10), hbm_bytes=10 << 20)
    )
    longer = estimate(parts(hbm=10), hbm_bytes=40 << 20, burst_bytes=4096)
    assert "(mean burst of 4,096 B instead of 512 B)" in said(slow, longer)


def test_a_difference_that_the_model_cannot_tell_is_a_tie():
    one, other = estimate(parts(issue=100)), estimate(parts(issue=96, hbm=2))
    text = said(one, other)
    assert text.startswith("A tie: trial 2 is estimated 2.0% faster than trial 1")
    assert "and less than 3.0% cannot be told apart" in text
    assert "What differs most: trial 2 needs 4.0 µs less to issue" in text
    assert said(one, one) == "A tie: trial 1 and trial 2 are estimated equally fast."
    exact = [replace(e, resolution=0.01) for e in (one, other)]
    assert said(*exact).startswith("Trial 2 is 1.02 times as fast")


def test_long_times_are_milliseconds():
    assert "needs 14.9 ms less" in said(estimate(parts(issue=15_000)), estimate(parts(issue=100)))


def test_without_parts_only_the_times_are_compared():
    old = replace(estimate(parts(issue=100)), explanation=None)
    text = said(old, estimate(parts(issue=10)))
    assert text.startswith("Trial 2 is 10.00 times as fast")
    assert text.endswith("The parts of one of them are not known.")


def test_every_part_has_its_words():
    for name in explanation.PARTS:
        slow = estimate({**parts(issue=1), name: 50.0})
        assert "less" in said(slow, estimate(parts(issue=1)))
