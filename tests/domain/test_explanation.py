"""What of a time another config can save, and what to change first."""

from autotune.domain import explanation as names
from autotune.domain.explanation import PARTS
from autotune.wording.facts import PART_WORDS, what_to_change
from tests.samples.estimates import SHORT, estimate, parts


def explained(*, roofline_us=0.0, mxu_us=0.0, least_us=0.0, **us):
    return estimate(parts(**us), roofline_us=roofline_us, mxu_us=mxu_us, least_us=least_us)


def why(found):
    assert found.explanation is not None
    return found.explanation


def test_the_largest_part_that_a_config_can_reduce_is_named():
    assert explained(latency=10, fill=5).limiting_part == names.LATENCY
    assert explained(xla=50, scalar=10).limiting_part == names.SCALAR
    assert explained(issue=50, scalar=10).limiting_part == names.SCALAR  # vector arithmetic stays
    assert explained(issue=50, mxu_us=20, scalar=10).limiting_part == names.ISSUE
    assert explained(issue=50, matrix=40, mxu_us=80, fill=20).limiting_part == names.FILL


def test_waits_for_the_least_traffic_are_nobodys_to_save():
    least = explained(hbm=80, scalar=20, roofline_us=100, latency=6)
    assert least.limiting_part == names.SCALAR
    assert explained(hbm=80, scalar=20, roofline_us=40).limiting_part == names.HBM


def test_what_the_core_does_behind_the_traffic_limits_nothing():
    """Weights of a decode step: 71 of 79 µs are their way from HBM, the core is busy for 40."""
    decode = explained(issue=28, matrix=12, latency=24, hbm=11, fill=4, least_us=71)
    assert (decode.limiting_part, why(decode).saving_us) == (names.LATENCY, 8)
    assert explained(issue=55, hbm=45, least_us=99).limiting_part == names.HBM
    assert explained(issue=60, hbm=40, least_us=50, mxu_us=9).limiting_part == names.ISSUE


def test_where_nothing_can_be_saved_the_largest_part_is_named_and_that_is_said():
    best = explained(issue=90, matrix=9, mxu_us=97, fill=1, roofline_us=97)
    assert best.limiting_part == names.ISSUE
    assert what_to_change(best, why(best)) == "no other config can save much of it"


def test_every_part_has_its_words():
    assert tuple(PART_WORDS) == PARTS
    assert all("{}" in words.does for words in PART_WORDS.values())


def test_there_is_a_remedy_for_each_part_that_can_be_reduced():
    for short, name in SHORT.items():
        found = explained(**{short: 10.0}, mxu_us=1.0)
        assert ("µs less" in what_to_change(found, why(found))) == (name != names.LINKS)


def test_traffic_above_the_least_of_any_config_can_be_saved():
    """A config that fetches its operands again and again waits for its own traffic alone."""
    again = explained(hbm=80, scalar=20, roofline_us=95, least_us=5)
    assert again.limiting_part == names.HBM
    assert why(again).saving_us == 95
    assert why(explained(hbm=80, scalar=20, roofline_us=95, least_us=95)).saving_us == 5


def test_what_xla_does_may_be_less_with_another_config():
    """The gradient of attention: with other blocks XLA does a fifth of it."""
    assert why(explained(xla=480, issue=260, roofline_us=260, least_us=260)).saving_us == 480
    assert why(explained(xla=480, issue=260, mxu_us=160)).saving_us == 100


def test_no_block_is_to_be_larger_where_none_can():
    found = explained(hbm=80, scalar=20, roofline_us=40, least_us=40)
    assert "block_m up to 512" in what_to_change(found, why(found), {"block_m": 512})
    no_larger = "no block can be larger while the others stay"
    assert what_to_change(found, why(found), {}) == no_larger
    assert "larger blocks (if any is legal and fits), " in what_to_change(found, why(found))
    fill = explained(fill=80, scalar=20, least_us=40)
    assert what_to_change(fill, why(fill), {}) == no_larger.replace("larger", "smaller")
    assert "smaller blocks (m down to 8), " in what_to_change(fill, why(fill), {"m": 8})
