"""How profiles by line of source are printed."""

import pytest

from autotune.compiling.protocol import Profiled
from autotune.domain.errors import AutotuneError
from autotune.domain.outcome import CompileFailed
from autotune.domain.profile import Cause, NamedPart, Profile, ProfileNote, ProfileRow, SourceLine
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.wording.profile import config_profile, print_profiles

DOT = SourceLine(file="/k/kernel.py", line=7, function="body", text="y = helper(x)")
LOAD = SourceLine(file="/k/kernel.py", line=3, function="body", text="x = x_ref[...]")
HELPER = SourceLine(file="/k/other.py", line=20, function="helper", text="return jnp.dot(x, x)")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def row(frames, runs=4, **cycles):
    counted = tuple((Cause[name], n) for name, n in cycles.items())
    return ProfileRow(frames=frames, cycles=counted, runs=runs)


def made(wait=4_000, note=ProfileNote.NOTHING):
    rows = (
        row((DOT, HELPER), MATRIX=3_000, MATRIX_STALL=2_000),
        row((DOT,), VECTOR=500),
        row((LOAD,), MEMORY=500),
        ProfileRow(part=NamedPart.PIPELINE_WAITS, cycles=((Cause.HBM, wait),), runs=0),
    )
    cycles = sum(each.total for each in rows)
    return Profile(kernel="body", cycles=cycles, clock_hz=1e9, rows=rows, note=note)


def printed(capsys, named, **options):
    named = [ConfigProfile(name=name, calls=tuple(calls)) for name, calls in named]
    print_profiles(named, **options)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_lines_stand_in_the_order_of_the_source_with_what_they_call_folded(capsys):
    lines = printed(capsys, [("default", [made()])])
    assert "body, default: 10.0 µs, 10,000 cycles of a core, 60% on a line" in lines
    assert "share cycles vector matrix ld/st ~matrix ~HBM runs busy line source" in lines
    assert "5.0% 500 500 4 load/store 3 x = x_ref[...]" in lines
    assert "55.0% 5.5k 500 3k 2k 4 MXU 7 y = helper(x)" in lines
    assert "40.0% 4k 4k HBM DMA waits of the pipeline" in lines
    assert "source: /k/kernel.py" in lines
    assert not any("other.py" in line for line in lines)


def test_of_two_what_differs_the_most_comes_first(capsys):
    lines = printed(
        capsys, [("one", [made()]), ("two", [made(wait=1_000, note=ProfileNote.NO_LINES)])]
    )
    assert "against two: 7.0 µs, 7,000 cycles of a core, 86% on a line" in lines
    assert lines[lines.index("first µs other µs difference busy busy line source") + 2] == (
        "4.00 1.00 -3.00 HBM HBM DMA waits of the pipeline"
    )
    assert "this libtpu names no lines of source: what has a name is named" in lines


def test_what_has_no_profile_says_why():
    refused = Profiled("", (), "body: its loop depends on data")
    failed = CompileFailed(reason="it does not compile")
    for answer, reason in ((refused, "its loop depends on data"), (failed, "does not compile")):
        with pytest.raises(AutotuneError, match=f"default has no profile: .*{reason}"):
            config_profile("default", answer, None)
