"""The backward slice: the few scalar operations that decide when things happen.

Roots are branch predicates, DMA predicates, sizes and semaphores, and waits. HBM and VMEM
addresses vanish, and with them most of the scalar code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from autotune.estimating.simulator import memory as memories
from autotune.estimating.simulator.bundles import NEVER, NO_MEMORY, CallOperand, Listing, Operation
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.scalars import (
    Expression,
    Instruction,
    allocation_address,
    understand,
    value_of,
)

_LOCAL_DMA = re.compile(r"dma\.(hbm|vmem|smem|cmem)_to_(hbm|vmem|smem|cmem)\Z")
_SPILL = "_spill]"
_LARGEST = 2**31 - 1  # above it a constant is negative
_ALLOCATION = re.compile(r"#allocation(\d{1,9})\b")
_AMOUNT = re.compile(r", (\d{1,10})\Z")
_STEP_BYTES = 512  # of a strided DMA (block shapes against printed strides, v5e to v7x)
PHIS = ("sphi", "pphi")
_UNKNOWN = (Expression("None", ("what no operation defines",)),)
WAIT = "dma.done.wait"
SEMAPHORES = "sflag"  # the memory of those that an operation of XLA is given
SIGNAL = "vsyncadd"  # a local copy done with vector loads and stores signals its semaphore so
REMOTE_SIGNAL = "vsyncadd.remote"  # raises one of another device
_TELLING = (REMOTE_SIGNAL, "vwait.ge", "vwait.ge.trace")
_POLL = "vpop.sfrf"  # takes what vsyncmov has read of a semaphore
_SEMAPHORE_BITS = 0x1FFF  # of an allocation; those above say which device and core it is of
# Bits of what overrides a DMA's ends (v5e to v7x; the last on v7x).
IS_REMOTE, DEVICE, OTHER_CORE = 1 << 14, (1 << 14) - 1, 1 << 26


class Copy(NamedTuple):
    """To scalar memory: from which operand, and where that begins."""

    operand: int
    source: Expression


class Crossing(NamedTuple):
    """What may go to another device: its semaphore there, which the like of it raises here, and the
    semaphore here that says it is sent. None: an absolute number, which no wait names."""

    received: Expression | None
    sent: Expression | None
    overrides: Expression | None  # which device, and whether; None where data decide that


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What must be executed: scalar instructions by name, roots, and stores that are read."""

    instructions: Mapping[str, Instruction]
    roots: Mapping[str, Instruction]  # DMAs, waits and branches, by name
    stores: Mapping[str, Instruction]
    poisoned: frozenset[str]  # stores whose value cannot be computed
    phis_fed: Mapping[str, tuple[str, ...]]  # name -> the phis that may take its value
    operands: Mapping[str, CallOperand]
    memory: memories.ScalarMemory
    bursts: Mapping[str, int]  # DMA -> bytes of each contiguous piece, where it has strides
    copies: Mapping[str, Copy | None]  # DMAs to scalar memory that a load may read, by name;
    # None: what they bring is not known
    crossings: Mapping[str, Crossing]  # DMAs and signals, by name


def cut(listing: Listing, scalars: memories.Scalars) -> Slice:
    """Return the slice of a listing; UnfitError where it holds an opcode that is not known."""
    definitions, stores = _definitions(listing)
    operands = {operand.name: operand for operand in listing.operands}
    search = _Search(definitions=definitions, stores=stores, operands=operands)
    roots = {root.name: root for root in map(_root, _root_operations(listing))}
    if not any(search.overrides(root) for root in roots.values()):  # no other device
        roots = {name: root for name, root in roots.items() if root.opcode not in _TELLING}
    for root in roots.values():
        search.include(_needs(root))
    to_smem = [root for root in roots.values() if root.opcode.endswith("_to_smem")]
    crossings = {name: c for name, root in roots.items() if (c := search.crossing(root, to_smem))}
    copies = search.copies(to_smem, scalars)
    return Slice(
        instructions=search.instructions,
        roots=roots,
        stores=search.lasting,
        poisoned=frozenset(search.poisoned),
        phis_fed=_phis_fed(search.instructions),
        operands=operands,
        memory=memories.layout(
            listing, scalars, opaque=None in copies.values(), sends=bool(crossings)
        ),
        bursts=_bursts(roots, definitions),
        copies=copies,
        crossings=crossings,
    )


