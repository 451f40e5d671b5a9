"""A profile by hand."""

from autotune.domain.explanation import OperationTime
from autotune.domain.profile import Cause, NamedPart, Profile, ProfileRow, SourceLine
from autotune.estimating.simulator.drawing.picture import (
    STEPS,
    ConfigProfile,
    Picture,
    TraceSlice,
    Track,
)

EVIL = '</td><script>alert("1")</script>\x1b[2J & ;x'
LINE = SourceLine(file="/a b/<k>.py", line=7, function="body", text=EVIL)
HELPER = SourceLine(file="/other/helper.py", line=20, function="helper", text="return x")


def profiled(name="m=8", cycles=3000):
    """Of one call, with a helper in another file, and texts that try to be more than text."""
    rows = (
        ProfileRow(
            frames=(LINE, HELPER),
            cycles=((Cause.MATRIX, cycles), (Cause.MATRIX_STALL, 500)),
            runs=4,
        ),
        ProfileRow(frames=(LINE,), cycles=((Cause.VECTOR, 40),), runs=4),
        ProfileRow(part=NamedPart.PIPELINE, cycles=((Cause.SCALAR, 100),), runs=1),
    )
    call = Profile(kernel="kernel; one", cycles=cycles + 640, clock_hz=1e9, rows=rows)
    strip = [TraceSlice("matrix issue", 1.0, 1.5, {"operations": {"vmatmul": 8}})]
    tracks = (
        Track(STEPS, [TraceSlice("step 0", 1.0, 3.0, {})]),
        Track("core", [TraceSlice("vector and matrix issue", 0.0, 4.0, {"line": EVIL})]),
        Track(f"<k>.py:7 {EVIL}", strip, LINE),
    )
    picture = Picture(tracks=tracks, steps=1, total_us=4.0, notes=("n<b>",), step="step 0")
    copy = OperationTime(name="copy.1", opcode="copy", runs=1, time_us=2.0, hbm_bytes=8)
    return ConfigProfile(
        name=name, calls=(call,), pictures=(picture,), around=((copy, "/other/helper.py:20"),)
    )
