"""Profiles of a config by line of source, in the child."""

from pathlib import Path

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.compile import build
from autotune.compiling.child.serving import StageError
from autotune.compiling.protocol import Profiled
from autotune.declaring.kernel import Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem
from autotune.domain.profile import Profile
from autotune.estimating.simulator import NotSimulated
from autotune.estimating.simulator.profiling.attribution import profile
from autotune.estimating.simulator.profiling.locations import carry, read_lines
from autotune.estimating.simulator.profiling.sources import frames

_NO_LINES = "this libtpu names no lines of source: what has a name is named"


def profile_config(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip, dump: Path, options: str | None
) -> Profiled:
    """Of each call of the function. Raises ``StageError``, for a process that was not started to
    say lines as well: it is to be asked again of one that was."""
    if not libtpu.tells_lines():
        raise StageError(protocol.LINES, ValueError("libtpu was loaded without lines of source"))
    trace, made = build.listed_config(kernel, problem, config, chip, dump, options)
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
