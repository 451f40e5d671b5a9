"""When a long run may stop early, and what its rest adds."""

import pytest

from autotune.estimating.simulator.bundles import Listing
from autotune.estimating.simulator.dma import Fill, RunningTotals, Timeline
from autotune.estimating.simulator.extrapolation import SETTLED, Recording, drift, finish, notes
from tests.samples import recordings

CAUSAL = "v6e-0.10.2-causal_1_4_8192_128_128_128"  # 4 heads of 64 x 64 blocks, half of them skipped
ZERO = RunningTotals(*[0.0] * len(RunningTotals._fields))


def run(steps, left):
    """A run whose passes take these cycles, ``left`` of them not walked."""
    points, clock = [ZERO], 0.0
    for cycles in steps:
        clock += cycles
        points.append(ZERO._replace(cycles=clock))
    line = Timeline(tuple(points), points[-1], Fill(0, 0))
    return line, Recording([], (clock, 0, 0, 0, ()), len(steps), left)


def listing(*grid):
    return Listing(bundles=(), operands=(), grid=grid, pipelined=False, spill_bundles=0)


def test_equal_periods_are_settled_and_the_rest_is_as_many_of_them():
    line, recording = run([500, *[10, 20, 30, 40] * 5], left=8)
    assert drift(line, recording, listing(7, 4)) == 0.0
    assert finish(line, recording, listing(7, 4)).cycles == pytest.approx(500 + 5 * 100 + 2 * 100)


def test_periods_that_grow_are_not_settled_and_it_is_said():
    line, recording = run([float(n) for n in range(40, 80)], left=100)
    found = drift(line, recording, listing(100, 4))
    assert found > SETTLED
    assert f"whose periods differ by {found:.1%}" in notes(recording, found)[0]


def test_a_run_to_its_end_has_no_drift_and_no_note():
    line, recording = run([float(n) for n in range(1, 40)], left=None)
    assert drift(line, recording, listing(40)) == 0.0
    assert notes(recording, 0.0) == []


def test_a_causal_mask_is_walked_until_whole_heads_repeat():
    """Rows of blocks get longer down to the diagonal: stopping within the first head is wrong."""
    whole, settled = recordings.run_to(CAUSAL, 10**6), recordings.run(CAUSAL)
    assert settled.cycles_shared == pytest.approx(whole.cycles_shared, rel=0.002)
    with pytest.raises(AssertionError, match="periods still differ"):
        recordings.run_to(CAUSAL, 1000)
