"""Bundles to control flow: basic blocks, branch targets, and the loop that runs the grid."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from autotune.estimating.simulator.bundles import Bundle, Listing, Operation
from autotune.estimating.simulator.outcome import UnfitError

# jax 0.9 and later print `target = $regionN`; 0.6.2 prints `bundleno = X (0x..), region = N`,
# where bundleno belongs to another numbering and must not be used.
_TARGET = re.compile(r"\bregion(?: = )?(\d{1,9})\s*$")
_PREDICATE = re.compile(r"\(!?(%\w+)\)")
SLOTS_NEVER_MERGED = 4
_NO_RETURN = re.compile(r"s(?:br|call|ret|hlt|halt)\b(?!\.rel|\.err)")


class Branch(NamedTuple):
    """A relative branch: taken, when its predicate says so, after its delay slots."""

    address: int
    target: int
    operation: Operation


class BlockStart(NamedTuple):
    """Where a block begins, and the address of a branch whose delay slots it begins in (or -1)."""

    address: int
    pending: int


class Block(NamedTuple):
    """Bundles ``start`` to ``stop`` (exclusive); then ``taken`` if ``branch`` says so, else
    ``otherwise``."""

    start: int
    stop: int
    branch: Branch | None
    extra: int  # cycles beyond one a bundle: -1 for an empty bundle that takes no time
    taken: BlockStart
    otherwise: BlockStart


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The blocks that can be reached, and the widest loop."""

    blocks: dict[BlockStart, Block]
    back_edge: Branch | None  # of the widest loop; its target is the loop's header
    exit: BlockStart  # after the last bundle


def connect(listing: Listing, delay_slots: int) -> Graph:
    """Return the control flow of a listing; UnfitError where a branch leads nowhere known.

    The ``delay_slots`` bundles after a branch always issue. v7x puts branches in the delay
    slots of others: there the first that is taken wins (anything else would leave the region
    structure that the compiler prints).
    """
    branches = _branches(listing)
    targets = {branch.target for branch in branches.values()}
    shadows = dict(listing.shadows) or _guessed_shadows(listing, branches, delay_slots)
    shape = _Shape(branches, targets, len(listing.bundles), delay_slots, shadows)
    blocks: dict[BlockStart, Block] = {}
    waiting = [BlockStart(0, -1)]
    while waiting:
        place = waiting.pop()
        if place in blocks or place.address == shape.count:
            continue
        block = blocks[place] = shape.block(place)
        waiting += [block.taken, block.otherwise]
    backward = [branch for branch in branches.values() if branch.target <= branch.address]
    widest = max(backward, key=lambda branch: branch.address - branch.target, default=None)
    return Graph(blocks=blocks, back_edge=widest, exit=BlockStart(shape.count, -1))


def _branches(listing: Listing) -> dict[int, Branch]:
    starts, ends = _regions(listing, "starts"), _regions(listing, "ends")
    branches: dict[int, Branch] = {}
    for address, bundle in enumerate(listing.bundles):
        for operation in bundle.operations:
            if _NO_RETURN.match(operation.opcode):
                raise UnfitError(f"unknown control operation {operation.opcode}")
            if operation.opcode == "sbr.rel":
                if address in branches:
                    raise UnfitError(f"two branches in the bundle {address:#x}")
                branches[address] = Branch(address, _target(operation, starts, ends), operation)
    return branches


def _regions(listing: Listing, edge: Literal["starts", "ends"]) -> dict[int, int]:
    """The address at which each region starts, or ends."""
    addresses: dict[int, int] = {}
    for address, bundle in enumerate(listing.bundles):
        for region in getattr(bundle, edge):
            if addresses.setdefault(region, address) != address:
                raise UnfitError(f"region {region} {edge} twice")
    return addresses


def _target(operation: Operation, starts: dict[int, int], ends: dict[int, int]) -> int:
    printed = _TARGET.search(operation.text)
    if printed is None:
        raise UnfitError(f"unreadable branch target: {operation.text[:60]!r}")
    region = int(printed[1])
    if region in starts:
        return starts[region]
    if region - 1 in ends:  # a region that starts at the exit is not printed (seen on v5p)
        return ends[region - 1] + 1
    raise UnfitError(f"branch to region {region}, which the listing does not hold")


