"""What a change to the source of a kernel saves, as the simulator computes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Annotated

from autotune.domain.change import SourceChange
from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.evidence import Verdict
from autotune.domain.limits import MOST_NAMES, Bytes, Count, Limit, Share, Text, Time, Word
from autotune.domain.profile import Cause, NamedPart, Profile, ProfileRow, SourceLine
from autotune.domain.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """``changes``: one, or several together. ``before_us``: None of a kernel that does not compile
    without them. ``margin``: the share by which two times must differ to be told apart.
    ``verdict``: of the gate on the changed kernel. ``diff``: empty where the source has no edit
    that is safe; ``same_program``: whether the edited source compiles to the program that was
    simulated, None where that could not be tried."""

    changes: Annotated[tuple[SourceChange, ...], Limit(longest=MOST_NAMES)]
    lines: Annotated[tuple[SourceLine, ...], Limit(longest=MOST_NAMES)]
    before_us: Time | None
    after_us: Time
    margin: Share
    verdict: Verdict
    diff: OmitDefault[Text] = ""
    same_program: OmitDefault[bool | None] = None

    @property
    def gain(self) -> float:
        """The share of the time that is saved; 1 where there was no time."""
        return 1.0 - self.after_us / self.before_us if self.before_us else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCost:
    """A call that does not tell XLA what it costs. ``change``: with the figures of this problem;
    ``diff``: empty where the source has no edit that leaves the kernel as it is."""

    change: SourceChange
    diff: OmitDefault[Text] = ""


_ROWS, _LANES = 8, 128  # of a vector register
_WORTH = 0.15  # of the time, for a line or a part to be named
_WAITS = (Cause.MATRIX_STALL, Cause.LANE_STALL, Cause.SPILL, Cause.HBM, Cause.LATENCY)
_ISSUES = ("VPU", "MXU", "XLU", "load/store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What needs thought: ``lines`` that wait for a ``cause``, or that keep one ``unit`` busy
    together; or a ``part`` of the time that has no line. ``cycles`` of one core; ``share`` of all
    of them. Or an ``operand`` whose last dimension leaves that ``share`` of 128 lanes empty, in
    VMEM and in HBM; it has no ``cycles``."""

    cause: OmitNone[Cause | None] = None
    part: OmitNone[NamedPart | None] = None
    unit: OmitDefault[Word] = ""
    operand: OmitDefault[Word] = ""
    lines: OmitDefault[Annotated[tuple[SourceLine, ...], Limit(longest=MOST_NAMES)]] = ()
    cycles: Bytes
    share: Share


def observations(profile: Profile) -> Iterator[Observation]:
    """The parts and lines of a call that take much of its time, and lines that share a unit."""
    units = dict[str, list[ProfileRow]]()
    for row in profile.folded():
        share = (row.total - row.steps) / profile.cycles
        if share < _WORTH:
            continue
        if row.part is not None:
            yield Observation(part=row.part, cycles=row.total, share=share)
            continue
        units.setdefault(row.unit, []).append(row)
        cause, cycles = max(row.cycles, key=lambda pair: pair[1])
        if cause in _WAITS:
            waits = cycles / profile.cycles
            yield Observation(cause=cause, lines=row.frames, cycles=cycles, share=waits)
    steps = sum(row.steps for row in profile.rows)
    if steps >= _WORTH * profile.cycles:
        yield Observation(part=NamedPart.PIPELINE, cycles=steps, share=steps / profile.cycles)
    for unit, rows in units.items():
        if len(rows) > 1 and unit in _ISSUES:
            lines = tuple(row.frames[-1] for row in rows)
            total = sum(row.total for row in rows)
            share = total / profile.cycles
            yield Observation(unit=unit, lines=lines, cycles=total, share=share)


def sparse_operands(trace: Trace) -> Iterator[Observation]:
    """Blocks of more than a register that fill half of its lanes, or fewer."""
    for call in trace.calls:
        for operand in call.operands:
            *rows, lanes = operand.block or (_LANES,)
            if operand.is_pipelined and prod(rows) > _ROWS and lanes <= _LANES // 2:
                yield Observation(operand=operand.name, cycles=0, share=1 - lanes / _LANES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``findings``: those that save the most first; ``together``: of several that go together.
    ``tried``: how many changes were compiled; ``wrong``: what saves time, and the gate refuses.
    ``reason``: why the kernel has no time without a change; empty where it has one.
    ``observations`` and ``costs``: of the kernel as it is."""

    time_us: Time | None
    findings: Annotated[tuple[SourceFinding, ...], Limit(longest=1_000)]
    together: SourceFinding | None
    wrong: Annotated[tuple[SourceFinding, ...], Limit(longest=1_000)]
    tried: Count
    reason: OmitDefault[Text] = ""
    observations: OmitDefault[Annotated[tuple[Observation, ...], Limit(longest=1_000)]] = ()
    costs: OmitDefault[Annotated[tuple[MissingCost, ...], Limit(longest=1_000)]] = ()
