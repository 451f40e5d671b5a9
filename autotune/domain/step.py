"""What a step of a model takes on a chip, and what that is made of."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, prod
from operator import add
from typing import Annotated

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.errors import InvalidInputError
from autotune.domain.explanation import ScheduledOperation
from autotune.domain.key import Chip, Toolchain
from autotune.domain.limits import Bytes, Count, Limit, Micros, Share, Text, Word

_MOST_CHIPS = 1024
_LEAST_SHARE = 0.002


def slice_bounds(text: str) -> tuple[int, ...]:
    """``2x4``: chips along each axis of a slice; none for an empty text. Raises
    ``InvalidInputError``."""
    if not text:
        return ()
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() and int(size) > 0 for size in sizes):
        raise InvalidInputError(f"{text!r} is no slice: write chips along each axis, as in 2x4")
    bounds = tuple(map(int, sizes))
    if prod(bounds) > _MOST_CHIPS:
        raise InvalidInputError(f"{text} is {prod(bounds):,} chips: at most {_MOST_CHIPS:,}")
    return bounds


class StepKind(StrEnum):
    """What a part of a step is, in the order in which it is shown."""

    KERNEL = "Pallas kernels"
    SPARSE = "SparseCore kernels (not timed)"
    PRODUCT = "products"
    ELEMENTWISE = "elementwise"
    COPY = "copies"
    COLLECTIVE = "collectives"
    HOST = "host transfers"
    START = "start of the program"


class Basis(StrEnum):
    """What the time of an operation is taken from, the best first."""

    SIMULATED = "its schedule"
    FLOPS = "its FLOPs"
    BYTES = "its bytes"
    LINKS = "the links"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """What the compiler made of a step. ``is_whole``: all code that it makes is known, of this run
    or of earlier ones; ``is_running``: it has not come to its end. ``hbm_bytes``: that the program
    needs on a device, arguments, results and temporaries; 0 where that is not known. ``devices``:
    that run it; ``bounds``: chips along each axis of the slice."""

    schedule: tuple[ScheduledOperation, ...]
    devices: int
    bounds: tuple[int, ...]
    is_whole: bool
    hbm_bytes: int
    is_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Operations of a kind, at one place of the model. ``scope``: as the model names it, ``line``:
    of its source, both may be empty. ``name``: of the longest of them. ``runs``: of all of them;
    ``time_us``: what they add to the step; ``hidden_us``: what runs beside others. ``error``: as a
    share of the time; ``flops`` and ``hbm_bytes``: of all runs."""

    kind: StepKind
    basis: Basis
    scope: Text = ""
    line: Text = ""
    name: Text = ""
    runs: Count
    time_us: Micros
    hidden_us: Micros = 0.0
    error: Share = 0.0
    flops: Annotated[int, Limit(least=0, most=10**30)] = 0
    hbm_bytes: Bytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The time of a step on one device, the sum of its ``parts``.

    ``error``: the time lies within that share of it for nine of ten steps; None where a kernel that
    sends to other devices is not simulated, where one is ``refused``, data decide its grid or it is
    for SparseCores, and where data decide how often a loop runs, each in ``undecided`` by its line:
    its body is counted once. ``refused``: for each reason a Pallas kernel that is not simulated for
    it. ``alternatives``: conditionals, of which the longest branch is counted.
    ``peak_flops_per_s`` and ``hbm_capacity_bytes``: of a device. ``is_whole`` and ``hbm_bytes`` as
    ``CompiledStep`` has them. ``tokens``: of a step on all devices, 0 where nobody has said.
    ``toolchain``: that has compiled it.
    """

    chip: Chip
    devices: Count
    chips: Count
    parts: Annotated[tuple[StepPart, ...], Limit(longest=100_000)]
    error: Share | None
    undecided: tuple[Text, ...]
    alternatives: Count
    peak_flops_per_s: float
    hbm_bytes: Bytes
    hbm_capacity_bytes: Bytes
    is_whole: bool
    model: Word
    tokens: OmitDefault[Count] = 0
    refused: OmitDefault[tuple[Text, ...]] = ()
    toolchain: OmitNone[Toolchain | None] = None

    @property
    def time_us(self) -> float:
        return fsum(part.time_us for part in self.parts)

    @property
    def flops_share(self) -> float:
        """Of the peak: the operations of its products by the time."""
        flops = sum(part.flops for part in self.parts)
        return flops / (self.time_us * self.peak_flops_per_s / 1e6) if self.time_us else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Of all devices."""
        return self.tokens / self.time_us * 1e6 if self.time_us else 0.0

    def share_us(self, basis: Basis) -> float:
        """Microseconds of the parts whose time is taken from it."""
        return fsum(part.time_us for part in self.parts if part.basis is basis)

    def sums(self, key: Callable[[StepPart], str]) -> list[tuple[str, float, float]]:
        """For each key the time and the hidden time of its parts, the longest first."""
        groups: dict[str, list[StepPart]] = {}
        for part in self.parts:
            groups.setdefault(key(part), []).append(part)
        rows = [(name, *_times(parts)) for name, parts in groups.items()]
        return sorted(rows, key=lambda row: -row[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What operations of a kind at a line of the model add to a step; of no ``line``, those of
    lines that add next to nothing."""

    kind: StepKind
    line: OmitDefault[Text] = ""
    before_us: Micros
    after_us: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedStep:
    """A step without tuned configs and with them, in short; ``error`` and ``toolchain`` of that
    with them, as ``Step`` has them."""

    chip: Chip
    devices: Count
    times: Annotated[tuple[StepTime, ...], Limit(longest=10_000)]
    error: Share | None
    toolchain: OmitNone[Toolchain | None] = None

    @property
    def before_us(self) -> float:
        return fsum(time.before_us for time in self.times)

    @property
    def after_us(self) -> float:
        return fsum(time.after_us for time in self.times)


def tuned_step(before: Step, after: Step) -> TunedStep:
    """What takes longest with tuned configs first."""
    sums: dict[tuple[StepKind, str], list[float]] = {}
    for side, step in enumerate((before, after)):
        for part in step.parts:
            sums.setdefault((part.kind, part.line), [0.0, 0.0])[side] += part.time_us
    listed: dict[tuple[StepKind, str], list[float]] = {}
    for (kind, line), both in sums.items():
        is_large = max(both) >= _LEAST_SHARE * max(before.time_us, after.time_us)
        of_place = listed.setdefault((kind, line if is_large else ""), [0.0, 0.0])
        of_place[:] = map(add, of_place, both)
    times = [
        StepTime(kind=kind, line=line, before_us=before_us, after_us=after_us)
        for (kind, line), (before_us, after_us) in listed.items()
    ]
    return TunedStep(
        chip=after.chip,
        devices=after.devices,
        times=tuple(sorted(times, key=lambda time: -time.after_us)),
        error=after.error,
        toolchain=after.toolchain,
    )


class StepChangeKind(StrEnum):
    """What became of operations. Those that are timed by other means in the two compiles, by their
    FLOPs and by their schedules, say nothing of the compiler."""

    NEW = "new"
    EXPOSED = "lost its overlap"
    SLOWER = "slower"
    FASTER = "faster"
    GONE = "gone"
    UNLIKE = "timed otherwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """Operations of a kind at one place of the model, in two compiles of a step. ``what``: became
    of them; ``name``: of the longest of them; ``before_us``, ``after_us``: what they add to it."""

    what: StepChangeKind
    kind: StepKind
    scope: Text
    line: Text
    name: Text
    before_us: Micros
    after_us: Micros

    @property
    def more_us(self) -> float:
        return self.after_us - self.before_us


def changes(before: Step, after: Step) -> list[StepChange]:
    """What takes longer or shorter, that which costs most first. Operations are compared by their
    kind and place: compilers name them anew."""
    sides = _by_place(before), _by_place(after)
    compared = [
        _change(*(side.get(place, ()) for side in sides)) for place in {**sides[0], **sides[1]}
    ]
    return sorted((c for c in compared if c.more_us), key=lambda change: -change.more_us)


def place_us(step: Step, change: StepChange, after: Step) -> float | None:
    """What operations of a step take that are of the kind and place of a change. None where there
    are none any more, and where they are not timed by the same means as ``after`` it."""
    place = change.kind, change.scope, _within(change.line)
    parts, others = (_by_place(each).get(place, ()) for each in (step, after))
    if not parts and change.what is StepChangeKind.NEW:
        return 0.0
    return _times(parts)[0] if _bases(parts) == _bases(others) else None


def _by_place(step: Step) -> dict[tuple[StepKind, str, str], list[StepPart]]:
    places: dict[tuple[StepKind, str, str], list[StepPart]] = {}
    for part in step.parts:
        places.setdefault((part.kind, part.scope, _within(part.line)), []).append(part)
    return places


def _within(line: str) -> str:
    """Its package: another environment has it elsewhere."""
    return line.rpartition("site-packages/")[2]


def _change(before: Sequence[StepPart], after: Sequence[StepPart]) -> StepChange:
    longest = max(after or before, key=lambda part: part.time_us)
    (before_us, hidden_us), (after_us, still_us) = _times(before), _times(after)
    more_us = after_us - before_us
    what = StepChangeKind.SLOWER if more_us > 0 else StepChangeKind.FASTER
    if 2 * (hidden_us - still_us) > more_us > 0:
        what = StepChangeKind.EXPOSED
    if _bases(before) != _bases(after):
        what = StepChangeKind.UNLIKE
    return StepChange(
        what=what if before and after else StepChangeKind.NEW if after else StepChangeKind.GONE,
        kind=longest.kind,
        scope=longest.scope,
        line=longest.line,
        name=longest.name,
        before_us=before_us,
        after_us=after_us,
    )


def _bases(parts: Iterable[StepPart]) -> set[Basis]:
    return {part.basis for part in parts}


def _times(parts: Iterable[StepPart]) -> tuple[float, float]:
    each = list(parts)
    return fsum(part.time_us for part in each), fsum(part.hidden_us for part in each)
