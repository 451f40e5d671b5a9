"""What to change in a kernel: facts that need thought, and how they and findings are said."""

from dataclasses import replace
from types import SimpleNamespace

from autotune.domain.change import ChangeKind, Place, SourceChange
from autotune.domain.evidence import Proof, Standard, Verdict
from autotune.domain.finding import (
    Advice,
    MissingCost,
    SourceFinding,
    observations,
    sparse_operands,
)
from autotune.domain.profile import Cause, NamedPart, Profile, ProfileRow, SourceLine
from autotune.domain.trace import Operand
from autotune.wording.advice import advice_lines

DOT = SourceLine(file="/k.py", line=7, function="body", text="jnp.dot(x, y)")
SUM = SourceLine(file="/k.py", line=9, function="body", text="jnp.sum(x, axis=1)")
LOAD = SourceLine(file="/k.py", line=3, function="body", text="x = x_ref[...]")


def row(frame, **cycles):
    counted = tuple((Cause[name], n) for name, n in cycles.items())
    return ProfileRow(frames=(frame,), cycles=counted, runs=1)


def profile(*rows):
    cycles = sum(each.total for each in rows)
    return Profile(kernel="body", cycles=cycles, clock_hz=1e9, rows=rows)


STEPS = ProfileRow(part=NamedPart.PIPELINE, cycles=((Cause.SCALAR, 200),), runs=0)
CALL = profile(
    row(DOT, MATRIX=100, MATRIX_STALL=200),
    row(SUM, LANE=250, LANE_STALL=50),
    row(LOAD, MEMORY=100),
    row(SourceLine(file="/k.py", line=8, text="z @ y"), MATRIX=300),
    STEPS,
)


def finding(kind, before_us=10.0, **more):
    place = Place(file="/k.py", line=7, column=0, end_line=7, end_column=9)
    proof = Proof(standard=Standard.DEFAULT)
    return SourceFinding(
        changes=(SourceChange(kind=kind, place=place),),
        lines=(DOT,),
        before_us=before_us,
        after_us=8.0,
        margin=0.04,
        verdict=Verdict(ok=True, reason="3 runs of m=256", runs=3, proof=proof),
        **more,
    )


def said(**more):
    advice = Advice(time_us=10.0, together=None, tried=3, **{"findings": (), "wrong": (), **more})
    return list(advice_lines(advice))


def test_waits_shared_units_and_parts_are_facts_with_their_lines_and_cycles():
    assert said(observations=tuple(observations(CALL)))[2:] == [
        "What needs thought:",
        "  line 7 waits for the matrix unit: 17% of the time, 200 cycles: jnp.dot(x, y)",
        "  steps of the pipeline take 17% of the time, 200 cycles: larger blocks make fewer of "
        "them (autotune search)",
        "  line 7 and line 8 all use the MXU: 50% of the time, 600 cycles: none of them is faster "
        "beside the others",
    ]


def test_an_operand_that_leaves_lanes_empty_is_a_fact():
    lean = Operand(
        name="lse",
        is_output=True,
        shape=(8, 2048, 1),
        block=(1, 256, 1),
        dtype="float32",
        space="default",
        varies=(True, True),
        exclusive=(True, True),
        fetches=64,
        blocks=64,
        blocks_total=64,
        hbm_bytes=65536,
    )
    full = replace(lean, name="out", block=(1, 256, 128))
    (seen,) = sparse_operands(SimpleNamespace(calls=[SimpleNamespace(operands=(lean, full))]))
    assert said(observations=(seen,))[-1].startswith("  lse leaves 99% of the lanes empty")


def test_a_cost_that_is_missing_is_said_with_its_figures_and_diff():
    change = replace(finding(ChangeKind.COST_ESTIMATE).changes[0], value="8,0,64")
    lines = said(costs=(MissingCost(change=change, diff="+cost\n"),))
    text = "  cost_estimate=pl.CostEstimate(flops=8, transcendentals=0, bytes_accessed=64)"
    assert lines[-2:] == [text, "  +cost"]


def test_what_takes_little_time_is_no_fact():
    assert list(observations(profile(row(DOT, MATRIX=900), row(SUM, LANE_STALL=100)))) == []


def test_a_finding_says_what_it_was_compared_with_and_what_nobody_checked():
    lines = said(findings=(finding(ChangeKind.NO_BOUNDS_CHECKS, diff="--- a/k.py\n"),))
    assert "1. no bounds checks: 20.0% ± 4.0% of the time, 10.0 µs to 8.0 µs" in lines
    (checked,) = (line for line in lines if "Checked" in line)
    assert "agrees with the kernel as it is" in checked
    assert "Not checked: other numbers" in checked and "the file with the diff was not" in checked


def test_what_the_gate_refuses_is_left_out_with_its_reason():
    wrong = finding(ChangeKind.UNROLLED)
    refused = Verdict(ok=False, reason="output 0 is wrong")
    lines = said(wrong=(SourceFinding(**{**_fields(wrong), "verdict": refused}),))
    assert lines[-2].startswith("Left out: an unrolled loop (line 7) saves 20.0%")
    assert "output 0 is wrong" in lines[-1]


def test_what_compiles_only_so_says_so():
    lines = said(findings=(finding(ChangeKind.WIDE_SUM, None),), reason="acc must be 32-bit")
    assert "It has no time as it is: acc must be 32-bit" in lines
    assert any("it compiles, and takes 8.0 µs ± 4%" in line for line in lines)


def _fields(value):
    return {name: getattr(value, name) for name in SourceFinding.__dataclass_fields__}
