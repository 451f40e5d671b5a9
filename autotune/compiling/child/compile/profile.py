"""Profiles of a config by line of source, in the child."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.child import chips
from autotune.compiling.child.chips import compile_only_device
from autotune.compiling.child.compile import build, step
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.pallas_calls import MACHINERY
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.declaring.kernel import Kernel
from autotune.domain.profile import Profile, ProfileNote
from autotune.domain.trace import Trace
from autotune.estimating.simulator import NotSimulated
from autotune.estimating.simulator.drawing.picture import Picture
from autotune.estimating.simulator.drawing.timeline import timeline
from autotune.estimating.simulator.profiling import locations
from autotune.estimating.simulator.profiling.attribution import profile

_WORTH_SHARE = 0.005  # of the time: lines with less are shown without those around them


def profile_config(kernel: Kernel, question: ProfileConfig, dump: Path) -> Profiled:
    """Of each call of the function. Raises ``StageError``, as well for a process that was not
    started to say lines: it is to be asked again of one that was."""
    _check_lines()
    problem, config, chip = question.problem, question.config, question.chip
    assert problem is not None and config is not None
    listed = build.listed_config(kernel, problem, config, chip, dump, question.options)
    return _profiled(listed, question)


def profile_function(loader: Loader, question: ProfileConfig, dump: Path) -> Profiled:
    """Of any function that makes pallas_calls, called as its reference says. Raises as above."""
    _check_lines()
    chip, device = question.chip, compile_only_device(question.chip)
    with chips.attached(chip, [device]):
        traced = step.traced(loader, question.ref, chip, [device])
        try:
            calls = step.calls(traced)
        except reader.NotTunableError as error:
            raise StageError(protocol.REFUSED, error) from error
        staged = build.Staged(calls, traced, device)
        with step.lowering([device]):
            return _profiled(build.listed(staged, chip, dump, question.options), question)


def _check_lines() -> None:
    if not libtpu.tells_lines():
        raise StageError(protocol.LINES, ValueError("libtpu was loaded without lines of source"))


def _profiled(listed: tuple[Trace, build.MadeConfig], question: ProfileConfig) -> Profiled:
    trace, made = listed
    results = []
    for call, compiled in zip(trace.calls, made.calls, strict=True):
        result = _of_call(call.name, compiled, question)
        if isinstance(result, NotSimulated):
            return Profiled(made.program, (), f"{call.name}: {result.reason}")
        results.append(result)
    pictures = tuple(picture for _, picture in results if picture)
    profiles, schedule = tuple(profile for profile, _ in results), tuple(made.schedule)
    return Profiled(made.program, profiles, pictures=pictures, schedule=schedule)


def _of_call(
    name: str, call: build.MadeCall, question: ProfileConfig
) -> tuple[Profile, Picture | None] | NotSimulated:
    """Its profile, and its picture if asked."""
    if not isinstance(call.listing, str):
        return NotSimulated(call.refusal)
    lines = locations.read_lines(call.sources.module) if call.sources else {}
    chains = locations.carry(lines, call.sources.passes) if call.sources and lines else {}
    known = {chain: locations.frames(chain) for chain in set(chains.values())}
    located = {number: known[chain] for number, chain in chains.items()}
    maps = {
        number: locations.frames((locations.Location(file, line, line),))
        for number, (file, line) in call.index_maps.items()
        if not any(part in file for part in MACHINERY)
    }
    note = ProfileNote.NOTHING if lines else ProfileNote.NO_LINES
    given: dict[str, Any] = {
        "chip": question.chip.value,
        "libtpu": libtpu.version(),
        "scalars": call.scalars,
        "maps": maps,
    }
    result = profile(call.listing, located, kernel=name, note=note, **given)
    if isinstance(result, NotSimulated):
        return result
    file, picture = result.file, None
    if question.steps:
        picture = timeline(call.listing, located, steps=question.steps, file=file, **given)
    if isinstance(picture, NotSimulated):
        return picture
    worth = [row for row in result.folded() if row.total >= _WORTH_SHARE * result.cycles]
    numbers = {frame.line for row in worth for frame in row.frames if frame.file == file}
    return replace(result, source=locations.around(file, numbers)), picture
