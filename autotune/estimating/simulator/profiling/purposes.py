"""Which lines the scalar operations without one of their own are for.

The pipeline moves blocks by DMAs that lead from or to an operand of the call. What uses the address
of that operand, or the buffer or the semaphore of its DMAs, is for its index map. A check of bounds
is for its DMA, which may be the kernel's own, and a branch for the line that decides it. All else
is for what uses its result; where that is a branch of the pipeline, for no line at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from autotune.domain.profile import SourceLine
from autotune.estimating.simulator.bundles import Operation, is_vector
from autotune.estimating.simulator.lowering import number
from autotune.estimating.simulator.profiling.locations import OPERAND, SLOT

_BUFFER = re.compile(r"\[(#allocation\d+)(?!\w)")  # or a semaphore
_CHECK = re.compile(r"%(\d+) = shalt\.err [^;{}]*?/\* BoundsCheck [^;{}]*? for %(\d+) = dma")
_MOST = 8  # lines: what is for more is for the whole kernel

Frames = tuple[SourceLine, ...]
_Places = set[Frames | str]
"""Index maps, buffers and semaphores."""


def purposes(
    text: str,
    operations: Iterable[Operation],
    lines: Mapping[int, Frames],
    maps: Mapping[int, Frames],
) -> dict[int, set[Frames]]:
    """By number of the operation, of a final listing. ``lines``: of the kernel's body; ``maps``: of
    the index map of each operand, by the number that the listing gives it."""
    known = {number(operation.name): operation for operation in operations}
    reads, named, leads = _traced(known, maps)
    copies = (leads[n] for n, o in known.items() if o.opcode.startswith("dma.") and n not in lines)
    moved = _moved(copies, {*maps.values()})
    used = {each for numbers in reads.values() for each in numbers}
    served = dict[int, set[Frames]]()
    for name, (_, opcode, _) in known.items():
        places = set() if is_vector(opcode) else named[name] if name in used else leads[name]
        if direct := set[Frames]().union(*(moved.get(place, ()) for place in places)):
            served[name] = direct
        elif name not in used or is_vector(opcode):
            deciding = reads[name] if opcode.startswith("sbr") else [name]
            served[name] = {lines.get(each, ()) for each in deciding}
    for check, copy in _CHECK.findall(text):
        served[int(check)] = served.get(int(copy), {()})
    _spread(served, reads)
    return {name: each for name, each in served.items() if () not in each}


def _moved(
    copies: Iterable[_Places], index_maps: Collection[Frames]
) -> dict[Frames | str, set[Frames]]:
    """The operand that each place is for. ``copies``: the places that each DMA leads to."""
    moved: dict[Frames | str, set[Frames]] = {line: {line} for line in index_maps}
    for places in copies:
        ends = {*index_maps} & places
        if len(ends) == 1:
            for place in places:
                moved.setdefault(place, set()).update(ends)
    return moved


def _traced(
    known: Mapping[int, Operation], maps: Mapping[int, Frames]
) -> tuple[dict[int, list[int]], dict[int, _Places], dict[int, _Places]]:
    """Which operations each reads, also by a spill slot; the places that it names; and those that
    its addresses lead to."""
    stored = dict[str, list[int]]()
    reads, named, leads = dict[int, list[int]](), dict[int, _Places](), dict[int, _Places]()
    for name, (_, opcode, operands) in known.items():
        is_memory, slot = opcode in ("sld", "sst"), SLOT.search(operands)
        reads[name] = [*map(int, OPERAND.findall(operands))]
        if is_memory and slot:
            (reads[name] if opcode == "sld" else []).extend(stored.setdefault(slot[0], []))
            stored[slot[0]] += [name] if opcode == "sst" else []
        named[name] = {maps[each] for each in reads[name] if each in maps}
        named[name] |= set() if is_memory else {*_BUFFER.findall(operands)}
        leads[name] = named[name].union(*(leads.get(each, ()) for each in reads[name]))
    return reads, named, leads


def _spread(served: dict[int, set[Frames]], reads: Mapping[int, Iterable[int]]) -> None:
    """From what is known to all that it reads."""
    settled, fresh = {*served}, [*served]
    while fresh:
        user = fresh.pop()
        for name in reads[user]:
            before = served.get(name, set())
            after = before | served[user]
            if name in reads and name not in settled and () not in before and after != before:
                served[name] = after if len(after) <= _MOST else {()}
                fresh.append(name)
