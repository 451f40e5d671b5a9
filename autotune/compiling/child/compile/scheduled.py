"""All that runs of a compiled module, each operation with its simulated time where its listing is
there."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

from autotune.compiling import libtpu
from autotune.compiling.child.compile import hlo, module
from autotune.compiling.child.compile.hlo import KernelCall
from autotune.compiling.child.listings import FinalListing
from autotune.compiling.child.trace.pallas_call import Call
from autotune.domain.explanation import ScheduledOperation
from autotune.domain.key import Chip
from autotune.estimating.simulator import NotSimulated, Simulation, simulate
from autotune.estimating.simulator.bundles import Listing, parse
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.slicing import SEMAPHORES

Outcome = tuple[float, int] | str
"""Microseconds of a run and the bytes of HBM that it moves, or why it is not simulated."""
_SAME = 0.1  # of what the core does: what differs by more is decided by data


def calls_by_name(calls: Sequence[Call], compiled: Sequence[KernelCall]) -> dict[str, Call]:
    """Of each compiled call the function's; those that XLA has copied are of the same."""
    known: dict[str, Call] = {}
    while left := [kernel for kernel in compiled if kernel.name not in known]:
        made = zip(calls, hlo.match(calls, left), strict=True)
        matched = {kernel.name: call for call, kernel in made if kernel}
        known |= matched
        if not matched:
            break
    return known


def scheduled(
    text: str, listed: Mapping[str, FinalListing], chip: Chip, kernels: Sequence[str] | None = None
) -> list[ScheduledOperation]:
    """All that runs of a compiled module. ``kernels``: names of the compiled calls, in the order of
    the function's; other Pallas calls are branches that are not taken, or turns of a loop that XLA
    has unrolled, which count as runs of the call. None: each is simulated where it stands."""
    operations = []
    for operation in module.schedule(text):
        if kernels is not None and operation.name in kernels:
            operations.append(replace(operation, kernel=kernels.index(operation.name)))
            continue
        final = listed.get(operation.name)
        if kernels is None or not (final and final.is_kernel):
            ways = {"is_fused": not (final and final.is_kernel), "is_plain": kernels is None}
            outcome = final and simulated(final.listing, None, chip, **ways)
            operations.append(timed(operation, outcome))
    return operations


def simulated(listing: str | Listing, call: Call | None, chip: Chip, **ways: bool) -> Outcome:
    """A kernel with the scalars that are known of it. ``ways``: ``is_fused``, it is none, but what
    XLA makes the code of itself, and ``is_plain``, in a program of plain XLA."""
    result = _of_xla(listing, chip, **ways)
    if isinstance(result, NotSimulated):
        known = _groups(listing) if call is None else flat(call.scalar_operands())
        if known or call is not None:
            version = libtpu.version()
            result = simulate(listing, chip=chip.value, libtpu=version, scalars=known)
    if isinstance(result, NotSimulated):
        return result.reason
    moved = result.hbm_bytes_read + result.hbm_bytes_written
    return result.us_shared, moved * chip.cores_per_device


def timed(
    operation: ScheduledOperation, outcome: Outcome | None, call: Call | None = None
) -> ScheduledOperation:
    """``outcome``: None where the compiler has made no code for it yet. ``call``: that it is."""
    if isinstance(outcome, str):
        operation = replace(operation, refusal=outcome)
    elif outcome:
        operation = replace(operation, simulated_us=outcome[0], hbm_bytes=outcome[1])
    if call is None:
        return replace(operation, is_unsized=operation.is_kernel)
    (trace,) = call.traces(None)
    certain = operation.simulated_us is not None
    return replace(
        operation,
        flops=trace.least_mxu_flops if certain else trace.mxu_flops,
        dtype=trace.mxu_dtype or "",
        vector_ops=0 if certain else trace.vector_ops,
        hbm_bytes=min(operation.hbm_bytes, trace.hbm_bytes) if certain else trace.hbm_bytes,
        sends=call.sends,
        is_unsized=call.is_unsized,
    )


@lru_cache(maxsize=256)  # candidates have most of XLA's operations in common
def _of_xla(listing: str | Listing, chip: Chip, **ways: bool) -> Simulation | NotSimulated:
    """An operation of XLA, by its own schedule. Integers that it is given are places, or say which
    rows: the core must do as much for the first row alone as for rows that lie apart, each of which
    is fetched."""
    try:
        parsed = parse(listing)
    except UnfitError as reason:
        return NotSimulated(str(reason), reason.operand)
    rows = min((o.shape[0] for o in parsed.operands if o.shape and o.shape[0] > 1), default=0)
    apart, given = _guessed(parsed, chip, rows, **ways)
    other = _guessed(parsed, chip, 0, **ways)[0] if any(map(any, given.values())) else apart
    if isinstance(apart, NotSimulated) or isinstance(other, NotSimulated):
        return apart if isinstance(apart, NotSimulated) else other
    works = [each.bundle_cycles + each.stall_cycles for each in (apart, other)]
    is_same = abs(works[1] - works[0]) <= _SAME * works[0]
    return apart if is_same else NotSimulated("which rows its indices name decides the time")


def _guessed(
    listing: Listing, chip: Chip, rows: int, **ways: bool
) -> tuple[Simulation | NotSimulated, dict[int, list[int]]]:
    """With what was guessed: indices are spread over ``rows``. Of a collective that goes on in it a
    step is taken where a semaphore asks for one. None does here, so nothing depends on how far it
    is, or on who takes part; what it sends takes no time here: a collective has one of its own.
    A scalar that a fusion is given says where a slice of an array begins, or that a loop does."""
    given = dict[int, list[int]]()
    version, links = libtpu.version(), all(o.memory != SEMAPHORES for o in listing.operands)
    while True:
        result = simulate(
            listing, chip=chip.value, libtpu=version, scalars=given, links=links, **ways
        )
        number = result.operand if isinstance(result, NotSimulated) else None
        if number is None or number in given:
            return result, given
        (asked,) = (operand for operand in listing.operands if operand.number == number)
        is_progress = not links and (asked.kind == "const" or asked.memory == "smem")
        if not (ways.get("is_fused") or is_progress):
            return result, given
        count, over = prod(asked.shape), 0 if is_progress or not asked.shape else rows
        given[number] = [((place + 1) * over - bool(over)) // count for place in range(count)]


def _groups(listing: str | Listing) -> dict[int, list[int]]:
    """What a ragged dot of XLA is given, as megablox has it: how many tiles it visits, where groups
    end, and of each visit the group and the tile. Groups are taken for equal, and to end within
    tiles. Empty for another kernel."""
    with suppress(UnfitError):
        operands = sorted(parse(listing).operands, key=lambda operand: operand.number)
        match [operand.shape for operand in operands[:6]]:
            case [(1,), (ends,), (visits,), (same,), (1,), (rows, _)] if visits == same >= ends > 1:
                tile = max(1, rows // (visits - ends + 2))
                inner = (rows * n // (ends - 1) + tile // 2 for n in range(1, ends - 1))
                bounds = [0, *(min(end, rows) for end in inner), rows]
                visited = [
                    (group, place)
                    for group, (begin, end) in enumerate(pairwise(bounds))
                    for place in range(begin // tile, -(-end // tile))
                ][:visits]
                groups, tiles = ([*each] for each in zip(*visited, strict=True))
                return {0: [len(visited)], 1: bounds, 2: groups, 3: tiles, 4: [0]}
    return {}


def flat(scalars: Mapping[int, Any]) -> dict[int, list[int]]:
    """Elements in row-major order, by operand number."""
    return {number: array.reshape(-1).tolist() for number, array in scalars.items()}
