"""Scalar memory: which allocation holds which operand, and what a load from it yields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.domain.tiling import sublane_tile
from autotune.simulator.bundles import CallOperand, Listing, Operation
from autotune.simulator.outcome import UnfitError
from autotune.simulator.scalars import ALLOCATION_SHIFT, Expression, Instruction, understand

Scalars = Mapping[int, Sequence[int]]  # operand index -> its elements, flat

LANES = 128
_ROWS_PER_WORD = {"s8": 4, "u8": 4, "s16": 2, "u16": 2, "s32": 1, "u32": 1}
_FIRST_OPERAND = 1 << 10  # operands get addresses above every allocation a listing has
_COPIES = (
    "int_to_ptr.hbm",
    "int_to_ptr.vmem",
    "int_to_ptr.smem",
    "int_to_ptr.cmem",
    "smov",
    "sshll.u32",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarMemory:
    """SMEM as the kernel finds it. Addresses are ``allocation << ALLOCATION_SHIFT | word``."""

    given: Mapping[int, Sequence[int]]  # allocation -> words
    absent: Mapping[int, int]  # allocation -> operand whose words were not given
    opaque: bool  # some copy into SMEM has a destination that is not understood
    stored: dict[int, int | None] = field(default_factory=dict)  # None: not computable

    def load(self, address: int) -> int:
        """Return the word; UnfitError where it is data that was not given.

        An allocation that nothing ever writes (core id, logical chip id, the dummy target of a
        speculated load) reads as 0, and so does a word past the end of an operand.
        """
        if address in self.stored:
            word = self.stored[address]
            if word is None:
                raise UnfitError("a scalar computed from vector data decides the time")
            return word
        allocation, word_index = divmod(address, 1 << ALLOCATION_SHIFT)
        words = self.given.get(allocation)
        if words is not None:
            return words[word_index] if word_index < len(words) else 0
        if allocation in self.absent:
            index = self.absent[allocation]
            raise UnfitError(f"the contents of scalar operand {index} decide the time: not given")
        if self.opaque:
            raise UnfitError("scalar memory that is filled while the kernel runs decides the time")
        return 0

    def store(self, address: int, word: int | None) -> None:
        """Write one word."""
        self.stored[address] = word


def operand_address(operand: CallOperand) -> int:
    """Return a distinct stand-in for the address of an operand."""
    return (_FIRST_OPERAND + operand.number % 512) << ALLOCATION_SHIFT


def signed_words(words: Sequence[int]) -> tuple[int, ...]:
    """Return the words as signed 32-bit values."""
    return tuple(((int(word) + 0x80000000) & 0xFFFFFFFF) - 0x80000000 for word in words)


def packed(elements: Sequence[int], dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the signed 32-bit words of an array as it lies in scalar memory.

    Rows and columns are tiled (1, 2, 4 or 8, 128), rows of narrow types share a word: the word of
    ``int8[r, c]`` holds the rows r to r+3 of one column. One dimension is cut into rows of 128.
    Elements that are not given are 0.
    """
    rows_per_word = _ROWS_PER_WORD.get(dtype)
    if rows_per_word is None or len(elements) > math.prod(shape):
        raise UnfitError(f"{len(elements)} scalars were given for {dtype}{list(shape)}")
    if len(shape) < 2:
        shape = (-(-math.prod(shape) // LANES), LANES)
    rows, columns = shape[-2:]
    height = sublane_tile(rows, rows_per_word)
    bands, tiles = -(-rows // height), -(-columns // LANES)
    words = [0] * (math.prod(shape[:-2]) * bands * tiles * height * LANES // rows_per_word)
    bits = 32 // rows_per_word
    for position, element in enumerate(elements):
        line, column = divmod(position, columns)
        plane, row = divmod(line, rows)
        tile = (plane * bands + row // height) * tiles + column // LANES
        word = (tile * height + row % height) // rows_per_word * LANES + column % LANES
        words[word] |= (int(element) & ((1 << bits) - 1)) << row % rows_per_word * bits
    return signed_words(words)


def layout(
    listing: Listing, definitions: Mapping[str, Operation], scalars: Scalars
) -> ScalarMemory:
    """Find the copies of operands into SMEM (scalar prefetch) and fill in what was given."""
    operands = {operand.name: operand for operand in listing.operands}
    filled = {
        operand_address(operand) >> ALLOCATION_SHIFT: operand
        for operand in listing.operands
        if operand.memory == "smem"
    }
    opaque = False
    for copy in _copies_to_smem(listing):
        source = _origin(copy.arguments[0].reads, definitions)
        target = _constant_allocation(copy, definitions)
        if copy.guard or source not in operands or target is None:
            opaque = True
        else:
            filled[target] = operands[source]
    return ScalarMemory(
        given={
            a: packed(scalars[o.number], o.dtype, o.shape)
            for a, o in filled.items()
            if o.number in scalars
        },
        absent={a: o.number for a, o in filled.items() if o.number not in scalars},
        opaque=opaque,
    )


def _copies_to_smem(listing: Listing) -> list[Instruction]:
    copies = [
        understand(operation)
        for bundle in listing.bundles
        for operation in bundle.operations
        if operation.opcode.startswith("dma.") and operation.opcode.endswith("_to_smem")
    ]
    if any(len(copy.arguments) < 4 for copy in copies):
        raise UnfitError("unreadable DMA to scalar memory")
    return copies


def _origin(reads: tuple[str, ...], definitions: Mapping[str, Operation]) -> str | None:
    """Follow plain copies back to the name that they begin with."""
    for _ in range(16):
        if len(reads) != 1:
            return None
        operation = definitions.get(reads[0])
        if operation is None or operation.opcode not in _COPIES:
            return reads[0]
        before = understand(operation).arguments[:1]
        if not before or not before[0].reads:
            return reads[0]
        reads = before[0].reads
    return None


def _constant_allocation(copy: Instruction, definitions: Mapping[str, Operation]) -> int | None:
    address = constant(copy.arguments[2], definitions)
    if address is None or address % (1 << ALLOCATION_SHIFT):
        return None
    return address >> ALLOCATION_SHIFT


def constant(value: Expression, definitions: Mapping[str, Operation]) -> int | None:
    """Return the number that an argument is, through plain copies; None where it is none."""
    name = _origin(value.reads, definitions) if value.reads else None
    if name is not None:
        operation = definitions.get(name)
        if operation is None or operation.opcode != "smov":
            return None
        arguments = understand(operation).arguments
        if len(arguments) != 1 or arguments[0].reads:
            return None
        value = arguments[0]
    source = value.source.strip("()")
    return int(source) if source.isdigit() else None
