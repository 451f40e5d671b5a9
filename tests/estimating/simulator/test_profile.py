"""Profiles by line of source: all of the estimate, and each line what it is known to cost."""

import base64
import gzip
import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain.explanation import FILL, HBM, ISSUE, LANES, LATENCY, LINKS, MATRIX, SCALAR
from autotune.domain.profile import Cause, NamedPart, SourceLine
from autotune.estimating.simulator import NotSimulated, simulate
from autotune.estimating.simulator.bundles import Operation, all_operations, is_vector, parse
from autotune.estimating.simulator.constants import load
from autotune.estimating.simulator.drawing.picture import SHARE
from autotune.estimating.simulator.drawing.timeline import timeline
from autotune.estimating.simulator.lowering import number
from autotune.estimating.simulator.profiling.attribution import profile, purposes
from autotune.estimating.simulator.profiling.locations import Location, carry, frames, read_lines
from autotune.estimating.simulator.run import record
from tests.recorded.record import FOLDER
from tests.samples import known_costs, recordings

KERNEL = Path(known_costs.__file__).read_text().splitlines()
LABELS = {n: line.partition("  # ")[2] for n, line in enumerate(KERNEL, 1) if "  # " in line}
OWN = {  # opcodes that only one line has
    "transpose": r"vxpose|vpop\.trf",
    "exponential": r"vpow2|vexp2",
    "row maximum": r"vmax|vpop\.xlane",
    "product": r"vmat|vpop\.f32\.mr",
}
ISSUED = (Cause.VECTOR, Cause.MATRIX, Cause.LANE, Cause.MEMORY, Cause.SPILL)


def recorded(path):
    row = json.loads(gzip.decompress(path.read_bytes()))
    return {**row, "module": base64.b64decode(row["module"]), "chip": path.name.split("-")[1][:3]}


@pytest.fixture(scope="module", params=sorted((FOLDER / "lines").iterdir()), ids=lambda p: p.name)
def kernel(request):
    return recorded(request.param)


def lines_of(kernel, hidden=()):
    direct = read_lines(kernel["module"])
    shown = {n: chain for n, chain in direct.items() if n not in hidden}
    return direct, carry(shown, kernel["passes"])


def profiled(kernel, maps=None):
    known = {n: frames(c, lambda _: KERNEL) for n, c in lines_of(kernel)[1].items()}
    given = {"chip": kernel["chip"], "libtpu": kernel["libtpu"], "maps": maps}
    return profile(kernel["listing"], known, kernel="known costs", **given)


def test_a_line_has_its_part_of_a_step(kernel):
    """The kernel's steps are alike, but where its pipeline fills and drains."""
    lines = {n: frames(c, lambda _: KERNEL) for n, c in lines_of(kernel)[1].items()}
    result = profiled(kernel)
    given = {"chip": kernel["chip"], "libtpu": kernel["libtpu"], "file": result.file}
    picture = timeline(kernel["listing"], lines, **given)
    cycles = {
        track.line: sum(s.details[SHARE] * (s.end_us - s.begin_us) for s in track.slices)
        * result.clock_hz
        / 1e6
        for track in picture.tracks
        if track.line
    }
    rows = {row.frames[-1]: row.total / picture.steps for row in result.folded() if row.frames}
    assert cycles == pytest.approx(rows, rel=0.05, abs=0.01 * result.cycles / picture.steps)


def by_cause(result):
    cycles = Counter()
    for row in result.rows:
        for cause, count in row.cycles:
            cycles[FILL if row.part == NamedPart.FILL else cause] += count
    return cycles


def same_as(result, simulation):
    """Whether parts of a simulation are causes of a profile, but for the rounding of each."""
    cycles, parts = by_cause(result), simulation.parts
    sums = {ISSUE: sum(cycles[cause] for cause in ISSUED), FILL: cycles[FILL]}
    sums[SCALAR] = cycles[Cause.SCALAR] + cycles[Cause.EMPTY] + cycles[Cause.STEPS]
    for part in (MATRIX, LANES, HBM, LATENCY, *({LINKS} & parts.keys())):
        sums[part] = cycles[Cause(part.value)]
    close = pytest.approx(parts, rel=1e-4, abs=len(result.rows) + 2)
    return result.cycles == simulation.cycles_shared == sum(cycles.values()) and sums == close


