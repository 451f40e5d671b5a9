"""Pictures of recorded listings: they tell the same as the simulation, in slices that fit."""

import functools
import json
from collections import defaultdict
from itertools import pairwise

import pytest

from autotune.domain.explanation import HBM, ISSUE, LANES, LATENCY, MATRIX, SCALAR
from autotune.domain.profile import Cause, NamedPart
from autotune.estimating.simulator import NotSimulated
from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    CORE,
    ISSUED_IN,
    SHARE,
    STEPS,
    trace_json,
)
from autotune.estimating.simulator.drawing.timeline import timeline
from tests.samples import recordings

ISSUED = (Cause.VECTOR, Cause.MATRIX, Cause.LANE, Cause.MEMORY, Cause.SPILL)
PARTS = (ISSUE, SCALAR, MATRIX, LANES, HBM, LATENCY)
NEED_SCALARS = ("dyn", "gather", "gmm", "paged", "ploop")  # but v7x gathers without them
DRAWN = [
    name for name in recordings.names() if not any(f"-{what}" in name for what in NEED_SCALARS)
]
LONG = "v5e-0.10.2-mm_8192_8192_8192_128_128_128"
SMALL = "v5e-0.10.2-mm_1024_1024_1024_128_128_128"


@functools.cache
def draw(name, **options):
    version = recordings.libtpu(name)
    text, chip = recordings.text(name), recordings.chip(name)
    found = timeline(text, {}, chip=chip, libtpu=version, **options)
    assert not isinstance(found, NotSimulated), found
    return found


def track(picture, name):
    return next(track.slices for track in picture.tracks if track.name == name)


def shown(picture):
    return [s for s in track(picture, STEPS) if not s.name.endswith("not shown")]


@pytest.mark.parametrize("name", recordings.usual(DRAWN))
def test_the_core_does_in_a_step_what_the_simulation_counts(name):
    """Issue, stalls and waits fill each step without a gap, and add up part by part."""
    picture = draw(name)
    for step in shown(picture):
        inside = [
            s
            for s in track(picture, CORE)
            if step.begin_us - 1e-9 <= s.begin_us and s.end_us <= step.end_us + 1e-9
        ]
        assert inside[0].begin_us == pytest.approx(step.begin_us)
        assert inside[-1].end_us == pytest.approx(step.end_us)
        assert all(one.end_us == two.begin_us for one, two in pairwise(inside))
        for part in PARTS:
            spent = sum(time_of(part, s) for s in inside)
            counted = step.details.get(f"{part}, µs", 0.0)
            assert spent == pytest.approx(counted, rel=0.002, abs=0.002), part


def time_of(part, piece):
    causes = {ISSUE: ISSUED, SCALAR: (Cause.SCALAR, Cause.EMPTY)}.get(part, (part,))
    return sum(piece.details.get(f"{cause}, µs", 0.0) for cause in causes)


@pytest.mark.parametrize("name", recordings.usual(DRAWN))
def test_the_dmas_of_a_step_move_its_bytes(name):
    picture = draw(name)
    moved = defaultdict(int)
    for t in picture.tracks:
        if t.name.startswith("HBM "):
            for s in t.slices:
                moved[s.details.get(ISSUED_IN)] += s.details.get(BYTES, 0)
    for step in shown(picture):
        assert moved[step.name] == step.details["bytes read"] + step.details["bytes written"]


@pytest.mark.parametrize("name", recordings.usual(DRAWN))
def test_the_whole_lasts_as_long_as_the_simulation_says(name):
    picture, simulation = draw(name), recordings.run(name)
    assert picture.total_us == pytest.approx(simulation.us_shared)
    assert picture.steps == simulation.steps
    steps = track(picture, STEPS)
    assert steps[0].begin_us == 0
    assert 0 < steps[-1].end_us <= picture.total_us * 1.001
    for one, two in pairwise(steps):
        assert one.end_us == two.begin_us


def test_a_small_matmul_shows_its_first_and_last_steps():
    picture = draw(SMALL, steps=2)
    assert [s.name for s in track(picture, STEPS)] == [
        "before the loop",
        "first reads",
        "step 0",
        "step 1",
        "step 2 to step 509, not shown",
        "step 510",
        "step 511",
        "last writes",
    ]
    assert track(picture, STEPS)[3].details["grid index"] == "(0, 0, 1)"
    assert track(picture, STEPS)[-2].details["grid index"] == "(7, 7, 7)"
    first = track(picture, "HBM reads 1")
    assert [s.name for s in first[:3]] == ["read 32 KiB", "transfer", "latency"]
    assert picture.notes == ()


def test_an_extrapolated_run_says_that_its_end_is_not_the_end():
    picture = draw(LONG)
    assert track(picture, STEPS)[-1].end_us < picture.total_us / 50
    assert "first 2100 of 262146 passes" in picture.notes[0]
    assert "last simulated" in picture.notes[0]


def test_what_cannot_be_simulated_is_not_drawn():
    found = timeline(recordings.text("v5e-0.10.2-gather_16_1024_512"), {}, chip="v5e")
    assert isinstance(found, NotSimulated)
    assert "scalar operand 0" in found.reason
    assert isinstance(timeline("nonsense", {}, chip="v5e"), NotSimulated)
    assert isinstance(timeline("nonsense", {}, chip="v3"), NotSimulated)


@pytest.mark.parametrize("name", recordings.usual(DRAWN))
def test_the_trace_file_holds_complete_events_that_nest_for_perfetto(name):
    """Perfetto takes ``int(ts * 1000)`` and ``int(dur * 1000)`` as nanoseconds."""
    trace = json.loads(trace_json([("one", draw(name)), ("two", draw(name))]))
    threads, named = defaultdict(list), set()
    for event in trace["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            named |= {place} if event["name"] == "thread_name" else set()
            continue
        assert event["ph"] == "X"
        begin, length = int(event["ts"] * 1000), int(event["dur"] * 1000)
        assert begin >= 0
        assert length >= 0
        threads[place].append((begin, begin + length))
    assert set(threads) <= named
    assert {pid for pid, _ in threads} == {1, 2}
    for slices in threads.values():
        ends = []
        for begin, end in slices:
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)


@pytest.mark.parametrize("name", recordings.usual(DRAWN))
def test_the_lines_of_a_step_fill_it(name):
    """Each cycle of the core is charged to one line, or to several that share it."""
    picture = draw(name)
    step = next(s for s in track(picture, STEPS) if s.name == picture.step)
    charged = sum(
        s.details[SHARE] * (s.end_us - s.begin_us)
        for t in picture.tracks
        if t.line or t.name in list(NamedPart)
        for s in t.slices
    )
    assert charged == pytest.approx(step.end_us - step.begin_us, rel=0.002, abs=0.002)
