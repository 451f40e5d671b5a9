"""All candidates of a problem that could work, each of them once.

The raw space is the product of the declared axes; grid orders, ``dimension_semantics`` and the
VMEM limit come from the rules. Two points that compile to the same program are one candidate.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations, product
from math import inf
from random import Random
from typing import Any

from autotune.domain.compilers import Compilers, TraceConfig, Traces
from autotune.domain.errors import InvalidInputError, NoLegalConfigError
from autotune.domain.key import ChipInfo, Choices, KernelRef
from autotune.domain.outcome import CompileFailed, Failure, Illegal, Outcome, OutOfVmem
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config, Problem, make_config
from autotune.domain.trace import Trace
from autotune.estimating import legality, vmem
from autotune.estimating.roofline import Roofline, roofline

MAX_TRACED = 20_000
_MOST_REASONS = 3

Axes = tuple[tuple[str, AxisValue], ...]
Tracing = tuple[Callable[[Sequence[Config]], Iterator[list[Trace] | Failure]], ChipInfo, Choices]
"""How to trace points, for which chip, and of which choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A config that may be compiled, with what is known of it before."""

    config: Config
    trace: Trace
    roofline: Roofline
    takes_limit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """What of a config the kernel passes on to the compiler. A kernel that fixes its own
    ``dimension_semantics`` or VMEM limit, as most of JAX's do, is tuned without."""

    semantics: bool = True
    limit: bool = True


@dataclass(slots=True, kw_only=True)
class Space:
    """``candidates`` in the order of their roofline. ``refused`` counts raw points by what they
    have in common (``refusal_group``), under the first of those that were raised at one place
    (``alike``). ``default`` is the default config, judged even when the rules refuse it.
    ``first_refused``: by the order of the points; ``untraced``: points that nothing is known of, by
    their axes, and how it may be (``tracing``); ``climbed``: candidates that a search has added."""

    candidates: list[Candidate]
    default: Config
    default_verdict: Outcome | None
    default_trace: Trace | None = None
    refused: Counter[Failure] = field(default_factory=Counter)
    merged: int = 0
    climbed: int = 0
    raw_points: int = 0
    untraced: dict[Axes, Config] = field(default_factory=dict)
    tracing: Tracing | None = None
    passed_on: PassedOn = field(default_factory=PassedOn)
    alike: dict[str | Failure, Failure] = field(default_factory=dict)
    first_refused: Failure | None = None


Progress = Callable[[int, int], None]


def explore(
    compilers: Compilers,
    ref: KernelRef,
    problem: Problem,
    choices: Choices,
    chip: ChipInfo,
    progress: Progress = lambda _, __: None,
    enough_s: float = inf,
) -> Space:
    """Trace every raw point and keep the legal, feasible, different ones. Where that takes longer
    than ``enough_s`` seconds, as with a body that Python unrolls, the rest stay ``untraced``.

    Raises ``NoLegalConfigError`` when none is left, ``InvalidInputError`` for a problem whose
    arrays exceed the chip's HBM.
    """
    default = default_config(choices)
    trace = partial(_traced, compilers, ref, problem, chip)
    space = Space(
        candidates=[],
        default=default,
        default_verdict=None,
        untraced={config.axes: config for config in _points(choices)},
        passed_on=passed_on_of(compilers, ref, problem, default, chip),
        tracing=(trace, chip, choices),
    )
    default_traced = _judge_default(space, next(trace([default])), chip)
    while space.untraced and not space.candidates and space.raw_points < MAX_TRACED:
        widen(space, [default.axes, *some_untraced(space)], enough_s, progress)
    if default_traced is not None and all(c.config != space.default for c in space.candidates):
        space.candidates.append(default_traced)
    if not space.candidates:
        raise _no_legal_config(space)
    space.candidates.sort(key=lambda c: c.roofline.guess_us)
    return space


def some_untraced(space: Space) -> list[Axes]:
    """Points in an order that soon says something of all: the same every time."""
    count = min(MAX_TRACED, len(space.untraced))
    return Random(0).sample(list(space.untraced), count)  # noqa: S311 (no secret)


def around(space: Space, config: Config) -> list[Axes]:
    """The untraced points that differ from a config in one axis."""
    if space.tracing is None:
        return []
    _, _, choices = space.tracing
    near = (
        tuple((axis, value if axis == name else size) for axis, size in config.axes)
        for name, values in choices.axes.items()
        for value in values
    )
    return [axes for axes in near if axes in space.untraced]


def orders_and_semantics(space: Space) -> list[Config]:
    """The default in all orders of its grid, and with all semantics: what an untraced point may
    come with."""
    default, trace = space.default, space.default_trace
    rank = len(trace.own_axes) if trace and space.passed_on.semantics else 0
    kinds = list(product((PARALLEL, ARBITRARY), repeat=rank))
    return [
        *(default.replace(grid_order=order) for order in permutations(default.grid_order)),
        *(default.replace(dimension_semantics=semantics) for semantics in kinds),
    ]


