"""Listing text to bundles. Only operations that can decide time are kept.

Grammar (jax 0.6.2 to 0.12, v4 to v7x): a bundle is
``<hex address> [label] : <'>' per loop depth> { op ;; op ... } /* region markers */``.
Comments nest. One bundle is one cycle, an empty one too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from autotune.estimating.simulator.outcome import UnfitError

_BUNDLE = re.compile(r"^ *(0x[0-9a-f]{1,8}|0) +(?:[A-Z]{2} *)?:([> ]*)\{", re.M)
# Scalar operations, DMAs, waits, and vector operations that go to a unit and come back by a pop:
# their result has no register in its name.
_OPERATION = re.compile(
    r"(?:\A|;;)\s*(%\d+(?= = v(?!st))|%\w+(?= = (?:[^v]|vpop|vsync|vwait))) = (\S+)[ ]*([^;}]*)"
)
_EACH = re.compile(r"(?:\A|;;)\s*(%\w+) = (\S+)[ ]*([^;}]*)")
_KEPT_VECTOR = ("vpop", "vsync", "vwait")  # as there
_ANY_OPERATION = re.compile(r"(?:\A|;;)\s*%\w+ = ")
_RESULT_KIND = re.compile(r"/\* (k[A-Z]\w+) \*/")  # which result of sdivrem is kept: kRem
_COPY_KIND = re.compile(r"/\* (\w{3,5})-to-(\w{3,5}) \*/")  # of dma.general
NEVER = "(0)"  # the predicate of what the compiler knows not to be executed
_POINTER = re.compile(r"(%[\w.]+) = (?:int_to_ptr|scalar_lea)\.(\w+)")
_ENDS = re.compile(r"\bsrc=(%[\w.]+), .*\bdst=(%[\w.]+),")
_GENERAL_COPY = re.compile(r" (\w{3,5}_to_\w{3,5})\Z")
_ARGUMENT_NAME = re.compile(r"/\*(\w+)=\*/")
_COMMENT_EDGE = re.compile(r"(/\*|\*/)")
_REGION = re.compile(r"\b(Start(?:/End empty)?|End) region (\d{1,9})\b")
_VECTOR = re.compile(r" = v(?!sync|wait)")
_NO_VECTOR = ("vsync", "vwait")  # as there
_VECTOR_SPILL = re.compile(r"= v(?:st|ld)\S* \[vmem:\[#allocation\d+_spill")
_BOUNDS = re.compile(r"^iteration_bounds: \(([\d, ]{0,400})\)", re.M)
_OPERAND = re.compile(
    r"(%\w+) = inlined_call_operand\.(<no memory space>|\w+) "
    r"\[shape: (\w+)\[([\d,]*)\][^\]]*?index: (\d{1,6}), kind: (\w+)"
)

NO_MEMORY = "<no memory space>"  # of an operand that is a scalar
DYNAMIC_BOUND = 2147483647  # printed in iteration_bounds for a grid axis given at run time


class Operation(NamedTuple):
    """One operation of a bundle; ``text`` is what follows the opcode, without comments."""

    name: str
    opcode: str
    text: str


class Bundle(NamedTuple):
    """One issue cycle: the kept operations and the regions that start or end here."""

    operations: tuple[Operation, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    depth: int  # of loops
    empty: bool  # no operation at all, kept or not
    vector: bool  # some operation on vectors, kept or not


class CallOperand(NamedTuple):
    """One operand of the custom call, as the entry bundle declares it."""

    name: str
    memory: str  # "hbm", "vmem", "cmem" (v4), "smem" or NO_MEMORY
    number: int
    kind: str  # "input" or "output"
    dtype: str = "s32"  # as XLA prints it
    shape: tuple[int, ...] = ()


class Listing(NamedTuple):
    """A whole listing; the position of a bundle is its address."""

    bundles: tuple[Bundle, ...]
    operands: tuple[CallOperand, ...]
    grid: tuple[int, ...]  # iteration bounds of the grid as one core sees it, () if not printed
    pipelined: bool  # the outer loop is the grid, run by the compiler's pipeline
    spill_bundles: int
    shadows: tuple[tuple[int, int], ...] = ()
    """Addresses of branches, and how many bundles are in the delay slots of each. Empty for what
    libtpu has printed: it does not say."""

    @property
    def is_packed_transpose(self) -> bool:
        """Whether it takes a 16-bit array of HBM to another layout through cross-lane units."""
        arrays = {(o.memory, o.dtype[-2:], o.shape) for o in self.operands}
        if len(self.operands) != 2 or [array[:2] for array in arrays] != [("hbm", "16")]:
            return False
        return any(o.opcode.startswith("vxpose") for b in self.bundles for o in b.operations)


def parse(text: str | Listing) -> Listing:
    """Return the bundles of ``text``; UnfitError where it is not one whole, ordered listing. What
    is parsed already is returned as it is."""
    if isinstance(text, Listing):
        return text
    lean = text.replace("/*vst_source=*/", "")
    heads = list(_BUNDLE.finditer(lean))
    if not heads:
        raise UnfitError("no bundle found in the listing")
    for position, head in enumerate(heads):
        if (address := int(head[1], 16)) != position:
            raise UnfitError(f"bundle {address:#x} found where {position:#x} was expected")
    edges = [head.end() for head in heads], [head.start() for head in heads[1:]] + [len(lean)]
    depths = (head[2].count(">") for head in heads)
    memories = memories_of(lean)
    parts = zip(*edges, depths, strict=True)
    bundles = tuple(_bundle(lean[i:j], d, memories) for i, j, d in parts)
    entry, final = lean[edges[0][0] : edges[1][0]], lean[edges[0][-1] :]
    if "/* entry bundle:" not in entry or "/* exit bundle:" not in final:
        raise UnfitError("the listing is truncated: no entry bundle or no exit bundle")
    return Listing(
        bundles=bundles,
        operands=call_operands(entry),
        grid=grid_of(lean),
        pipelined=is_pipelined(lean),
        spill_bundles=_spills(lean, edges[1]),
    )


def memories_of(text: str) -> Mapping[str, str]:
    """Memories that pointers lead to, by name, where a DMA may not say it itself."""
    return dict(_POINTER.findall(text)) if "dma.general" in text else {}


def _bundle(body: str, depth: int, memories: Mapping[str, str]) -> Bundle:
    code, markers = _without_comments(body)
    code, brace, rest = code.rpartition("}")
    if not brace or rest.strip():
        raise UnfitError("a bundle is not closed, or text follows it")
    if not code.strip():
        return Bundle((), *_regions(markers), depth, True, False)
    if len(_ANY_OPERATION.findall(code)) != code.count(";;") + 1:
        raise UnfitError("a bundle holds something that is no operation")
    shown = _timed_operations(code, memories)
    return Bundle(shown, *_regions(markers), depth, False, _VECTOR.search(code) is not None)


def all_operations(text: str) -> list[tuple[Operation, ...]]:
    """Every operation of each bundle of a printed listing that ``parse`` takes."""
    heads = list(_BUNDLE.finditer(lean := text.replace("/*vst_source=*/", "")))
    stops = [*(head.start() for head in heads[1:]), len(lean)]
    return [
        tuple(Operation(name, opcode, rest.strip()) for name, opcode, rest in _EACH.findall(code))
        for head, stop in zip(heads, stops, strict=True)
        for code in [_without_comments(lean[head.end() : stop])[0]]
    ]


def is_decisive(name: str, opcode: str) -> bool:
    """Whether an operation can decide time, by its name and opcode alone."""
    if not opcode.startswith("v") or opcode.startswith(_KEPT_VECTOR):
        return True
    return name[1:].isdigit() and not opcode.startswith("vst")


def is_vector(opcode: str) -> bool:
    """Whether an operation works on vectors."""
    return opcode.startswith("v") and not opcode.startswith(_NO_VECTOR)


def decisive_operations(code: str, memories: Mapping[str, str]) -> tuple[Operation, ...]:
    """Those of the operations of a bundle, parted by ``;;``, that can decide time."""
    return _timed_operations(_without_comments(code)[0], memories)


def _without_comments(body: str) -> tuple[str, str]:
    if "/*" not in body and "*/" not in body:
        return body, ""
    body = _RESULT_KIND.sub(r"\1", _ARGUMENT_NAME.sub(r"\1=", body))
    body = _COPY_KIND.sub(r"\1_to_\2", body) if "dma.general" in body else body
    return strip_comments(body)


def _timed_operations(code: str, memories: Mapping[str, str]) -> tuple[Operation, ...]:
    return tuple(
        _operation(name, opcode, text.strip(), memories)
        for name, opcode, text in _OPERATION.findall(code)
    )


def _operation(name: str, opcode: str, text: str, memories: Mapping[str, str]) -> Operation:
    """A general DMA (clipped or strided tiles) says in a comment where it leads, or its pointers
    say it; the others in their name."""
    if opcode != "dma.general":
        return Operation(name, opcode, text)
    kind, ends = _GENERAL_COPY.search(text), _ENDS.search(text)
    if kind:
        return Operation(name, f"dma.{kind[1]}", text)
    known = [memories[end] for end in ends.groups() if end in memories] if ends else []
    return Operation(name, f"dma.{known[0]}_to_{known[1]}" if len(known) == 2 else opcode, text)


def strip_comments(text: str) -> tuple[str, str]:
    """Return the text without its (nested) comments, and the comments after its last ``}``."""
    depth, code, trailing = 0, "", ""
    for piece in _COMMENT_EDGE.split(text):
        if piece == "/*":
            depth += 1
        elif piece == "*/":
            depth -= 1
        elif depth == 0:
            code += piece
            trailing = "" if "}" in piece else trailing
        else:
            trailing += piece
        if depth < 0:
            raise UnfitError("a comment is closed that was never opened")
    if depth:
        raise UnfitError("a comment is never closed")
    return code, trailing


def _regions(markers: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if "region" not in markers:
        return (), ()
    regions = [(kind, int(number)) for kind, number in _REGION.findall(markers)]
    starts = tuple(number for kind, number in regions if kind.startswith("Start"))
    return starts, tuple(number for kind, number in regions if kind != "Start")


def call_operands(entry: str) -> tuple[CallOperand, ...]:
    """Those that an entry bundle declares."""
    operands = _OPERAND.findall(entry)
    return tuple(
        CallOperand(
            name, memory, int(number), kind, dtype, tuple(map(int, filter(None, dims.split(","))))
        )
        for name, memory, dtype, dims, number, kind in operands
    )


def grid_of(text: str) -> tuple[int, ...]:
    """Iteration bounds that a listing prints, () for none."""
    printed = _BOUNDS.search(text)
    if printed is None:
        return ()
    return tuple(int(bound) for bound in printed[1].split(",") if bound.strip().isdigit())


def is_pipelined(text: str) -> bool:
    """Whether the outer loop of a listing is the grid, run by the compiler's pipeline."""
    return "iteration index, stage = 1" in text


def is_spill(operation: str) -> bool:
    """Whether an operation touches a vector spill slot."""
    return _VECTOR_SPILL.search(operation) is not None


def _spills(text: str, ends: list[int]) -> int:
    """Return how many bundles touch a vector spill slot."""
    count, end = 0, 0
    for spill in _VECTOR_SPILL.finditer(text):
        if spill.start() < end:
            continue  # this bundle is counted already
        count += 1
        end = ends[bisect_right(ends, spill.start())]
    return count
