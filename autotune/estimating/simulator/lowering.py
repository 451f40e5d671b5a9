"""A slice and its block costs to one generated Python function that runs the kernel.

The function walks the blocks, keeps a clock that knows bundles and interlock stalls but no DMA
waits, and emits an event for each DMA, each wait and each pass of the outer loop header. Only
names that passed :func:`scalars.identifier` and integers ever reach the generated source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from autotune.estimating.simulator.bundles import NO_MEMORY, Bundle, CallOperand, Listing
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.graph import Block, Branch, Graph
from autotune.estimating.simulator.memory import Scalars, operand_address, signed_words
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.scalars import Expression, Instruction, identifier, value_of
from autotune.estimating.simulator.slicing import (
    PHIS,
    REMOTE_SIGNAL,
    SIGNAL,
    WAIT,
    Crossing,
    Slice,
    base,
    is_copy,
)
from autotune.estimating.simulator.stalls import Costs

# Kinds of event: (clock, amount, semaphore, kind, more). A DMA's kind is its HBM traffic, as a sum.
ON_CHIP, HBM_READ, HBM_WRITE = 0, 1, 2
WAITED, STEP, SIGNALLED, BLOCK, TOLD, AWAITED = -1, -2, -3, -4, -5, -6
LINK_WAITED = -7  # a kind that only the replay knows
ANY_SEMAPHORE = -1.0  # an absolute number, which no wait names

# ``more`` is the work so far for STEP, the burst in bytes (0: one piece) for a DMA, the number of
# the operation for WAITED and AWAITED, else empty. A DMA that may go to another device has two
# more: the semaphore that says it is sent, and its overrides, negative where data decide them.
# TOLD: a semaphore of another device is raised, as the like of it raises this one's; AWAITED: one
# that another device may raise. A BLOCK, told of on demand, is (clock, first address, last
# address + 1, BLOCK, unprinted cycles).
Event = tuple[float, float, float, int, tuple[float, ...]]
Emit = Callable[[Event], None]
# Of emit, the most steps and the most blocks: the clock, the work, the steps left after an early
# stop (None where it ran to the end), and whether the most blocks were reached.
Walk = Callable[[Emit, int, int], tuple[float, "CoreWork", int | None, bool]]


class CoreWork(NamedTuple):
    """What the core has done, cycles: bundles issued, those of them without a vector operation,
    MXU cycles asked for, and stalls for cross-lane and transcendental results."""

    bundles: float
    scalar: float
    mxu: float
    lane_stalls: float


_WORK = "CoreWork(n, s, m, x)"


def lower(
    listing: Listing,
    graph: Graph,
    part: Slice,
    costs: Costs,
    scalars: Scalars,
    chip: ChipConstants,
    *,
    tell_blocks: bool = False,
) -> Walk:
    """Generate and compile the function. ``tell_blocks``: emit a BLOCK event for each as well."""
    writer = _Writer(listing, graph, part, costs, chip.step_cycles, tell_blocks)
    source = "\n".join([*_prologue(part, scalars), *writer.dispatch(), " return walk", ""])
    scope: dict[str, Any] = {"CoreWork": CoreWork}
    exec(compile(source, "<slice of a listing>", "exec"), scope)  # noqa: S102 (made of a listing here)
    memory = part.memory
    fill = partial(memory.fill, granule_bytes=chip.granule_bytes)
    walk: Walk = scope["make"](memory.load, memory.store, fill, memory.spoil)
    return walk


def _prologue(part: Slice, scalars: Scalars) -> list[str]:
    """Values that a path never assigns are read by speculated operations: they begin as 0."""
    names = [identifier(name) for name in part.instructions]
    names += [_incoming(phi) for phis in part.phis_fed.values() for phi in phis]
    names += [f"slot_{store.slot}" for store in part.stores.values() if store.slot]
    names += [f"slot_{load.slot}" for load in part.instructions.values() if load.slot]
    names += [_branch_test(root.name) for root in part.roots.values() if root.opcode == "sbr.rel"]
    lines = ["def make(load, store, fill, spoil):", " def walk(emit, max_steps, max_blocks):"]
    lines += [f"  {name} = 0" for name in dict.fromkeys(names)]
    readers = [*part.instructions.values(), *part.roots.values(), *part.stores.values()]
    read = {name for reader in readers for name in reader.reads()}
    for name in filter(read.__contains__, part.operands):
        targets = [identifier(name), *map(_incoming, part.phis_fed.get(name, ()))]
        lines.append(f"  {' = '.join(targets)} = {_operand_value(part.operands[name], scalars)}")
    return [*lines, "  t = n = s = m = x = 0.0", "  steps = blocks = at = 0"]


def _operand_value(operand: CallOperand, scalars: Scalars) -> str:
    """A scalar operand is its value; where it is not given, reading it in the slice refuses."""
    if operand.memory != NO_MEMORY:
        return str(operand_address(operand))
    words = signed_words(scalars.get(operand.number, ())[:1])
    return str(words[0]) if words else "0"


def check_scalars(part: Slice, scalars: Scalars, *, dynamic_grid: bool) -> None:
    """Refuse where a scalar operand decides the time and was not given."""
    readers = [*part.instructions.values(), *part.roots.values()]
    readers += [store for name, store in part.stores.items() if name not in part.poisoned]
    read = {name for reader in readers for name in _decisive_reads(reader, part)}
    for name, operand in part.operands.items():
        missing = operand.memory == NO_MEMORY and not scalars.get(operand.number)
        if missing and name in read:
            what = "the grid bound or another scalar" if dynamic_grid else "a scalar"
            reason = f"operand {operand.number} is {what} that decides the time: not given"
            raise UnfitError(reason, operand.number)


def _decisive_reads(reader: Instruction, part: Slice) -> tuple[str, ...]:
    if is_copy(reader):
        return tuple(name for part in reader.arguments[1:4:2] for name in part.reads)
    return () if reader.name in part.crossings else reader.reads()


def _incoming(phi: str) -> str:
    return f"in_{identifier(phi)}"


class _Writer:
    """Writes the body of the function, block by block."""

    def __init__(
        self, listing: Listing, graph: Graph, part: Slice, costs: Costs, step: float, tell: bool
    ) -> None:
        self._bundles, self._step_cycles = listing.bundles, step
        self._tell_blocks = tell
        self._graph, self._slice = graph, part
        self._costs = costs
        self._places = sorted(graph.blocks)
        self._number = {place: i for i, place in enumerate([*self._places, graph.exit])}

    def dispatch(self) -> list[str]:
        """The loop that picks the next block by bisection over its number."""
        end = f"   if at == {len(self._places)}: return t, {_WORK}, None, False"
        stop = f"   if blocks > max_blocks: return t, {_WORK}, None, True"
        choice = self._choose(0, len(self._places), "   ")
        return ["  while True:", end, "   blocks += 1", stop, *choice]

    def _choose(self, first: int, last: int, pad: str) -> list[str]:
        if last - first == 1:
            block = self._graph.blocks[self._places[first]]
            return [pad + line for line in self._block(block)]
        half = (first + last) // 2
        below, above = self._choose(first, half, pad + " "), self._choose(half, last, pad + " ")
        return [f"{pad}if at < {half}:", *below, f"{pad}else:", *above]

    def _block(self, block: Block) -> list[str]:
        back_edge = self._graph.back_edge
        at_header = back_edge is not None and block.start == back_edge.target
        lines = self._step(block.start) if at_header else []
        if self._tell_blocks:
            event = f"(t, {block.start}, {block.stop}, {BLOCK}, ({block.extra},))"
            lines.append(f"emit({event})")
        for address in range(block.start, block.stop):
            bundle = self._bundles[address]
            if bundle.operations:
                offset = self._costs.clock(block.start, address)
                lines += self._bundle(bundle, offset)
        clock = self._costs.clock(block.start, block.stop - 1)
        mxu = self._costs.mxu(block.start, block.stop)
        lane = self._costs.lane_stalls(block.start, block.stop)
        count = block.stop - block.start + block.extra
        scalar = sum(not bundle.vector for bundle in self._bundles[block.start : block.stop])
        scalar += block.extra
        lines.append(f"t += {clock + 1 + block.extra}; n += {count}; s += {scalar}")
        lines += [f"m += {mxu}"] if mxu else []
        lines += [f"x += {lane}"] if lane else []
        return [*lines, self._jump(block)]

    def _jump(self, block: Block) -> str:
        otherwise = self._number[block.otherwise]
        if block.branch is None:
            return f"at = {otherwise}"
        taken = _branch_test(block.branch.operation.name)
        return f"at = {self._number[block.taken]} if {taken} else {otherwise}"

    def _step(self, header: int) -> list[str]:
        """At the outer header: count the step, and stop early where the rest can be known."""
        lines = ["steps += 1", f"emit((t, 0, 0, {STEP}, {_WORK}))"]
        left = _steps_left(self._graph.back_edge, self._slice)
        if left:
            enough = "steps > max_steps or blocks * 4 > max_blocks and steps > 64"
            lines += [f"if {enough}:", f" return t, {_WORK}, {left}, False"]
        more = self._step_cycles  # beside its bundles: told as a block without any
        told = f"emit((t, {header}, {header}, {BLOCK}, ({more},))); " * self._tell_blocks
        return [*lines, f"{told}t += {more}; n += {more}; s += {more}"] if more else lines

    def _bundle(self, bundle: Bundle, offset: float) -> list[str]:
        lines, part = self._phis(bundle), self._slice
        for operation in bundle.operations:
            name = operation.name
            if operation.opcode == "sst":
                if name in part.stores:
                    lines += self._store(part.stores[name], name in part.poisoned)
            elif name in part.roots:
                lines += _root(part, name, offset)
            elif name in part.instructions and operation.opcode not in PHIS:
                lines += self._assign(part.instructions[name])
        return lines

    def _phis(self, bundle: Bundle) -> list[str]:
        """All phis of a header take their values at once, before anything else."""
        names = [o.name for o in bundle.operations if o.opcode in PHIS]
        names = [name for name in names if name in self._slice.instructions]
        if not names:
            return []
        targets = ", ".join(identifier(name) for name in names)
        lines = [f"{targets} = {', '.join(_incoming(name) for name in names)}"]
        for name in names:
            lines += [f"{_incoming(p)} = {identifier(name)}" for p in self._fed(name)]
        return lines

    def _fed(self, name: str) -> tuple[str, ...]:
        return self._slice.phis_fed.get(name, ())

    def _assign(self, instruction: Instruction) -> list[str]:
        targets = [identifier(instruction.name), *map(_incoming, self._fed(instruction.name))]
        value, guard = _loaded_or_computed(instruction), instruction.guard
        if guard and guard.old:
            value = f"({value}) if {guard.test} else {guard.old.source}"
        line = f"{' = '.join(targets)} = {value}"
        return _guarded([line], instruction if guard and not guard.old else None)

    def _store(self, store: Instruction, poisoned: bool) -> list[str]:
        if len(store.arguments) != 1:
            raise UnfitError("unreadable scalar store")
        value = "None" if poisoned else store.arguments[0].source
        if store.slot:
            return _guarded([f"slot_{store.slot} = {value}"], store)
        address = store.address.source if store.address else "0"
        return _guarded([f"store({address}, {value})"], store)


def _root(part: Slice, name: str, offset: float) -> list[str]:
    root = part.roots[name]
    if root.opcode == "sbr.rel":
        return [f"{_branch_test(root.name)} = {root.guard.test if root.guard else True}"]
    crossing = part.crossings.get(name)
    if is_copy(root):
        amount, semaphore = root.arguments[1], root.arguments[3]
        kind, more = _traffic(root.opcode), f"({part.bursts.get(name, 0)},{_ends(root, crossing)})"
    else:
        semaphore, amount = root.arguments
        kind, more = _WAITS.get(root.opcode, AWAITED), f"({number(name)},)"
    if crossing is not None:
        semaphore = crossing.received or _ANY
        amount = amount if is_copy(root) else Expression("0")
    lines = [f"emit((t + {offset}, {amount.source}, {semaphore.source}, {kind}, {more}))"]
    if name in part.copies:
        copied, target = part.copies[name], root.arguments[2]
        lines += [
            f"spoil({base(target)})"
            if copied is None
            else f"fill({copied.operand}, {copied.source.source}, {amount.source}, {target.source})"
        ]
    return _guarded(lines, root)


_ANY = Expression(str(ANY_SEMAPHORE))
_WAITS = {WAIT: WAITED, SIGNAL: SIGNALLED, REMOTE_SIGNAL: TOLD}


def _ends(root: Instruction, crossing: Crossing | None) -> str:
    """A device that data choose is told from others by the operation that says which."""
    if crossing is None:
        return ""
    which = crossing.overrides
    if which is None:
        names = root.arguments[root.argument_names.index("overrides")].reads
        which = Expression(str(-number(names[0])))
    return f"{(crossing.sent or _ANY).source},{which.source}"


def number(name: str) -> int:
    """Of an operation: %205 and %s205_s3 are the 205th."""
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else 0


def _branch_test(name: str) -> str:
    return f"taken_{name.removeprefix('%')}"


def _loaded_or_computed(instruction: Instruction) -> str:
    if instruction.opcode != "sld":
        return value_of(instruction)
    if instruction.slot:
        return f"slot_{instruction.slot}"
    return f"load({instruction.address.source if instruction.address else 0})"


def _guarded(lines: list[str], instruction: Instruction | None) -> list[str]:
    if instruction is None or instruction.guard is None:
        return lines
    return [f"if {instruction.guard.test}:", *(" " + line for line in lines)]


def _traffic(opcode: str) -> int:
    source, _, target = opcode.removeprefix("dma.").partition("_to_")
    return HBM_READ * (source == "hbm") + HBM_WRITE * (target == "hbm")


def _steps_left(back_edge: Branch | None, part: Slice) -> str | None:
    """Return an expression for the steps still to run, where the loop counts up by one.

    The loop test is ``p = scmp.ge x, bound`` with ``x = sadd 1, <phi>``, branch on not p.
    """
    root = part.roots.get(back_edge.operation.name) if back_edge else None
    if root is None or root.guard is None:
        return None
    test = part.instructions.get(root.guard.predicate)
    relation = "ge" if root.guard.test.startswith("not ") else "lt"
    opcode = f"scmp.{relation}.s32.totalorder"
    if test is None or test.opcode != opcode or test.guard or len(test.arguments) != 2:
        return None
    counter, bound = test.arguments
    step = part.instructions.get(counter.reads[0]) if counter.reads else None
    if step is None or step.opcode != "sadd.s32" or step.guard:
        return None
    if [a.source for a in step.arguments if not a.reads] != ["1"]:
        return None
    return f"{bound.source} - {counter.source}"
