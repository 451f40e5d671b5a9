"""Scalar memory: which allocation holds which operand, and what a load from it yields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.domain.problem import sublane_tile
from autotune.estimating.simulator import scalars as expressions
from autotune.estimating.simulator.bundles import NO_MEMORY, CallOperand, Listing, Operation
from autotune.estimating.simulator.outcome import UnfitError

Scalars = Mapping[int, Sequence[int]]  # operand index -> its elements, flat

LANES = 128
_ROWS_PER_WORD = {"s8": 4, "u8": 4, "s16": 2, "u16": 2, "s32": 1, "u32": 1}
_FIRST_OPERAND = 1 << 10  # operands get addresses above every allocation a listing has
_WORD_BYTES = 4
_MASK = 0xFFFFFFFF
_FILLED = "scalar memory that is filled while the kernel runs decides the time"
_BEYOND = "scalar memory that is filled from beyond an operand decides the time"
_POINTERS = [f"int_to_ptr.{memory}" for memory in ("hbm", "vmem", "smem", "cmem")]
_COPIES = (*_POINTERS, "smov", "sshll.u32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarMemory:
    """SMEM as the kernel finds it. Addresses are ``allocation << ALLOCATION_SHIFT | word``."""

    given: Mapping[int, Sequence[int]]  # allocation -> words
    absent: Mapping[int, int]  # allocation -> operand whose words were not given
    opaque: bool  # some copy into SMEM cannot be followed
    operands: Mapping[int, Sequence[int] | None]  # number -> words in HBM, None: not given
    stored: dict[int, int | UnfitError] = field(default_factory=dict)  # or why it is not known

    def load(self, address: int) -> int:
        """Return the word; UnfitError where it is data that was not given.

        An allocation that nothing ever writes (core id, logical chip id, the dummy target of a
        speculated load) reads as 0, and so does a word past the end of an operand.
        """
        if address in self.stored:
            word = self.stored[address]
            if isinstance(word, UnfitError):
                raise word
            return word
        allocation, word_index = divmod(address, 1 << expressions.ALLOCATION_SHIFT)
        words = self.given.get(allocation)
        if words is not None:
            return words[word_index] if word_index < len(words) else 0
        if allocation in self.absent:
            raise _not_given(self.absent[allocation])
        if self.opaque:
            raise UnfitError(_FILLED)
        return 0

    def store(self, address: int, word: int | None) -> None:
        """Write one word, None where it cannot be computed."""
        _refuse_shared(address)
        unknown = UnfitError("a scalar computed from vector data decides the time")
        self.stored[address] = unknown if word is None else word

    def fill(
        self, operand: int, source: int, granules: int, target: int, *, granule_bytes: int
    ) -> None:
        """Copy what a DMA copies from an operand, whose address may have been shifted from units of
        512 bytes to granules."""
        _refuse_shared(target)
        count = granules * granule_bytes // _WORD_BYTES
        addresses = range(target, target + count)
        words = self.operands.get(operand)
        if words is None:
            self.stored.update(dict.fromkeys(addresses, _not_given(operand)))
            return
        offsets = ((source - base) & _MASK for base in _addresses(operand))
        first = min(offsets) * granule_bytes // _WORD_BYTES
        copied: list[int | UnfitError] = [*words[first : first + count]]
        copied += [UnfitError(_BEYOND)] * (count - len(copied))
        self.stored.update(zip(addresses, copied, strict=True))

    def spoil(self, target: int | None) -> None:
        """Forget what was stored where a copy begins that cannot be followed; None: anywhere."""
        where = None if target is None else target >> expressions.ALLOCATION_SHIFT
        for address in self.stored:
            if where in (None, address >> expressions.ALLOCATION_SHIFT):
                self.stored[address] = UnfitError(_FILLED)


def _refuse_shared(address: int) -> None:
    shared = expressions.SHARED_ALLOCATION
    if address >> expressions.ALLOCATION_SHIFT == shared:
        raise UnfitError(f"it stores in more than {shared:,} allocations")


def _addresses(operand: int) -> tuple[int, int]:
    plain = (_FIRST_OPERAND + operand % 512) << expressions.ALLOCATION_SHIFT
    return plain, plain << 4


def _not_given(operand: int) -> UnfitError:
    reason = f"the contents of scalar operand {operand} decide the time: not given"
    return UnfitError(reason, operand)


def operand_address(operand: CallOperand) -> int:
    """Return a distinct stand-in for the address of an operand."""
    return _addresses(operand.number)[0]


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


def layout(listing: Listing, scalars: Scalars, *, opaque: bool, sends: bool) -> ScalarMemory:
    """What was given of the operands, and those of them that are in SMEM from the beginning.
    ``sends``: constants of the program are tables of devices, and all devices are equal."""
    given = {o.number: () for o in listing.operands if sends and o.kind == "const"} | {**scalars}
    words = {
        operand.number: packed(given[operand.number], operand.dtype, operand.shape)
        if operand.number in given
        else None
        for operand in listing.operands
        if operand.memory != NO_MEMORY
    }
    in_smem = {
        operand_address(operand) >> expressions.ALLOCATION_SHIFT: operand.number
        for operand in listing.operands
        if operand.memory == "smem"
    }
    return ScalarMemory(
        given={a: known for a, n in in_smem.items() if (known := words[n]) is not None},
        absent={a: n for a, n in in_smem.items() if words[n] is None},
        opaque=opaque,
        operands=words,
    )


def copied_from(
    copy: expressions.Instruction,
    definitions: Mapping[str, Operation],
    operands: Mapping[str, CallOperand],
) -> expressions.Expression | None:
    """Where a DMA to scalar memory reads: a whole operand, or a place in HBM that is computed. None
    where that cannot be followed."""
    if len(copy.arguments) < 4:
        raise UnfitError("unreadable DMA to scalar memory")
    origin = _origin(copy.arguments[0].reads, definitions) or ""
    if origin in operands:
        return expressions.Expression(str(operand_address(operands[origin])), (origin,))
    is_array = copy.opcode in ("dma.hbm_to_smem", "dma.vmem_to_smem")
    is_plain = is_array and "steps_per_stride" not in copy.argument_names
    return copy.arguments[0] if is_plain else None


def _origin(reads: tuple[str, ...], definitions: Mapping[str, Operation]) -> str | None:
    """Follow plain copies back to the name that they begin with."""
    for _ in range(16):
        if len(reads) != 1:
            return None
        operation = definitions.get(reads[0])
        if operation is None or operation.opcode not in _COPIES:
            return reads[0]
        before = expressions.understand(operation).arguments[:1]
        if not before or not before[0].reads:
            return reads[0]
        reads = before[0].reads
    return None


def constant(value: expressions.Expression, definitions: Mapping[str, Operation]) -> int | None:
    """Return the number that an argument is, through plain copies; None where it is none."""
    name = _origin(value.reads, definitions) if value.reads else None
    if name is not None:
        operation = definitions.get(name)
        if operation is None or operation.opcode != "smov":
            return None
        arguments = expressions.understand(operation).arguments
        if len(arguments) != 1 or arguments[0].reads:
            return None
        value = arguments[0]
    source = value.source.strip("()")
    return int(source) if source.isdigit() else None