@dataclass(frozen=True, slots=True)
class _Shape:
    """What cuts a listing into blocks."""

    branches: dict[int, Branch]
    targets: set[int]
    count: int
    delay_slots: int
    shadows: dict[int, int]  # branch -> bundles printed in its delay slots

    def block(self, place: BlockStart) -> Block:
        """Return the block at a place: up to the end of a branch, or to the next target."""
        address = place.address
        branch = self.branches.get(place.pending)
        while branch is None and address < self.count:
            branch = self.branches.get(address)
            address += 1
            if address in self.targets:
                break
        if branch is None:
            there = BlockStart(address, -1)
            return Block(place.address, address, None, 0, there, there)
        printed = self.shadows[branch.address]
        stop = branch.address + printed + 1
        if stop > self.count:
            raise UnfitError("the listing ends in the delay slots of a branch")
        shadowed = [a for a in range(branch.address + 1, stop) if a in self.branches]
        otherwise = BlockStart(stop, shadowed[0] if shadowed else -1)
        taken = BlockStart(branch.target, -1)
        extra = -1 if printed < self.delay_slots else 0
        return Block(place.address, stop, branch, extra, taken, otherwise)


def _guessed_shadows(
    listing: Listing, branches: dict[int, Branch], delay_slots: int
) -> dict[int, int]:
    """All, but from the first region on that starts and never ends (region 1 never does)."""
    ended = {region for bundle in listing.bundles for region in bundle.ends} | {1}
    lost = (i for i, bundle in enumerate(listing.bundles) if not ended.issuperset(bundle.starts))
    first = next(lost, len(listing.bundles))
    return {
        a: shadow(listing.bundles, branch, delay_slots) if a >= first else delay_slots
        for a, branch in branches.items()
    }


def shadow(bundles: tuple[Bundle, ...], branch: Branch, delay_slots: int) -> int:
    """Return how many bundles the listing prints in the delay slots of a branch.

    All chips but v7x print all. v7x listings (jax 0.10 and 0.12) merge a run of empty bundles
    that ends a block into one, and the end marker of the block's region is lost with it: only
    then is this asked. The delay slots end at an empty bundle: the last before a bundle that
    starts a region; without one, the first after everything that must be in the delay slots.
    What was merged takes no time: with the slots that are not printed, or even the empty bundle
    itself, counted as cycles, v7x comes out slower than libtpu's estimate by their number.
    """
    window = bundles[branch.address + 1 : branch.address + 1 + delay_slots]
    if delay_slots <= SLOTS_NEVER_MERGED:
        return delay_slots
    starts = next((i for i, bundle in enumerate(window) if bundle.starts), None)
    empty = [i for i, bundle in enumerate(window) if bundle.empty]
    if starts is not None:
        return max((i + 1 for i in empty if i < starts), default=delay_slots)
    # The bundle of the back edge may be printed outside of its loop (seen in tokamax's ragged dot).
    depth = max(bundles[branch.address].depth, bundles[branch.target].depth)
    must = _last_needed(window, branch, depth)
    first = next((i for i in empty if i >= must), None)
    if first is None:
        return delay_slots
    while first + 1 < len(window) and window[first + 1].empty:
        first += 1
    return first + 1


def _last_needed(window: tuple[Bundle, ...], branch: Branch, depth: int) -> int:
    """Return how many bundles of the window are surely in the delay slots.

    What is guarded by the branch's own predicate was moved up into them; and behind a loop's
    back edge, what is printed at the loop's depth.
    """
    predicate = _PREDICATE.search(branch.operation.text)
    needed = 0
    for i, bundle in enumerate(window):
        moved = predicate and any(predicate[1] in o.text for o in bundle.operations)
        back = branch.target <= branch.address and bundle.depth == depth and not bundle.empty
        needed = i + 1 if moved or back else needed
    return needed