def _bursts(
    roots: Mapping[str, Instruction], definitions: Mapping[str, Operation]
) -> dict[str, int]:
    """The last argument of a strided DMA: steps of 512 bytes between two jumps, a constant."""
    sizes: dict[str, int] = {}
    for name, root in roots.items():
        if "steps_per_stride" in root.argument_names:
            steps = root.arguments[root.argument_names.index("steps_per_stride")]
            value = memories.constant(steps, definitions)
            if value is not None:
                sizes[name] = value * _STEP_BYTES
    return sizes


def _definitions(listing: Listing) -> tuple[dict[str, Operation], list[Operation]]:
    definitions: dict[str, Operation] = {}
    stores: list[Operation] = []
    popped: dict[str, int] = {}
    for bundle in listing.bundles:
        for printed in bundle.operations:
            is_pop = printed.opcode == "spop.drf"
            operation = _division(printed, definitions, popped) if is_pop else printed
            if operation.opcode == "sst":
                stores.append(operation)
            elif definitions.setdefault(operation.name, operation) is not operation:
                raise UnfitError(f"{operation.name} is defined twice")
    return definitions, stores


def _division(
    pop: Operation, definitions: Mapping[str, Operation], popped: dict[str, int]
) -> Operation:
    """Name the result that a pop takes from a division: the quotient, then the remainder.

    ``sdivrem`` ending in ``kRem`` gives the remainder only (seen on v5p), one without an ending or
    with ``kDivAndRem`` (XLA's own loops) both; nothing else is known.
    """
    division = definitions.get(pop.text)
    if division is None or division.opcode != "sdivrem.u32":
        return pop
    turn = popped[pop.text] = popped.get(pop.text, -1) + 1
    arguments, _, kind = division.text.partition(" k")
    only = kind == "Rem"
    if kind not in ("", "DivAndRem", "Rem") or turn > (0 if only else 1):
        return pop
    result = "sremainder.u32" if only or turn else "squotient.u32"
    return Operation(pop.name, result, arguments)


def _root_operations(listing: Listing) -> list[Operation]:
    return [
        operation
        for bundle in listing.bundles
        for operation in bundle.operations
        if not operation.text.startswith(NEVER)
        and (
            operation.opcode in ("sbr.rel", *_TELLING)
            or operation.opcode.startswith("dma.")
            or _raises_semaphore(operation)
        )
    ]


def _raises_semaphore(operation: Operation) -> bool:
    """The vsyncadd after a wait lowers it by what was waited for: the wait itself does that."""
    amount = _AMOUNT.search(operation.text) if operation.opcode == SIGNAL else None
    return operation.opcode == SIGNAL and not (amount and int(amount[1]) > _LARGEST)


def _root(operation: Operation) -> Instruction:
    root = understand(operation)
    if is_copy(root):
        _check_dma(root)
    elif root.opcode != "sbr.rel" and len(root.arguments) != 2:
        raise UnfitError(f"unreadable {root.opcode}: {operation.text[:60]!r}")
    return root


def is_copy(root: Instruction) -> bool:
    return root.opcode.startswith("dma.") and root.opcode != WAIT


def _check_dma(root: Instruction) -> None:
    """Arguments are source, size, destination, semaphore; their printed names are checked."""
    if not _LOCAL_DMA.match(root.opcode):
        raise UnfitError(f"unknown kind of DMA {root.opcode}")
    names = root.argument_names
    if len(names) < 4 or names[1] != "size_in_granules" or names[3] != "dst_syncflagno":
        raise UnfitError(f"unreadable arguments of {root.opcode}")


def _needs(root: Instruction) -> list[str]:
    """Return the names that decide time: not the addresses of a DMA."""
    decisive = root.arguments[1:4:2] if is_copy(root) else root.arguments
    if root.opcode in _TELLING:
        decisive = ()
    names = [name for argument in decisive for name in argument.reads]
    return names + ([root.guard.predicate] if root.guard else [])


