"""How long each call of a program took on the device, from the planes of a profile: or why not.

On a TPU a device has a plane ``/device:TPU:n``: its line ``XLA Modules`` has one event for each run
of a program, ``XLA Ops`` what ran within, nested scopes and the two halves of asynchronous copies
included. The time of a call is the union of the intervals of its operations; with several devices
the longest. A GPU's plane has a line for each stream, whose events name their module.

``jax.profiler.ProfileData`` reads the same bytes (``*.xplane.pb``), but cuts durations to whole
nanoseconds and gives starts as floats of nanoseconds since 1970, which are 256 ns apart: too coarse
for a kernel of microseconds. So the few fields that are needed are read here, in picoseconds. Field
numbers are those of ``tsl/profiler/protobuf/xplane.proto``.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.domain.evidence import NotMeasured
from autotune.domain.protobuf import Field, read_fields

_MODULE_STAT = "hlo_module"


class UnreadableProfileError(Exception):
    """The bytes are no XSpace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``module``: the HLO module that it names, empty where it names none (TPU)."""

    name: str
    start_ps: int
    duration_ps: int
    module: str = ""

    @property
    def end_ps(self) -> int:
        return self.start_ps + self.duration_ps


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    name: str
    lines: tuple[Line, ...]


def planes(serialized: bytes) -> list[Plane]:
    """All planes, in the order of the file. Raises ``UnreadableProfileError``."""
    try:
        return [_plane(value) for number, value in read_fields(serialized) if number == 1]
    except (IndexError, ValueError, TypeError) as error:
        raise UnreadableProfileError(f"the profile cannot be read: {error}") from error


def _plane(data: int | bytes) -> Plane:
    fields = list(read_fields(data))
    events = dict(_entry(value) for number, value in fields if number == 4)
    stats = dict(_entry(value) for number, value in fields if number == 5)
    return Plane(
        name=_text(_last(fields, 2, b"")),
        lines=tuple(_line(value, events, stats) for number, value in fields if number == 3),
    )


def _entry(data: int | bytes) -> tuple[int, str]:
    """One entry of a map from an id to metadata: the id and the name."""
    fields = list(read_fields(data))
    return _int(_last(fields, 1, 0)), _text(_last(list(read_fields(_last(fields, 2, b""))), 2, b""))


def _line(data: int | bytes, names: Mapping[int, str], stats: Mapping[int, str]) -> Line:
    fields = list(read_fields(data))
    origin_ps = _signed(_last(fields, 3, 0)) * 1000
    events = [_event(value, names, stats, origin_ps) for number, value in fields if number == 4]
    return Line(name=_text(_last(fields, 2, b"")), events=tuple(events))


def _event(
    data: int | bytes, names: Mapping[int, str], stats: Mapping[int, str], origin_ps: int
) -> Event:
    fields = list(read_fields(data))
    return Event(
        name=names.get(_int(_last(fields, 1, 0)), ""),
        start_ps=origin_ps + _signed(_last(fields, 2, 0)),
        duration_ps=_signed(_last(fields, 3, 0)),
        module=next((m for n, v in fields if n == 4 and (m := _module(v, stats))), ""),
    )


def _module(data: int | bytes, names: Mapping[int, str]) -> str:
    """The text of a stat, itself or by reference, when it names the HLO module; else nothing."""
    fields = list(read_fields(data))
    if names.get(_int(_last(fields, 1, 0))) != _MODULE_STAT:
        return ""
    return _text(_last(fields, 5, b"")) or names.get(_int(_last(fields, 7, 0)), "")


def _last(fields: list[Field], number: int, otherwise: int | bytes) -> int | bytes:
    """As protobuf has it, the last of several wins."""
    return next((value for n, value in reversed(fields) if n == number), otherwise)


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise TypeError("a number was expected")
    return value


def _signed(value: int | bytes) -> int:
    """Two's complement of 64 bits."""
    number = _int(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise TypeError("a text was expected")
    return value.decode(errors="replace")


_TPU = re.compile(r"/device:TPU:\d+")
_GPU = re.compile(r"/device:GPU:\d+")
_MODULES, _OPS = "XLA Modules", "XLA Ops"
_STREAM = "Stream #"
_SLACK_PS = 1000  # what rounding to nanoseconds may add

Times = tuple[int, ...] | NotMeasured


def call_times_ps(planes: Sequence[Plane], module: str, calls: int) -> Times:
    """Picoseconds of each of the ``calls`` runs of ``module`` in the order in which they ran.

    Void (a refusal) unless every device that ran it shows exactly that many runs, all alike.
    """
    tpus = [plane for plane in planes if _TPU.fullmatch(plane.name)]
    gpus = [plane for plane in planes if _GPU.fullmatch(plane.name)]
    if not tpus and not gpus:
        return NotMeasured("the profile has no plane of a device")
    device_times = [_tpu_times(plane, module, calls) for plane in tpus if _runs(plane, module)]
    device_times += [_gpu_times(plane, module, calls) for plane in gpus if _kernels(plane, module)]
    if not device_times:
        return NotMeasured(f"the profile shows no run of {module}, {calls} were made")
    for times in device_times:
        if isinstance(times, NotMeasured):
            return times
    by_device = [times for times in device_times if not isinstance(times, NotMeasured)]
    return tuple(max(same_run) for same_run in zip(*by_device, strict=True))


def union_ps(events: Iterable[Event]) -> int:
    """The time that at least one of the events covers: what overlaps or nests counts once."""
    total, end = 0, None
    for event in sorted(events, key=lambda e: e.start_ps):
        start = event.start_ps if end is None else max(event.start_ps, end)
        total += max(0, event.end_ps - start)
        end = event.end_ps if end is None else max(end, event.end_ps)
    return total


def _tpu_times(plane: Plane, module: str, calls: int) -> Times:
    runs = _runs(plane, module)
    if len(runs) != calls:
        return NotMeasured(f"{plane.name} shows {len(runs)} runs of {module}, {calls} were made")
    ops = sorted(_events(plane, _OPS), key=lambda e: e.start_ps)
    every = sorted(_events(plane, _MODULES), key=lambda e: e.start_ps)
    bad = _broken(plane, every) or _broken(plane, ops, nested=True)
    if bad:
        return bad
    groups = [_within(run, ops) for run in runs]
    for run, group in zip(runs, groups, strict=True):
        if any(op.end_ps > run.end_ps + _SLACK_PS for op in group):
            return NotMeasured(f"{plane.name} shows an operation that outlasts its run of {module}")
    return _alike(plane, module, groups)


def _gpu_times(plane: Plane, module: str, calls: int) -> Times:
    """Kernels of a program, in the order of their start: as many for each call, the same ones."""
    kernels = _kernels(plane, module)
    if len(kernels) % calls:
        return NotMeasured(
            f"{plane.name} shows {len(kernels)} kernels of {module}, which {calls} calls cannot "
            "have started"
        )
    bad = _broken(plane, kernels, nested=True)
    size = len(kernels) // calls
    return bad or _alike(plane, module, [kernels[n * size : (n + 1) * size] for n in range(calls)])


def _alike(plane: Plane, module: str, groups: Sequence[Sequence[Event]]) -> Times:
    """The union of each group, if all have the same operations as often."""
    counts = [Counter(event.name for event in group) for group in groups]
    if not counts[0]:
        return NotMeasured(f"{plane.name} shows no operation within a run of {module}")
    for number, count in enumerate(counts):
        if count != counts[0]:
            name = next(iter((counts[0] - count) or (count - counts[0])))
            return NotMeasured(
                f"{plane.name} shows operation {name[:60]} {counts[0][name]} times in run 0 of "
                f"{module} and {count[name]} times in run {number}"
            )
    return tuple(union_ps(group) for group in groups)


def _within(run: Event, ops: Sequence[Event]) -> Sequence[Event]:
    """Those of the operations, sorted, that start within a run."""
    first = bisect_left(ops, run.start_ps, key=lambda e: e.start_ps)
    return ops[first : bisect_left(ops, run.end_ps, key=lambda e: e.start_ps)]


def _broken(plane: Plane, events: Sequence[Event], *, nested: bool = False) -> NotMeasured | None:
    """What no device does: a duration that is not positive, or two runs at a time."""
    for event in events:
        if event.duration_ps < 0 or (not nested and event.duration_ps == 0):
            return NotMeasured(
                f"{plane.name} gives {event.name[:60]} {event.duration_ps} ps: its clock wrapped"
            )
    if not nested:
        for before, after in pairwise(events):
            if after.start_ps < before.end_ps:
                return NotMeasured(
                    f"{plane.name} shows {after.name[:60]} before {before.name[:60]} ends: an "
                    "event is doubled, or its clock wrapped"
                )
    return None


def _runs(plane: Plane, module: str) -> list[Event]:
    """The runs of a program, which the profile names ``module`` or ``module(fingerprint)``."""
    runs = [e for e in _events(plane, _MODULES) if e.name.partition("(")[0] == module]
    return sorted(runs, key=lambda e: e.start_ps)


def _kernels(plane: Plane, module: str) -> list[Event]:
    lines = [line for line in plane.lines if line.name.startswith(_STREAM)]
    operations = [e for line in lines for e in line.events if e.module == module]
    return sorted(operations, key=lambda e: e.start_ps)


def _events(plane: Plane, line: str) -> list[Event]:
    return [event for group in plane.lines if group.name == line for event in group.events]
