"""How long each call of a program took on the device, from the planes of a profile: or why not.

On a TPU a device has a plane ``/device:TPU:n``: its line ``XLA Modules`` has one event for each run
of a program, ``XLA Ops`` what ran within, nested scopes and the two halves of asynchronous copies
included. The time of a call is the union of the intervals of its operations; with several devices
the longest. A GPU's plane has a line for each stream, whose events name their module.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from autotune.compiling.child.measure.xspace import Event, Plane
from autotune.domain.evidence import NotMeasured

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