@dataclass(kw_only=True, slots=True)
class _Search:
    """Work list of the backward slice."""

    definitions: Mapping[str, Operation]
    stores: list[Operation]
    operands: Mapping[str, CallOperand]
    instructions: dict[str, Instruction] = field(default_factory=dict)
    lasting: dict[str, Instruction] = field(default_factory=dict)
    poisoned: set[str] = field(default_factory=set)

    def include(self, names: list[str]) -> None:
        """Add the names and all that their values depend on."""
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.instructions or name in self.operands:
                continue
            instruction = self._define(name)
            self.instructions[name] = instruction
            waiting += instruction.reads()
            if instruction.opcode == "sld":
                waiting += self._stored(instruction)

    def _define(self, name: str) -> Instruction:
        operation = self.definitions.get(name)
        if operation is None:
            raise UnfitError(f"{name} decides the time of this kernel and is never defined")
        if operation.opcode == _POLL:
            return self._polled(operation)
        if ".f32" in operation.opcode:
            raise UnfitError(f"a floating-point number decides the time ({operation.opcode})")
        instruction = understand(operation)
        if instruction.opcode not in (*PHIS, "sld"):
            value_of(instruction)  # refuses what it does not know
        return instruction

    def _polled(self, poll: Operation) -> Instruction:
        """XLA's products look in passing whether a collective's next bytes are there, by a
        semaphore that they are given: they are not, and the collective has a time of its own. A
        kernel looks at one that it has made."""
        read = self.definitions.get(poll.text.strip())
        is_given = any(operand.memory == SEMAPHORES for operand in self.operands.values())
        if read is None or not is_given or self._allocations(understand(read).reads(), read):
            raise UnfitError(f"what {poll.name} reads of a semaphore decides the time")
        return understand(Operation(poll.name, "smov", "0"))

    def _stored(self, load: Instruction) -> list[str]:
        """Keep the stores that this load may read; return the names they need. One whose guard
        cannot be computed (XLA's check of a program ends so, on v5p) leaves what nobody knows."""
        needed: list[str] = []
        for operation in self.stores:
            if operation.name in self.lasting or "[smem:" not in operation.text:
                continue
            store = understand(operation)
            if not _may_read(load, store):
                continue
            guards = [Expression("", (store.guard.predicate,))] if store.guard else []
            if not load.slot and self._all_reads(guards, self.operands) is None:
                store = store._replace(guard=None, arguments=_UNKNOWN)
            self.lasting[operation.name] = store
            if load.slot or self._all_reads(store.arguments, self.operands) is not None:
                needed += store.reads()
            else:
                self.poisoned.add(operation.name)
                needed += store._replace(arguments=()).reads()
        return needed

    def copies(
        self, waiting: list[Instruction], scalars: memories.Scalars
    ) -> dict[str, Copy | None]:
        """What those copies to scalar memory bring that some load of the slice may read. To follow
        one takes loads of its own."""
        copies: dict[str, Copy | None] = {}
        while read := [copy for copy in waiting if self._is_read(copy)]:
            copies |= {copy.name: self.copied(copy, scalars) for copy in read}
            waiting = [copy for copy in waiting if copy.name not in copies]
        return copies

    def _is_read(self, copy: Instruction) -> bool:
        loads = (i for i in self.instructions.values() if i.opcode == "sld" and not i.slot)
        return any(_may_be_one(load.address, copy.arguments[2]) for load in loads)

    def crossing(self, root: Instruction, to_smem: Sequence[Instruction]) -> Crossing | None:
        """None for what stays on the device."""
        if root.opcode in _TELLING:
            return Crossing(self._semaphore(root.arguments[0], to_smem), None, None)
        if (overrides := self.overrides(root)) is None:
            return None
        named = dict(zip(root.argument_names, root.arguments, strict=True))
        return Crossing(
            self._semaphore(named["dst_syncflagno"], to_smem),
            self._semaphore(named["src_syncflagno"], to_smem),
            overrides if self._computes(overrides, to_smem) else None,
        )

    def overrides(self, root: Instruction) -> Expression | None:
        """Of a DMA that may go to another device: which one."""
        if not is_copy(root) or "overrides" not in root.argument_names:
            return None
        overrides = root.arguments[root.argument_names.index("overrides")]
        low = self._low_bits(overrides)
        return overrides if low is None or low & IS_REMOTE else None

    def _low_bits(self, value: Expression) -> int | None:
        """A number of which the bits up to ``IS_REMOTE`` are right, though data may decide others:
        a ragged dot of v6e and v7x names its own core so. None where they are not known."""
        operation = self.definitions.get(next(iter(value.reads), ""))
        given = understand(operation).arguments if operation else ()
        if operation and operation.opcode == "sadd.s32":
            parts = [bits for each in given if (bits := self._low_bits(each)) is not None]
            return sum(parts) if len(parts) == len(given) else None
        if operation and operation.opcode == "sshll.u32":
            return 0 if 1 << (memories.constant(given[1], {}) or 0) > IS_REMOTE else None
        return memories.constant(value, self.definitions)

    def _semaphore(self, value: Expression, to_smem: Sequence[Instruction]) -> Expression | None:
        """The allocation that a value is made of, and its place there."""
        allocations = self._allocations(value.reads)
        if not value.reads:
            return value
        if len(allocations) != 1 or not self._computes(value, to_smem):
            return None
        base = allocation_address(allocations.pop())
        return Expression(f"({base}+({value.source}&{_SEMAPHORE_BITS}))", value.reads)

    def _allocations(self, names: Iterable[str], *first: Operation) -> set[str]:
        """Numbers of those that values are made of, as far as they are not loaded."""
        seen, waiting = set[str](), list(names)
        allocations = {n for op in first for n in _ALLOCATION.findall(op.text)}
        while waiting:
            name = waiting.pop()
            operation = self.definitions.get(name)
            if name in seen or name in self.operands or operation is None:
                continue
            seen.add(name)
            if operation.opcode != "sld":
                allocations.update(_ALLOCATION.findall(operation.text))
                waiting += understand(operation).reads()
        return allocations

    def _computes(self, value: Expression, to_smem: Sequence[Instruction]) -> bool:
        """Whether a value needs nothing that is copied to scalar memory; then it is included."""
        trial = _Search(definitions=self.definitions, stores=self.stores, operands=self.operands)
        try:
            trial.include(list(value.reads))
        except UnfitError:
            return False
        if any(map(trial._is_read, to_smem)):
            return False
        self.include(list(value.reads))
        return True

    def copied(self, copy: Instruction, scalars: memories.Scalars) -> Copy | None:
        """What a copy to scalar memory reads; None where that, or where it writes, is not known."""
        source = memories.copied_from(copy, self.definitions, self.operands)
        if source is None:
            return None
        known = {
            name: operand
            for name, operand in self.operands.items()
            if operand.memory != NO_MEMORY or scalars.get(operand.number)
        }
        reads = self._all_reads([source, copy.arguments[2]], known) or ()
        arrays = [known[n] for n in reads if n in known and known[n].memory != NO_MEMORY]
        if len(arrays) != 1:
            return None
        self.include([*source.reads, *copy.arguments[2].reads])
        return Copy(arrays[0].number, source)

    def _all_reads(
        self, values: Sequence[Expression], operands: Mapping[str, CallOperand]
    ) -> set[str] | None:
        """What values depend on; None where they cannot be computed."""
        spills = [store for store in self.stores if _SPILL in store.text]
        trial = _Search(definitions=self.definitions, stores=spills, operands=operands)
        try:
            trial.include([name for value in values for name in value.reads])
        except UnfitError:
            return None
        taken = chain(trial.instructions.values(), trial.lasting.values())
        read = (name for instruction in taken for name in instruction.reads())
        return {*read, *(name for value in values for name in value.reads)}


