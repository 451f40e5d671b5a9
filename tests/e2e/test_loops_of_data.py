"""Loops that run as often as scalars say, through the real compiler: the time follows them from
wherever they come, and there is none without them."""

import pytest

from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.domain.problem import make_config
from tests.samples import counted_loops
from tests.samples.counted_loops import ROWS, TURNS
from tests.samples.questions import case_of

CHIPS = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E)  # v7x: XLA puts the operand in VMEM


def outcome(pool, chip, *options):
    case = case_of(pool, f"{counted_loops.__file__}:KERNEL", "n=1", None, options)
    found = case.estimated(make_config({"rows": ROWS}), chip)
    assert isinstance(found, Estimated | NotEstimated), found
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_a_loop_runs_as_often_wherever_its_length_comes_from(pool, chip):
    ways = ("prefetch", "whole", "blocked", "copied")
    found = [outcome(pool, chip, f"way={way}") for way in ways]
    assert all(isinstance(one, Estimated) for one in found), found
    busy = [one.estimate.explanation.mxu_us for one in found]
    assert busy == pytest.approx([busy[0]] * len(ways), rel=0.01)


def test_operations_of_known_turns_are_counted(pool):
    for way in ("prefetch", "whole"):
        found = outcome(pool, Chip.V5E, f"way={way}")
        assert isinstance(found, Estimated)
        assert found.estimate.flops == int(TURNS.sum()) * 2 * ROWS * 128 * 128
        assert not any("unknown length" in note for note in found.estimate.notes)


@pytest.mark.parametrize("way", ["prefetch", "whole", "blocked", "copied"])
def test_without_its_length_there_is_no_time(pool, way):
    found = outcome(pool, Chip.V5E, f"way={way}", "turns=unknown")
    assert isinstance(found, NotEstimated)
    assert "the contents of turns decide" in found.reason and "@lengths.npy" in found.reason
