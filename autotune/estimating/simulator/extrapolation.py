"""A long run from its first passes: when they have settled, and what the rest adds."""

from __future__ import annotations

from typing import NamedTuple

from autotune.estimating.simulator.bundles import DYNAMIC_BOUND, Listing
from autotune.estimating.simulator.dma import RunningTotals, Timeline
from autotune.estimating.simulator.lowering import Event

PIPELINE_STAGES = 2  # the pipelined grid loop runs this many more times than the grid has steps

# Passes of the outer loop after which a run may stop, the next where it has not settled: kernels
# whose work depends on the step (a causal mask) have a longer period than their innermost axis.
STAGES = (2_100, 18_000, 150_000)

SETTLED = 0.003  # periods of one run that differ by less are the same
UNSETTLED = 0.1  # those that differ by more say nothing of the passes that were not run


class Recording(NamedTuple):
    """The walk of a kernel: its events, and what is left after an early stop."""

    events: list[Event]
    final: Event
    passes: int  # of the outer loop, run whole
    passes_left: int | None  # None: the walk reached the end

    def grid_steps(self, listing: Listing) -> int:
        """The grid's own steps where the outer loop is the pipelined grid, else its passes."""
        passes = self.passes + (self.passes_left or 0)
        return max(passes - PIPELINE_STAGES if listing.pipelined else passes, 1)


def finish(line: Timeline, recording: Recording, listing: Listing) -> RunningTotals:
    """Return the totals of the whole run, extrapolated where the walk stopped early.

    ``total = t + passes left * mean pass over the last period``, from a pass that lies whole
    periods before the end, so that counts and bytes come out exact
    (docs/explanation/simulator.md: large grids). The last but one pass of the pipelined grid
    computes the last step and reads nothing; the last only waits for the last write, which is
    neglected.
    """
    turns = _turns(line, recording, listing)
    if turns is None:
        return line.end
    points, (first, start, last, times) = line.points, turns
    here, before, after = points[start], points[first], points[last]
    tail = after._replace(reads=here.reads, read_bytes=here.read_bytes)
    columns = zip(here, before, tail, strict=True)
    return RunningTotals(*(last + times * (now - then) for now, then, last in columns))


class _Turns(NamedTuple):
    """After the point ``last`` a run goes on as from ``first`` to ``start``, so many ``times``."""

    first: int
    start: int
    last: int
    times: int


def _turns(line: Timeline, recording: Recording, listing: Listing) -> _Turns | None:
    """None for a run that reached its end."""
    if recording.passes_left is None:
        return None
    points, drain = line.points, PIPELINE_STAGES if listing.pipelined else 0
    period = _period(listing.grid, len(points))
    end = recording.passes + recording.passes_left - drain
    latest = len(points) - 1 - bool(drain)
    start = latest - (latest - end) % period
    return _Turns(start - period, start, start + bool(drain), (end - start) // period)


def weights(line: Timeline, recording: Recording, listing: Listing) -> list[int]:
    """How often each section of the walk is in the whole run, as ``finish`` counts it. Section 0 is
    before the outer loop, section n + 1 its pass n."""
    sections = range(len(line.points) + 1)
    turns = _turns(line, recording, listing)
    if turns is None:
        return [1 for _ in sections]
    first, start, last, times = turns
    return [(n <= last) + times * (first < n <= start) for n in sections]


def _period(grid: tuple[int, ...], passes: int) -> int:
    """Return the largest product of innermost grid bounds that was seen twice."""
    period = 1
    for bound in reversed(grid):
        if bound == DYNAMIC_BOUND or 2 * (period * bound + 1) > passes:
            break
        period *= bound
    return period if period > 1 else max(1, passes // 2 - 1)


def drift(line: Timeline, recording: Recording, listing: Listing) -> float:
    """Return by how much the last period of an early stop differs from the ones before: relative,
    0.0 for a run that reached its end."""
    if recording.passes_left is None:
        return 0.0
    points = line.points
    period = _period(listing.grid, len(points))
    ends = range(len(points) - 1, period, -period)
    cycles = [points[end].cycles - points[end - period].cycles for end in ends]
    seen = cycles[: max(2, len(cycles) // 2)]  # the first ones fill the pipeline
    return max(seen) / min(seen) - 1 if min(seen) > 0 else 0.0


def notes(recording: Recording, drift: float) -> list[str]:
    """What has to be said of an extrapolation."""
    if recording.passes_left is None:
        return []
    unsettled = f", whose periods differ by {drift:.1%}" if drift > SETTLED else ""
    return [f"extrapolated from the first {recording.passes} passes of the outer loop{unsettled}"]