def _may_read(load: Instruction, store: Instruction) -> bool:
    """Spill slots match by name; other addresses by allocation, where both are known."""
    if load.slot or store.slot:
        return load.slot == store.slot
    return _may_be_one(load.address, store.address)


def _may_be_one(first: Expression | None, other: Expression | None) -> bool:
    bases = [base(first), base(other)]
    return None in bases or bases[0] == bases[1]


def base(address: Expression | None) -> str | None:
    """Return the constant first term of an address, None where it begins with a value."""
    first = address.source.strip("()").partition("+")[0] if address else ""
    return first if first.isdigit() else None


def _phis_fed(instructions: Mapping[str, Instruction]) -> dict[str, tuple[str, ...]]:
    """A phi takes the value its register got last: all its arguments share its register.

    (A phi is no instruction: final bundles run with registers allocated, so whatever reaches
    the phi must have been written to its own register.)
    """
    fed: dict[str, tuple[str, ...]] = {}
    for phi in instructions.values():
        if phi.opcode in PHIS:
            for name in _phi_arguments(phi):
                fed[name] = (*fed.get(name, ()), phi.name)
    return fed


def _phi_arguments(phi: Instruction) -> list[str]:
    register = phi.name.rpartition("_")[2]
    names = [name for argument in phi.arguments for name in argument.reads]
    others = [name for name in names if name.rpartition("_")[2] != register]
    if phi.guard or others or len(names) != len(phi.arguments):
        raise UnfitError(f"the phi {phi.name} takes a value from another register")
    return list(dict.fromkeys(names))
