"""The time of a step of a model: the sum over its scheduled module."""

from collections.abc import Iterable, Sequence
from math import fsum, prod

from autotune.domain.explanation import Route
from autotune.domain.key import ChipInfo
from autotune.domain.step import Basis, CompiledStep, Step, StepKind, StepPart
from autotune.estimating.cost_model.links import Links
from autotune.estimating.cost_model.operation import (
    Rates,
    TimedOperation,
    is_relayout,
    longest_branches,
    time_by_kind,
    timeline,
)
from autotune.estimating.roofline import peak_ops_per_s
from autotune.estimating.simulator import MODEL, constants

_COPIES = (
    *("copy", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad"),
    *("transpose", "reshape", "gather", "bitcast-convert"),
)


def step_time(compiled: CompiledStep, chip: ChipInfo, tokens: int = 0) -> Step:
    """``tokens``: of a step on all devices. Each part's error counts by its share of the time."""
    kernels = [o for o in compiled.schedule if o.is_kernel]
    links = Links(chip.chip, compiled.bounds, compiled.devices)
    rates = Rates(chip, links, is_plain=not kernels)
    timed = timeline(longest_branches(compiled.schedule, rates), rates)
    start_us = constants.start_us() if compiled.schedule else 0.0
    start = StepPart(kind=StepKind.START, basis=Basis.BYTES, runs=1, time_us=start_us)
    parts = [*_parts(timed, chip), start]
    undecided = dict.fromkeys(o.undecided for o in compiled.schedule if o.undecided)
    sparse = any(o.on_sparse_cores for o in kernels)
    refused = {o.refusal: o.name for o in kernels if o.refusal and not o.on_sparse_cores}
    branches = {name for operation in compiled.schedule for name, _ in operation.branches}
    untimed = (o for o in kernels if o.simulated_us is None)
    is_guess = sparse or any(o.sends or o.is_unsized or o.refusal for o in untimed)
    known = constants.kernel_error(chip.chip.value) is not None and not (undecided or is_guess)
    return Step(
        chip=chip.chip,
        devices=compiled.devices,
        chips=prod(compiled.bounds),
        parts=tuple(parts),
        error=_mean_error(parts) if known else None,
        undecided=tuple(undecided),
        alternatives=len(branches),
        peak_flops_per_s=_peak_flops_per_s(timed, chip),
        hbm_bytes=compiled.hbm_bytes,
        hbm_capacity_bytes=chip.hbm_capacity_bytes * chip.num_cores,
        is_whole=compiled.is_whole,
        model=MODEL,
        tokens=tokens,
        refused=tuple(f"{name}: {reason}" for reason, name in refused.items()),
    )


def _mean_error(parts: Sequence[StepPart]) -> float | None:
    time_us = fsum(part.time_us for part in parts)
    return fsum(part.error * part.time_us for part in parts) / time_us if time_us else None


def _peak_flops_per_s(timed: Iterable[TimedOperation], chip: ChipInfo) -> float:
    """Of the dtype that most operations of the step are of."""
    flops: dict[str, int] = {}
    for each in timed:
        dtype = each.operation.dtype
        flops[dtype] = flops.get(dtype, 0) + each.operation.flops * each.operation.runs
    dtype = max(flops, key=lambda name: flops[name], default="")
    return peak_ops_per_s(dtype, chip) * chip.num_cores


def _parts(timed: Iterable[TimedOperation], chip: ChipInfo) -> list[StepPart]:
    """Operations that are alike in all that a part says of them are one."""
    groups: dict[tuple[StepKind, Basis, str, str], list[TimedOperation]] = {}
    for each in timed:
        key = _kind(each), each.basis, each.operation.scope, each.operation.line
        groups.setdefault(key, []).append(each)
    parts = (_part(group, chip) for group in groups.values())
    return sorted(parts, key=lambda part: -part.time_us)


def _part(group: Sequence[TimedOperation], chip: ChipInfo) -> StepPart:
    kind, basis, first = _kind(group[0]), group[0].basis, group[0].operation
    return StepPart(
        kind=kind,
        basis=basis,
        scope=first.scope,
        line=first.line,
        name=max(group, key=lambda each: each.exposed_us).operation.name,
        runs=sum(each.operation.runs for each in group),
        time_us=fsum(each.exposed_us for each in group),
        hidden_us=fsum(max(0.0, each.busy_us - each.exposed_us) for each in group),
        error=_error(kind, basis, chip.chip.value, group),
        flops=sum(each.operation.flops * each.operation.runs for each in group),
        hbm_bytes=sum(each.operation.hbm_bytes * each.operation.runs for each in group),
    )


def _kind(timed: TimedOperation) -> StepKind:
    operation = timed.operation
    if operation.transfer is not None:
        is_host = operation.transfer.route is Route.HOST
        return StepKind.HOST if is_host else StepKind.COLLECTIVE
    if operation.is_kernel:
        return StepKind.SPARSE if operation.on_sparse_cores else StepKind.KERNEL
    if operation.flops:
        return StepKind.PRODUCT
    is_copy = operation.opcode in _COPIES or is_relayout(operation.name)
    return StepKind.COPY if is_copy else StepKind.ELEMENTWISE


def _error(kind: StepKind, basis: Basis, chip: str, group: Sequence[TimedOperation]) -> float:
    """Of the times of such a part."""
    if any(each.operation.sends for each in group):  # a kernel may take all of its time to do so
        return constants.hardware("remote_error")
    if basis is Basis.LINKS:
        return constants.hardware("host_error" if kind is StepKind.HOST else "links_error")
    guess = constants.hardware("arithmetic_error")
    if kind is StepKind.KERNEL:
        return (basis is Basis.SIMULATED and constants.kernel_error(chip)) or guess
    known = _xla_error(kind, chip, [each for each in group if each.exposed_us > 0])
    return max(known or guess, 0.0 if basis is Basis.SIMULATED else guess)


def _xla_error(kind: StepKind, chip: str, group: Sequence[TimedOperation]) -> float | None:
    """What else a product does is hidden by it."""
    by_kind = time_by_kind(group)
    if kind is StepKind.PRODUCT:
        new = {kind: by_kind.pop(kind, 0.0) for kind in (constants.SPATIAL, constants.PRECISE)}
        by_kind = {constants.PRODUCTS[0]: sum(by_kind.values()), **new}
    runs = sum(each.operation.runs for each in group)
    return constants.xla_error(chip, by_kind, runs / (sum(by_kind.values()) or 1.0))
