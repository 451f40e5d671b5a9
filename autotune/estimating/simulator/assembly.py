"""The final listing of a function, put together from its operations as the compiler packs them and
from the packer's log, which says in which bundle it places each.

To be printed by libtpu, a final listing has to be packed three more times
(docs/explanation/compiling-without-a-tpu.md); these two cost next to nothing. The result is what
:func:`simulator.bundles.parse` makes of libtpu's own listing: the same bundles, with the
same operations of those that can decide time, and where regions start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from autotune.estimating.simulator import bundles as listings
from autotune.estimating.simulator.graph import SLOTS_NEVER_MERGED

# A message of libtpu's log: the thread; the function that it begins to pack, or the bundle and the
# name of an operation.
_MESSAGE = re.compile(
    r"^I\d{4} [\d:.]+ +(\d+) (?:"
    r"global_bundle_packer\.cc:\d+\] \[([^\]\n]*)\] packing bundles$|"
    r"bundle_packer\.cc:\d+\] placing instruction in bundle\n"
    r"\tscheduled bundleno: (\w+)\n"
    r"\tinstruction: (%\w+) = )",
    re.M,
)
_FUNCTION = re.compile(r"^\$region\d+[^:\n]*: #\{(.*)\}$", re.M)
_LINE = re.compile(r"^ *(?:\$region(\d+)|(%\w+) = (\S+).*)", re.M)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_TARGET = re.compile(r"\btarget = \$region(\d+)")
_NAME = re.compile(r"%\w+")
_AT_THE_START = -1  # of its region
_NOWHERE = 1 << 31


class AssemblyError(Exception):
    """Log and operations do not fit together; the sentence says where."""


class Assembled(NamedTuple):
    """A listing, and a digest of all operations and their places, of those as well that cannot
    decide time."""

    listing: listings.Listing
    digest: str


class _Operation(NamedTuple):
    name: str
    opcode: str
    text: str
    """All of it, with its name and comments."""
    region: int


class Placements:
    """By function, as it was packed last: the bundle of each operation, by name. Bundles count
    what is empty too."""

    def __init__(self) -> None:
        self._packing: dict[str, dict[str, int]] = {}
        self._places: dict[str, dict[str, int]] = {}
        self._last = ""

    def read(self, log: str) -> None:
        """``log``: what was logged since. Its last message may not be complete, and is read
        again with what comes next."""
        text = self._last + log
        for thread, function, bundle, name in _MESSAGE.findall(text):
            if not bundle:
                self._packing[thread] = self._places[function] = {}
            elif thread in self._packing:
                self._packing[thread][name] = int(bundle, 16)
        self._last = text[text.rfind("\nI") + 1 :]

    def of(self, function: str) -> dict[str, int]:
        return self._places.get(function, {})

    def forget(self, function: str) -> None:
        """Once it is put together: there are millions of operations in a model."""
        self._places.pop(function, None)


def function_name(operations: str) -> str:
    """Of which function a text of operations is; empty where it does not say."""
    named = _FUNCTION.search(operations)
    return named[1] if named else ""


def assemble(operations: str, placed: Mapping[str, int], *, delay_slots: int) -> Assembled:
    """The listing of a function.

    ``operations``: the text of its operations in regions, registers allocated; ``placed``: their
    bundles. Raises ``AssemblyError``.
    """
    function, begins = _read(operations)
    where = _bundles(function, placed)
    branches = {
        bundle: _target(operation)
        for operation, bundle in zip(function, where, strict=True)
        if operation.opcode == "sbr.rel"
    }
    starts = _region_starts(begins, where, branches, delay_slots)
    where = [
        _start(operation, starts) if bundle == _AT_THE_START else bundle
        for operation, bundle in zip(function, where, strict=True)
    ]
    numbers = _printed_numbers(where, branches, starts, delay_slots)
    bundles: list[list[_Operation]] = [[] for _ in range(numbers[-1])]
    for operation, bundle in zip(function, where, strict=True):
        bundles[numbers[bundle]].append(operation)
    ends = {bundle: bundle + delay_slots + 1 for bundle in branches}
    listing = _listing(
        operations,
        bundles,
        {region: numbers[start] for region, start in starts.items()},
        tuple((numbers[start], numbers[end] - numbers[start] - 1) for start, end in ends.items()),
    )
    texts = (";".join([operation.text for operation in bundle]) for bundle in bundles)
    return Assembled(listing, hashlib.sha256("\n".join(texts).encode()).hexdigest())


def _listing(
    text: str,
    bundles: Sequence[Sequence[_Operation]],
    starts: Mapping[int, int],
    shadows: tuple[tuple[int, int], ...],
) -> listings.Listing:
    """``starts``: bundle at which each region starts that a branch leads to."""
    begun: dict[int, list[int]] = {}
    for region, number in starts.items():
        begun.setdefault(number, []).append(region)
    memories = listings.memories_of(text)
    made = tuple(
        listings.Bundle(
            operations=tuple(_decisive(bundle, memories)),
            starts=tuple(begun.get(number, ())),
            ends=(),
            depth=0,  # asked for only where shadows are not known
            empty=not bundle,
            vector=any(listings.is_vector(operation.opcode) for operation in bundle),
        )
        for number, bundle in enumerate(bundles)
    )
    return listings.Listing(
        bundles=made,
        operands=listings.call_operands("\n".join(operation.text for operation in bundles[0])),
        grid=listings.grid_of(text),
        pipelined=listings.is_pipelined(text),
        spill_bundles=sum(
            any("_spill" in packed.text and listings.is_spill(packed.text) for packed in bundle)
            for bundle in bundles
        ),
        shadows=shadows,
    )


def _decisive(
    bundle: Sequence[_Operation], memories: Mapping[str, str]
) -> Iterator[listings.Operation]:
    """As :mod:`simulator.bundles` says; most have no comments, and nothing to look for."""
    for name, opcode, text, _ in bundle:
        if not listings.is_decisive(name, opcode):
            continue
        if "/*" in text or opcode.startswith("dma."):
            yield from listings.decisive_operations(text, memories)
        else:
            yield listings.Operation(name, opcode, text[len(name) + 3 + len(opcode) :].strip())


def _read(text: str) -> tuple[list[_Operation], dict[int, int]]:
    """A function's operations in the order of the text, and at which of them each region begins."""
    operations: list[_Operation] = []
    begins: dict[int, int] = {}
    region, end = 0, 0
    for line in _LINE.finditer(text):
        if line.start() < end:
            continue  # within a comment
        if line[1]:
            region = int(line[1])
            begins[region] = len(operations)
            continue
        end = _end_of_comments(text, line)
        operation = text[line.start(2) : end]
        operations.append(_Operation(line[2], line[3], operation, region))
    return operations, begins


