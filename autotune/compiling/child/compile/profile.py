"""Profiles of a config by line of source, in the child."""

from pathlib import Path

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.chips import compile_only_device
from autotune.compiling.child.compile import build
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.protocol import Profiled
from autotune.declaring.kernel import Array, Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem
from autotune.domain.profile import Profile
from autotune.domain.trace import Trace
from autotune.estimating.simulator import NotSimulated
from autotune.estimating.simulator.profiling.attribution import profile
from autotune.estimating.simulator.profiling.locations import carry, read_lines
from autotune.estimating.simulator.profiling.sources import frames

_NO_LINES = "this libtpu names no lines of source: what has a name is named"


def profile_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, options: str | None
) -> Profiled:
    """Of each call of the function. Raises ``StageError``, as well for a process that was not
    started to say lines: it is to be asked again of one that was."""
    _check_lines()
    return _profiled(build.listed_config(kernel, problem, config, chip, dump, options), chip)


def profile_function(loader: Loader, question: protocol.ProfileConfig, dump: Path) -> Profiled:
    """Of any function that makes pallas_calls, called as its reference says. Raises as above."""
    from autotune.compiling.child.collecting import called, compile_only

    _check_lines()
    chip, (function, given) = question.chip, called(loader, question.ref)
    with compile_only(function, given, chip) as traced:
        avals = traced.jaxpr.in_avals
        arrays = [
            Array(name=f"args[{n}]", shape=a.shape, dtype=a.dtype.name) for n, a in enumerate(avals)
        ]
        try:
            calls = reader.calls(traced.jaxpr, arrays)
        except reader.NotTunableError as error:
            raise StageError(protocol.REFUSED, error) from error
        staged = build.Staged(calls, traced, compile_only_device(chip))
        return _profiled(build.listed(staged, chip, dump, question.options), chip)


def _check_lines() -> None:
    if not libtpu.tells_lines():
        raise StageError(protocol.LINES, ValueError("libtpu was loaded without lines of source"))


def _profiled(listed: tuple[Trace, build.MadeConfig], chip: Chip) -> Profiled:
    trace, made = listed
    profiles = []
    for call, compiled in zip(trace.calls, made.calls, strict=True):
        result = _profile(call.name, compiled, chip)
        if isinstance(result, NotSimulated):
            return Profiled(made.program, (), f"{call.name}: {result.reason}")
        profiles.append(result)
    return Profiled(made.program, tuple(profiles))


def _profile(name: str, call: build.MadeCall, chip: Chip) -> Profile | NotSimulated:
    if not isinstance(call.listing, str):
        return NotSimulated(call.refusal)
    lines = read_lines(call.sources.module) if call.sources else {}
    chains = carry(lines, call.sources.passes) if call.sources and lines else {}
    known = {chain: frames(chain) for chain in set(chains.values())}
    return profile(
        call.listing,
        {number: known[chain] for number, chain in chains.items()},
        kernel=name,
        chip=chip.value,
        libtpu=libtpu.version(),
        scalars=call.scalars,
        note="" if lines else _NO_LINES,
    )