def widen(
    space: Space,
    points: Iterable[Axes],
    enough_s: float = inf,
    progress: Progress = lambda _, __: None,
) -> list[Candidate]:
    """Trace those of the ``points`` that are untraced, at least one and until ``enough_s`` seconds
    are over; the candidates that they are."""
    configs = [space.untraced[axes] for axes in dict.fromkeys(points) if axes in space.untraced]
    if space.tracing is None or not configs:
        return []
    trace, chip, _ = space.tracing
    began, first = time.monotonic(), len(space.candidates)
    traced = dict[Axes, list[Trace] | Failure]()
    for config, answer in zip(configs, trace(configs), strict=True):
        traced[config.axes] = answer
        progress(len(traced), len(configs))
        if time.monotonic() - began > enough_s:
            break
    for axes in [axes for axes in space.untraced if axes in traced]:  # in their own order
        _add_point(space, space.untraced.pop(axes), traced[axes], chip)
    return space.candidates[first:]


def climb(candidate: Candidate, chip: ChipInfo) -> Candidate | None:
    """The same candidate with the next higher VMEM limit, or None at the top."""
    if not candidate.takes_limit:
        return None
    limit = vmem.next_rung(candidate.config.vmem_limit_bytes, chip)
    return None if limit is None else _with_limit(candidate, limit)


def limit_named(space: Space, config: Config, refused: OutOfVmem, chip: ChipInfo) -> OutOfVmem:
    """A verdict of the compiler, and who set the limit: its message does not say."""
    if space.passed_on.limit:
        return vmem.with_limit_source(refused, config.vmem_limit_bytes, chip)
    allowed = None if refused.allowed_bytes == chip.scoped_vmem_bytes else refused.allowed_bytes
    return vmem.with_limit_source(refused, allowed, chip, own_limit_bytes=refused.used_bytes)


def _points(choices: Choices) -> list[Config]:
    return [
        make_config(dict(zip(choices.axes, values, strict=True)), grid_order=choices.grid)
        for values in product(*choices.axes.values())
    ]


def default_config(choices: Choices) -> Config:
    axes: dict[str, AxisValue] = {name: choices.default[name] for name in choices.axes}
    return make_config(axes, grid_order=choices.grid)


def passed_on_of(
    compilers: Compilers, ref: KernelRef, problem: Problem, default: Config, chip: ChipInfo
) -> PassedOn:
    """Found out by tracing the default with other settings: does the ``pallas_call`` have them?"""

    def traced(**changes: Any) -> Trace | None:
        config = default.replace(**changes)
        answer = compilers.ask(TraceConfig(ref=ref, problem=problem, config=config, chip=chip.chip))
        return answer.traces[0] if isinstance(answer, Traces) else None

    plain = traced()
    if plain is None:
        return PassedOn()
    kinds = [(kind,) * len(plain.own_axes) for kind in (ARBITRARY, PARALLEL)]
    limit = chip.vmem_capacity_bytes - 1024  # nobody's own choice
    traces = [traced(dimension_semantics=kind, vmem_limit_bytes=limit) for kind in kinds]
    return PassedOn(
        semantics=all(
            t and all(call.own_semantics == kind for call in t.calls)
            for t, kind in zip(traces, kinds, strict=True)
        ),
        limit=all(t and all(call.vmem_limit_bytes == limit for call in t.calls) for t in traces),
    )


def _traced(
    compilers: Compilers,
    ref: KernelRef,
    problem: Problem,
    chip: ChipInfo,
    configs: Sequence[Config],
) -> Iterator[list[Trace] | Failure]:
    """The traces of each config in all grid orders."""
    questions = [
        TraceConfig(ref=ref, problem=problem, config=config, chip=chip.chip, orders=True)
        for config in configs
    ]
    for answer in compilers.ask_all(questions):
        yield answer.traces if isinstance(answer, Traces) else answer


def _judge_default(space: Space, traced: list[Trace] | Failure, chip: ChipInfo) -> Candidate | None:
    """The default as a candidate, or its verdict in the space when the rules refuse it.

    It has the most parallel semantics that are legal and the compiler's own limit.
    """
    if not isinstance(traced, list):
        space.default_verdict = traced
        return None
    trace = space.default_trace = traced[0]
    if trace.io_bytes > chip.hbm_capacity_bytes:
        raise InvalidInputError(
            f"the problem needs {trace.io_bytes / 2**30:.1f} GiB of HBM, {chip.chip} has "
            f"{chip.hbm_capacity_bytes / 2**30:.1f} GiB"
        )
    if space.passed_on.semantics:
        semantics = legality.semantics_variants(trace, chip.chip)[0]
        space.default = space.default.replace(dimension_semantics=semantics)
    space.default_verdict = refusal(trace, chip, lambda: space.passed_on)
    return None if space.default_verdict else _candidate(space, space.default, trace, chip)


def refusal(
    trace: Trace, chip: ChipInfo, passed_on: Callable[[], PassedOn], default: Trace | None = None
) -> Illegal | OutOfVmem | None:
    """Why a config with this trace is not compiled, by the rules or by arithmetic; None where it
    may be. ``passed_on`` is asked only where VMEM is the reason. ``default``: the trace of the
    default config, which reads what there is to read."""
    broken = legality.violation(trace, chip, default)
    if broken:
        return legality.illegal(broken)
    over = vmem.over_limit(trace, chip)
    return over and _over_vmem(passed_on(), *over, chip)


