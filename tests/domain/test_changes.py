"""What changing a config does to its time, from trials."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.comparison import faster_trial, other_blocks, part_effects
from autotune.domain.outcome import Estimated, OutOfVmem
from autotune.domain.problem import Config
from autotune.wording.facts import effect_text
from tests.samples.estimates import estimate, parts
from tests.samples.records import trial

SIZES = (64, 128, 256)
OUT_OF_VMEM = OutOfVmem(reason="needs 32 MiB", used_bytes=32 << 20, allowed_bytes=16 << 20)


def timed(number, us, **axes):
    found = estimate(parts(issue=us), resolution=0.05)
    config = Config(axes=tuple(axes.items()))
    return replace(
        trial(number, Estimated(estimate=found, program="p")), number=number, config=config
    )


def test_a_part_counts_only_where_nothing_else_changes():
    base = timed(0, 10, m=64, n=64, order="a")
    others = [
        timed(1, 70, m=128, n=64, order="a"),
        timed(2, 10.2, m=64, n=128, order="a"),
        timed(3, 900, m=256, n=64, order="b"),  # two changes: neither is the cause
    ]
    m, n, order = part_effects(base, [base, *others])
    assert (m.part, m.largest.value, m.factor) == ("m", 128, 7.0)
    assert m.largest.interval == pytest.approx((6.65, 7.35))
    assert (n.part, n.largest, n.factor) == ("n", None, 1.0)  # less than can be told
    assert (order.part, order.changes) == ("order", ())


def test_what_the_estimates_cannot_say_is_not_said():
    """An interval is as wide as the less certain of both; a part that has one value so far, or
    none with a time, is not known yet."""
    base, other = timed(0, 10, m=64, n=64), timed(1, 15, m=128, n=64)
    assert other.estimate is not None
    unsure = Estimated(estimate=replace(other.estimate, resolution=0.2), program="p")
    fails = replace(trial(2, OUT_OF_VMEM), config=Config(axes=(("m", 256), ("n", 64))))
    older = Estimated(estimate=replace(other.estimate, model="older"), program="p")
    assert not any(e.changes for e in part_effects(base, [base, replace(other, outcome=older)]))
    m, n = part_effects(base, [base, replace(other, outcome=unsure), fails])
    assert effect_text(m) == "128 takes 1.50 times as long (1.20 to 1.80)"
    assert effect_text(n) == "not known yet: no trial with a time changes it alone"


def test_a_limit_that_goes_with_larger_blocks_is_no_second_change():
    base = timed(0, 10, m=64)
    larger, limit = timed(1, 5, m=128), timed(2, 10, m=64)
    raised = replace(larger, config=larger.config.replace(vmem_limit_bytes=2**26))
    alone = replace(limit, config=limit.config.replace(vmem_limit_bytes=2**26))
    effects = {effect.part: effect for effect in part_effects(base, [raised, alone])}
    assert [(change.value, change.ratio) for change in effects["m"].changes] == [(128, 0.5)]
    assert effects["VMEM limit"].largest is None


def test_semantics_that_go_with_the_blocks_are_no_second_change():
    """Where the blocks decide which axes are parallel; else the semantics are a part themselves."""
    base, other, third = timed(0, 10, m=64), timed(1, 5, m=128), timed(2, 20, m=64)

    def with_semantics(trial, *kinds):
        return replace(trial, config=trial.config.replace(dimension_semantics=kinds))

    base = with_semantics(base, "parallel")
    trials = [base, with_semantics(other, "arbitrary")]
    (m,) = part_effects(base, trials)
    assert [(change.value, change.ratio) for change in m.changes] == [(128, 0.5)]
    trials.append(with_semantics(third, "arbitrary"))
    semantics, m = part_effects(base, trials)
    assert (semantics.part, semantics.factor, m.changes) == ("semantics", 2.0, ())


def test_the_trial_that_saves_most_with_the_fewest_changes_is_named():
    base = timed(0, 100, m=64, n=64)
    both, alone = timed(1, 39.5, m=128, n=128), timed(2, 40, m=256, n=64)
    faster = faster_trial(base, [base, both, alone])
    assert (faster.trial, faster.changed, faster.saved_us) == (alone, {"m": 256}, 60)
    assert faster_trial(alone, [base, both, alone]) is None  # a tie is not faster


def test_a_block_that_is_the_largest_already_cannot_grow():
    config = Config(axes=(("m", 128), ("n", 64), ("way", "x")))
    sizes = ((64, 64), (128, 256), (512, 32))  # the last has as many steps: it is no larger block
    others = [Config(axes=(("m", m), ("n", n), ("way", "y"))) for m, n in sizes]
    assert other_blocks(config, others) == {"n": 256}
    assert other_blocks(config, others, failed={others[1]}) == {}
    assert other_blocks(config, others, sign=-1) == {"m": 64}
    assert other_blocks(others[0], others[1:], sign=-1) == {}


@given(st.lists(st.tuples(*[st.sampled_from(SIZES)] * 2, st.floats(1, 1e3)), min_size=1))
def test_nothing_that_was_tried_saves_more_than_is_said(drawn):
    trials = [timed(place, us, m=m, n=n) for place, (m, n, us) in enumerate(drawn)]
    base = trials[0]
    faster = faster_trial(base, trials)
    most_us = drawn[0][2] - min(us for _, _, us in drawn)
    saved_us = faster.saved_us if faster else 0.0
    resolution = 0.05 * drawn[0][2]
    assert most_us - resolution - 1e-6 <= saved_us <= most_us + 1e-6  # but for rounding
