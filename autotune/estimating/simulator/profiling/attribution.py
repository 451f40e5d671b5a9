"""Every cycle of a simulated run to a line of source, or to a named part.

- A bundle issues in one cycle, shared evenly by its vector operations that have a line; where none
  has, by the lines that its scalar operations have or are for (``purposes``). What each share was
  spent on is said by its operation.
- A stall goes to the operation that waits, which is the pop of a result: it has the line of its
  push. What a real matrix unit takes beyond libtpu's clock goes to the product.
- A wait for a DMA goes to the line that waits, where the kernel itself waits.
- An empty bundle waits for what comes next in its block; where nothing does, for the branch.
- All else is a named part, by where it stands: before the outer loop, in it, or behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from autotune.domain.profile import Cause, NamedPart, Profile, ProfileNote, ProfileRow, SourceLine
from autotune.estimating.simulator import constants, dma
from autotune.estimating.simulator.bundles import (
    Listing,
    Operation,
    all_operations,
    is_spill,
    is_vector,
    parse,
)
from autotune.estimating.simulator.dma import Timeline
from autotune.estimating.simulator.extrapolation import Recording, finish, weights
from autotune.estimating.simulator.graph import connect
from autotune.estimating.simulator.lowering import LINK_WAITED, STEP, WAITED, Event, number
from autotune.estimating.simulator.memory import Scalars
from autotune.estimating.simulator.outcome import NotSimulated, UnfitError
from autotune.estimating.simulator.profiling.locations import OPERAND, SLOT
from autotune.estimating.simulator.run import record, settle
from autotune.estimating.simulator.stalls import Costs, price

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


Owner = Frames | NamedPart


class Charge(NamedTuple):
    """Whom a cycle is charged to, and what it was spent on; the operation, where one issued."""

    owner: Owner
    cause: Cause
    opcode: str = ""


def profile(
    text: str,
    lines: Mapping[int, Frames],
    *,
    kernel: str,
    chip: str,
    libtpu: str | None = None,
    scalars: Scalars | None = None,
    note: ProfileNote = ProfileNote.NOTHING,
    maps: Mapping[int, Frames] | None = None,
) -> Profile | NotSimulated:
    """Of a printed listing; ``lines``: by number of the operation; ``maps``: lines of the index
    maps, by number of the operand. The rest as in ``simulate``."""
    try:
        known, listing, given = constants.load(chip, libtpu), parse(text), scalars or {}
        recording, line, _ = settle(listing, known, given)
        places = Places(text, lines, maps or {}, listing, known)
        ledger = _Ledger(places, weights(line, recording, listing))
        again = record(listing, known, given, recording.passes, ledger.visit)
        ledger.wait(again, known, line)
        ledger.settle(price(listing, known))
        cycles = finish(line, recording, listing).cycles
    except UnfitError as reason:
        return NotSimulated(str(reason), reason.operand)
    return Profile(
        kernel=kernel,
        cycles=round(cycles),
        clock_hz=known.clock_hz,
        rows=tuple(ledger.rows(cycles)),
        note=note,
    )


class Places:
    """Whom each bundle, stall and wait of a listing is charged to."""

    def __init__(
        self,
        text: str,
        lines: Mapping[int, Frames],
        maps: Mapping[int, Frames],
        listing: Listing,
        chip: constants.ChipConstants,
    ) -> None:
        self._lines, self._maps, self.listing = lines, {*maps.values()}, listing
        self._bundles = all_operations(text)
        functions = {(line.file, line.function) for *_, line in self._maps}
        body = {n: f for n, f in lines.items() if (f[0].file, f[0].function) not in functions}
        named = {number(o.name): maps[o.number] for o in listing.operands if o.number in maps}
        self._for = purposes(text, chain.from_iterable(self._bundles), body, named)
        back = connect(listing, chip.delay_slots).back_edge
        self._loop = range(back.target, back.address + chip.delay_slots + 1) if back else range(0)

    def issue(self, address: int, stop: int) -> list[Charge]:
        """Who shares the cycle of a bundle in a block that ends before ``stop``."""
        if self._bundles[address]:
            return self._issued(address, self._bundles[address])
        later = (self._bundles[a] for a in range(address, stop) if self._bundles[a])
        earlier = (op for a in range(address - 1, -1, -1) for op in self._bundles[a])
        branches = ((op,) for op in earlier if op.opcode.startswith("sbr"))
        shares = self._issued(address, next(later, ()) or next(branches, ()))
        causes = (c.cause if c.cause is Cause.STEPS else Cause.EMPTY for c in shares)
        return [c._replace(cause=why, opcode="") for c, why in zip(shares, causes, strict=True)]

    def _issued(self, address: int, operations: Sequence[Operation]) -> list[Charge]:
        vectors = [o for o in operations if is_vector(o.opcode)]
        for group in (vectors, operations):
            located = [charge for op in group for charge in self._charges(op)]
            if located:
                return located
        if vectors:
            return [Charge(NamedPart.NO_LOCATION, _cause(op), op.opcode) for op in vectors]
        return [self.scalar(address)]

    def _charges(self, operation: Operation) -> Iterator[Charge]:
        line = self._line(operation.name)
        for owner in [line] if line else self._for.get(number(operation.name), ()):
            cause = Cause.STEPS if owner in self._maps else _cause(operation)
            yield Charge(owner, cause, operation.opcode)

    def stall(self, name: str) -> Owner:
        return self._line(name) or NamedPart.NO_LOCATION

    def wait(self, operation: int) -> Owner:
        part = NamedPart.PIPELINE_WAITS if self.listing.pipelined else NamedPart.WAITS
        return self._lines.get(operation) or part

    def on_unit(self, address: int, unit: str) -> Owner:
        """Of a bundle's operation of a unit, such as *mxu0*."""
        names = (op.name for op in self._bundles[address] if f".{unit}" in op.opcode)
        return self.stall(next(names, ""))

    def _line(self, name: str) -> Frames | None:
        return self._lines.get(number(name))

    def scalar(self, address: int) -> Charge:
        part = NamedPart.PROLOGUE if address < self._loop.start else NamedPart.EPILOGUE
        if not self._loop or address in self._loop:
            part = NamedPart.PIPELINE if self.listing.pipelined else NamedPart.LOOP
        return Charge(part, Cause.SCALAR)