def _add_point(space: Space, config: Config, traced: list[Trace] | Failure, chip: ChipInfo) -> None:
    if not isinstance(traced, list):
        space.raw_points += 1
        _count(space, traced)
        return
    orders = list(permutations(config.grid_order)) if len(traced) > 1 else [config.grid_order]
    seen: set[tuple[str, ...]] = set()
    for order, trace in zip(orders, traced, strict=True):
        space.raw_points += 1
        moving = _moving_axes(order, trace)
        ordered = config.replace(grid_order=order)
        if moving in seen:
            space.merged += 1  # axes of one block may stand anywhere: the program is the same
        else:
            seen.add(moving)
            _add_order(space, ordered, trace, chip)


def _add_order(space: Space, config: Config, trace: Trace, chip: ChipInfo) -> None:
    illegal = None if space.passed_on.semantics else legality.illegal_semantics(trace)
    broken = legality.bad_blocks(trace, chip, space.default_trace) or illegal
    if broken:
        _count(space, legality.illegal(broken))
        return
    use = vmem.vmem_use(trace, chip)
    rung = _first_rung(space, use, trace, chip)
    if rung is None:
        highest = (use, chip.vmem_capacity_bytes)
        over = highest if space.passed_on.limit else vmem.over_limit(trace, chip) or highest
        _count(space, _over_vmem(space.passed_on, *over, chip))
        return
    variants = legality.semantics_variants(trace, chip.chip) if space.passed_on.semantics else [()]
    for semantics in variants:
        chosen = config.replace(dimension_semantics=semantics)
        candidate = _candidate(space, chosen, trace, chip)
        space.candidates.append(candidate if rung[0] is None else _with_limit(candidate, rung[0]))


def _count(space: Space, refused: Failure | Illegal) -> None:
    space.first_refused = space.first_refused or refused
    group = refusal_group(refused)
    same = getattr(refused, "raised_at", "") or group
    space.refused[space.alike.setdefault(same, group)] += 1


def refusal_group(refused: Failure) -> Failure:
    """The same without the figures that differ from point to point: its rule or its limit, else its
    reason."""
    if isinstance(refused, Illegal) and refused.rule:
        return Illegal(rule=refused.rule)
    if isinstance(refused, OutOfVmem) and refused.limited_by:
        limit = refused.limited_by
        return OutOfVmem(used_bytes=0, allowed_bytes=refused.allowed_bytes, limited_by=limit)
    if isinstance(refused, CompileFailed):
        return CompileFailed(reason=refused.reason)
    return refused


def _over_vmem(
    passed_on: PassedOn, use: vmem.VmemUse, limit: int | None, chip: ChipInfo
) -> OutOfVmem:
    needed = None if passed_on.limit else max(use.expected_bytes, use.certain_bytes)
    return vmem.out_of_vmem(use.certain_bytes, limit, chip, own_limit_bytes=needed)


def _first_rung(
    space: Space, use: vmem.VmemUse, trace: Trace, chip: ChipInfo
) -> tuple[int | None] | None:
    """As ``vmem.first_rung``; the kernel's own limit is left alone where it passes none on."""
    if space.passed_on.limit:
        return vmem.first_rung(use, chip)
    return (None,) if vmem.over_limit(trace, chip) is None else None


def _candidate(space: Space, config: Config, trace: Trace, chip: ChipInfo) -> Candidate:
    if space.passed_on.semantics:
        trace = trace.with_semantics(config.dimension_semantics)
    return Candidate(
        config=config,
        trace=trace,
        roofline=roofline(trace, chip),
        takes_limit=space.passed_on.limit,
    )


def _with_limit(candidate: Candidate, limit: int) -> Candidate:
    return replace(
        candidate,
        config=candidate.config.replace(vmem_limit_bytes=limit),
        trace=candidate.trace.with_each(vmem_limit_bytes=limit),
    )


def _moving_axes(order: tuple[str, ...], trace: Trace) -> tuple[str, ...]:
    """The grid axes with more than one block, in order: the others change nothing."""
    if not order:
        return tuple(str(extent) for extent in trace.grid)
    if trace.more:
        return order  # an order can mean another thing to each call
    extents = [trace.grid[axis] for axis in trace.own_axes]
    return tuple(name for name, extent in zip(order, extents, strict=True) if extent > 1)


def _no_legal_config(space: Space) -> NoLegalConfigError:
    groups = space.refused.most_common(_MOST_REASONS)
    reasons = "; ".join(f"{_in_short(group)} ({n})" for group, n in groups)
    return NoLegalConfigError(
        f"no legal configuration among {space.raw_points} points: {reasons}",
        points=space.raw_points,
        refused=groups,
        first=space.first_refused,
    )


def _in_short(refused: Failure) -> str:
    """By names alone: who shows the error has the facts to say more."""
    if isinstance(refused, Illegal) and refused.rule:
        return refused.rule
    return refused.kind if isinstance(refused, OutOfVmem) else refused.reason