@pytest.mark.parametrize("name", recordings.usual(recordings.names()))
def test_the_parts_of_every_recorded_listing_add_up_to_its_estimate(name):
    text, chip, version = (f(name) for f in (recordings.text, recordings.chip, recordings.libtpu))
    simulation = simulate(text, chip=chip, libtpu=version)
    result = profile(text, {}, kernel=name, chip=chip, libtpu=version)
    if isinstance(simulation, NotSimulated):
        assert result == simulation
    else:
        assert same_as(result, simulation)


def test_lines_take_nothing_away_from_the_estimate(kernel):
    result = profiled(kernel)
    assert same_as(
        result, simulate(kernel["listing"], chip=kernel["chip"], libtpu=kernel["libtpu"])
    )
    assert sum(row.total for row in result.folded()) == result.cycles


def index_maps():
    """As the kernel has them, by number of the operand."""
    row, other, turned = "row = pl.BlockSpec", "in_specs=[row,", "out_specs=[row,"
    texts = (row, other, row, turned)
    numbers = [next(n for n, line in enumerate(KERNEL, 1) if text in line) for text in texts]
    places = enumerate(Location(known_costs.__file__, n, n) for n in numbers)
    return {n: frames((place,), lambda _: KERNEL) for n, place in places}


def test_index_maps_take_what_was_the_pipelines_alone(kernel):
    """Nothing of the estimate, and no operation on vectors of a line."""
    plain, result = profiled(kernel), profiled(kernel, index_maps())
    chip, version = kernel["chip"], kernel["libtpu"]
    assert same_as(result, simulate(kernel["listing"], chip=chip, libtpu=version))
    maps, (before, after) = set(index_maps().values()), map(cycles_of, (plain, result))
    moved = sum(after[owner, Cause.STEPS] for owner in maps)
    assert moved == sum(row.steps for row in result.rows if row.frames)
    known, listing = load(chip, version), parse(kernel["listing"])
    walks = [record(listing, each, {}, 64) for each in (known, replace(known, step_cycles=0.0))]
    beside = walks[0].final[0] - walks[1].final[0]  # of the pipeline's steps, on v7x alone
    assert beside == walks[0].passes * (304 if chip == "v7x" else 0)
    left, was = (
        sum(row.total for row in made.rows if row.part == NamedPart.PIPELINE) - beside
        for made in (result, plain)
    )
    assert 2 * left < was < left + 1.2 * moved
    vectors = {key: n for key, n in before.items() if key[1] in ISSUED}
    assert {key: after[key] for key in vectors} == pytest.approx(vectors, abs=2)


def cycles_of(result):
    return Counter({(row.frames, cause): n for row in result.rows for cause, n in row.cycles})


def test_a_buffer_is_for_the_operand_that_libtpu_names(kernel):
    """Its windows are named in the first text of a pass, which is not asked for that."""
    maps, text = index_maps(), kernel["listing"]
    maps[2] = (SourceLine(file="other.py", line=1),)  # another than that of the first operand
    tag = r"(#allocation\d+) \[.*?tag = '(input|output) window allocation for operator \w+ (\d)"
    windows = {
        buffer: maps[int(n) + 2 * (kind == "output")]
        for buffer, kind, n in re.findall(tag, kernel["passes"][0])
    }
    operations = [o for bundle in all_operations(text) for o in bundle]
    named = {number(o.name): maps[o.number] for o in parse(text).operands}
    served = purposes(text, operations, {}, named)
    asked = [
        (served[number(operation.name)], {windows[buffer[1]]})
        for operation in operations
        if not is_vector(operation.opcode)
        and (buffer := re.search(r"\[(#allocation\d+)[\] ]", operation.text))
        and buffer[1] in windows
    ]
    assert len(asked) >= 4 and all(given == right for given, right in asked)