def _end_of_comments(text: str, line: re.Match[str]) -> int:
    """Where an operation ends that begins in this line: its comments may take more."""
    if line[0].count("/*") == line[0].count("*/"):
        return line.end()
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, line.start()):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0 and edge.end() >= line.end():
            return edge.end()
    raise AssemblyError(f"a comment is never closed: {line[0].strip()[:80]!r}")


def _bundles(function: Sequence[_Operation], placed: Mapping[str, int]) -> list[int]:
    """Of each operation. Those that take no slot are in none by the log: operands come first, phis
    stand at the start of their region, and a pointer beside what it is made of."""
    bundles: dict[str, int] = {}
    for name, opcode, text, _ in function:
        bundle = placed.get(name)
        if bundle is None:
            if opcode.startswith("inlined_call_operand"):
                bundle = 0
            elif opcode.endswith("phi"):
                bundle = _AT_THE_START
            elif opcode.startswith("int_to_ptr"):
                bundle = max(
                    (bundles.get(operand, 0) for operand in _NAME.findall(text)[1:]), default=0
                )
            else:
                raise AssemblyError(f"the log does not place {text[:80]!r}")
        bundles[name] = bundle
    if len(bundles) != len(function):
        raise AssemblyError("a name stands for two operations")
    if missing := placed.keys() - bundles:
        raise AssemblyError(f"the text ends before {min(missing)}, which the log places")
    return list(bundles.values())


def _target(branch: _Operation) -> int:
    target = _TARGET.search(branch.text)
    if target is None:
        raise AssemblyError(f"unreadable branch target: {branch.text[:80]!r}")
    return int(target[1])


def _start(phi: _Operation, starts: Mapping[int, int]) -> int:
    if phi.region not in starts:
        raise AssemblyError(f"no branch leads to the region of {phi.text[:80]!r}")
    return starts[phi.region]


def _region_starts(
    begins: Mapping[int, int], where: Sequence[int], branches: Mapping[int, int], delay_slots: int
) -> dict[int, int]:
    """First bundle of each region that a branch leads to: after all that stands before it in the
    text and the delay slots of that, and nothing that stands behind it is earlier."""
    latest = [-1, *accumulate(where, max)]
    known = [bundle if bundle >= 0 else _NOWHERE for bundle in where]
    earliest = [*reversed([*accumulate(reversed(known), min)]), _NOWHERE]
    starts: dict[int, int] = {}
    for region in branches.values():
        if region not in begins:
            raise AssemblyError(f"a branch leads to the region {region}, which is not there")
        begin = begins[region]
        least, most = latest[begin] + 1, earliest[begin]
        if most < least:
            raise AssemblyError(f"what stands before and behind the region {region} is mixed")
        shadows = (bundle + delay_slots + 1 for bundle in branches if bundle < least)
        starts[region] = min(max([least, *shadows]), most)
    return starts


def _printed_numbers(
    where: Sequence[int], branches: Mapping[int, int], starts: Mapping[int, int], delay_slots: int
) -> list[int]:
    """The number under which each bundle is printed, and how many there are.

    An empty bundle is a delay of the one before it, and is not printed; but for those in the delay
    slots of a branch and the one behind them, which have nobody to be a delay of. v7x prints those
    that end a block as one, except where the function ends soon after.
    """
    full = {0, *where}
    lasting = {start for start in starts.values() if start > max(full)}
    count = 1 + max([*full, *lasting, *(bundle + delay_slots + 1 for bundle in branches)])
    for bundle in branches:
        behind = range(bundle + 1, bundle + delay_slots + 2)
        empty = [number for number in behind if number not in full]
        merges = delay_slots > SLOTS_NEVER_MERGED and bundle + 2 * delay_slots < count - 1
        merges = merges and max(empty, default=0) >= bundle + delay_slots
        while merges and empty[-1] - 1 in empty:
            empty.pop()
        lasting.update(empty)
    printed = (bundle in full or bundle in lasting for bundle in range(count))
    return list(accumulate(printed, initial=0))