_CAUSES = {
    "vmat": Cause.MATRIX,
    "vdwg": Cause.MATRIX,
    "vld": Cause.MEMORY,
    "vst": Cause.MEMORY,
    "vxpose": Cause.LANE,
}


def _cause(operation: Operation) -> Cause:
    opcode = operation.opcode
    if not is_vector(opcode):
        return Cause.SCALAR
    if "_spill]" in operation.text and is_spill(f" = {opcode} {operation.text}"):
        return Cause.SPILL
    if ".mxu" in opcode or ".xlu" in opcode or opcode.startswith("vpop.xlane"):
        return Cause.MATRIX if ".mxu" in opcode else Cause.LANE
    return next((c for prefix, c in _CAUSES.items() if opcode.startswith(prefix)), Cause.VECTOR)


_WAITS = {WAITED: Cause.HBM, LINK_WAITED: Cause.LINKS}


class _Ledger:
    """Adds up the cycles of a walk, each section as often as it is in the whole run."""

    def __init__(self, places: Places, sections: Sequence[int]) -> None:
        self._places, self._sections, self._section = places, sections, 0
        self._visits: Counter[tuple[int, int, int]] = Counter()  # of blocks
        self._cycles: dict[Charge, float] = {}
        self._runs: dict[Owner, int] = {}

    def visit(self, event: Event) -> None:
        _, start, stop, kind, more = event
        if kind == STEP:
            self._section += 1
        else:
            block = int(start), int(stop), int(more[0])
            self._visits[block] += self._sections[self._section]

    def wait(self, recording: Recording, chip: constants.ChipConstants, line: Timeline) -> None:
        """The waits, those that fill the pipeline apart."""
        points, self._section = [*line.points, line.end], 0
        fill = next((n for n, p in enumerate(points) if p.waited > points[0].waited), 0)

        def watch(kind: int, begun: float, _: float, moved: float, end: float, name: float) -> None:
            self._section += kind == STEP
            if kind in (WAITED, LINK_WAITED):
                times = self._sections[self._section]
                is_fill = kind == WAITED and self._section <= fill
                first, cause = bool(times) and is_fill, _WAITS[kind]
                waiting = self._places.wait(int(name))
                for owner, n in ((NamedPart.FILL, first), (waiting, times - first)):
                    self._add(owner, cause, n * (moved - begun))
                    self._add(owner, Cause.LATENCY, n * (end - moved))

        dma.replay(recording.events, dma.shared(chip), recording.final, watch)

    def settle(self, costs: Costs) -> None:
        """What the blocks have issued and stalled for."""
        stalls, lanes = costs.stalls_before, costs.lane_stalls_before
        for (start, stop, extra), times in self._visits.items():
            if start == stop:
                self._add(*self._places.scalar(start)[:2], times * extra)
            for address in range(start, stop):
                shares = self._places.issue(address, stop)
                each = times * (1 + extra * (address == stop - 1)) / len(shares)
                for owner, cause, _ in shares:
                    self._add(owner, cause, each)
                    self._runs[owner] = max(self._runs.get(owner, 0), times)
                stall = stalls[address + 1] - stalls[address]
                if stall:
                    owner, lane = self._places.stall(costs.late[address]), lanes[address + 1]
                    lane -= lanes[address]
                    self._add(owner, Cause.LANE_STALL, times * lane)
                    self._add(owner, Cause.MATRIX_STALL, times * (stall - lane))

    def _add(self, owner: Owner, cause: Cause, cycles: float) -> None:
        if cycles:
            charge = Charge(owner, cause)
            self._cycles[charge] = self._cycles.get(charge, 0.0) + cycles

    def rows(self, total: float) -> Iterator[ProfileRow]:
        """Whole cycles that add up to the total: block by block, the walk has rounded a little."""
        scale, before = total / max(sum(self._cycles.values()), 1e-9), 0.0
        whole: dict[Owner, list[tuple[Cause, int]]] = {}
        for (owner, cause, _), cycles in sorted(self._cycles.items(), key=lambda item: -item[1]):
            after = before + cycles * scale
            if round(after) > round(before):
                whole.setdefault(owner, []).append((cause, round(after) - round(before)))
            before = after
        for owner, causes in whole.items():
            part = owner if isinstance(owner, NamedPart) else None
            frames = () if isinstance(owner, NamedPart) else owner
            runs = self._runs.get(owner, 0)
            yield ProfileRow(frames=frames, part=part, cycles=tuple(causes), runs=runs)