def test_a_check_is_for_its_copy_and_what_decides_the_loop_for_no_line():
    line, index_map = ((SourceLine(file="kernel.py", line=n),) for n in (1, 2))
    operations = [
        Operation("%s1_s0", "inlined_call_operand.hbm", ""),
        Operation("%s2_s1", "sphi", "0, %s3_s1"),
        Operation("%s3_s1", "sadd.s32", "1, %s2_s1"),
        Operation("%p4_p0", "scmp.ge.s32", "%s3_s1, 8"),
        Operation("%s5_s2", "sand.u32", "1, %s8_s9"),  # libtpu gives it a line of the body
        Operation("%s8_s9", "sadd.s32", "1, %s9_s9"),
        Operation("%s6_s3", "scalar_lea.sflag", "[#allocation2], %s5_s2"),
        Operation("%s7_s4", "scalar_lea.hbm", "%s1_s0, %s9_s9"),
        Operation("%9_s9", "sshll.u32", "%s2_s1, 4"),
        Operation("%10", "dma.hbm_to_vmem", "%s7_s4, 64, [#allocation1], %s6_s3"),
        Operation("%s11_s5", "scalar_lea.sflag", "[#allocation2], %s5_s2"),
        Operation("%12", "dma.done.wait", "%s11_s5, 64"),
        Operation("%s13_s6", "scalar_lea.hbm", "%s20_s7, %s9_s9"),
        Operation("%p14_p1", "scmp.ne.s32", "%s13_s6, 99"),
        Operation("%15", "shalt.err", "(!%p14_p1)"),
        Operation("%16", "dma.hbm_to_vmem", "%s13_s6, 64, [#allocation9], [#allocation8]"),
        Operation("%17", "sbr.rel", "(!%p4_p0) target = $region1"),
        Operation("%p18_p2", "scmp.eq.s32", "%s2_s1, 0"),
        Operation("%19", "sbr.rel", "(%p18_p2) target = $region2"),
    ]
    text = (
        "%15 = shalt.err (!%p14_p1) /* BoundsCheck 0 [deref of %s13] for %16 = dma.hbm_to_vmem */"
    )
    served = purposes(text, operations, {5: line, 16: line, 18: line}, {1: index_map})
    for_map, for_line = (
        {n for n, each in served.items() if own in each} for own in (index_map, line)
    )
    assert for_map == {1, 5, 6, 7, 8, 9, 10, 11, 12} and for_line == {9, 13, 14, 15, 16, 18, 19}


def test_an_operation_has_the_line_that_it_is_made_for(kernel):
    """Its opcode says which that is; what libtpu says itself is not asked."""
    direct, lines = lines_of(kernel)
    right = Counter()
    for bundle in all_operations(kernel["listing"]):
        for operation in bundle:
            label = next((n for n, own in OWN.items() if re.match(own, operation.opcode)), None)
            n = number(operation.name)
            if label and n not in direct:
                chain = frames(lines[n], lambda _: KERNEL)
                said = LABELS.get(chain[-1].line) or LABELS.get(chain[0].line, "")
                right[label, said.endswith(label) or label in said] += 1
    wrong = sum(count for (_, is_right), count in right.items() if not is_right)
    assert wrong <= 0.1 * right.total() and right.total() > 40, right


def test_hidden_lines_come_back(kernel):
    direct, _ = lines_of(kernel)
    hidden = set(random.Random(0).sample(sorted(direct), len(direct) // 10))
    _, lines = lines_of(kernel, hidden)
    there = {number(o.name) for bundle in all_operations(kernel["listing"]) for o in bundle}
    asked = hidden & there
    right = sum(n in lines and lines[n][0].first == direct[n][0].first for n in asked)
    assert right >= 0.9 * len(asked) > 10, (right, len(asked))


def test_calls_that_jax_took_from_its_cache_are_not_believed():
    """A second use of a jitted function has the calls of the first behind its own line."""
    source = ["def body(x):", "    y = helper(x)", "    return other(y)", "def helper(x):", "    x"]
    places = {n: Location("kernel.py", n, n) for n in (2, 3, 5)}

    def lines(*numbers):
        return [line.line for line in frames(tuple(places[n] for n in numbers), lambda _: source)]

    assert lines(2, 5) == [2, 5]
    assert lines(3, 5) == lines(3, 2, 5) == [3]
    assert lines(5) == [5]


def test_what_cannot_be_read_is_its_line_alone():
    place = Location("/nowhere/kernel.py", 7, 7)
    (line,) = frames((place, place))
    assert (line.line, line.text, line.function) == (7, "", "")
