"""The computations of an HLO module as it is printed: instructions, their arrays and scalars."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from autotune.compiling.child.compile.hlo import instructions
from autotune.domain.problem import round_up

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.-]+) \(.*\{$", re.M)
_HEAD = re.compile(r"%([\w.-]+) = (.*?) ([a-z][\w-]*)\(", re.S)
ARRAY = re.compile(r"\b([a-z]+)(\d*)(e\d+m\d+\w*)?\[([\d,]*)\](?:\{([^{}]*)\})?")
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|\w+_computations?)=(\{[^}]*\}|%[\w.-]+)")
_TILE = re.compile(r"T\(([\d,]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_NUMBER = re.compile(r"^-?\d+")
_REMARKS = re.compile(r", (?:metadata|backend_config|sharding|frontend_attributes)=")
_METADATA = re.compile(r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}')
_INDEX = re.compile(r"index=(\d+)")
SAME = ("copy", "bitcast", "convert")
HOST = "5"  # the memory space of arrays that lie with the host


@dataclass(frozen=True, slots=True, kw_only=True)
class HloInstruction:
    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    text: str
    """What follows the opcode: operands and attributes."""
    is_root: bool

    @property
    def attributes(self) -> str:
        """Without names and remarks; of a custom call with what it is to do, its body included."""
        if self.opcode == "custom-call":
            return _NAME.sub("", _METADATA.sub("", self.text))
        return _NAME.sub("", _REMARKS.split(self.text, maxsplit=1)[0])

    @property
    def called(self) -> tuple[str, ...]:
        """Computations that it calls, a loop's condition apart."""
        called = (n for what, n in _CALLED.findall(self.text) if what != "condition")
        return tuple(name for names in called for name in _NAME.findall(names))

    @property
    def element(self) -> int | None:
        """Which element of a tuple it takes."""
        index = _INDEX.search(self.text) if self.opcode == "get-tuple-element" else None
        return int(index[1]) if index else None


Computation = Mapping[str, HloInstruction]


def parsed(hlo: str) -> tuple[dict[str, Computation], str]:
    """All computations by name, and the name of the entry."""
    heads = list(_COMPUTATION.finditer(hlo))
    ends = [head.start() for head in heads[1:]] + [len(hlo)]
    computations: dict[str, Computation] = {
        head[2]: {made.name: made for made in _instructions(hlo[head.end() : end])}
        for head, end in zip(heads, ends, strict=True)
    }
    return computations, next((head[2] for head in heads if head[1]), "")


def _instructions(body: str) -> Iterator[HloInstruction]:
    for is_root, text in instructions(body):
        head = _HEAD.match(text)
        if head is None:
            continue
        rest = text[head.end() :]
        operands = _NAME.findall(rest[: closing(rest)])
        yield HloInstruction(
            name=head[1],
            result=head[2],
            opcode=head[3],
            operands=tuple(operands),
            text=rest,
            is_root=is_root,
        )


def closing(text: str) -> int:
    """Where the parenthesis that is open at the start closes."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return len(text)


def root(computation: Computation) -> HloInstruction | None:
    return next((instruction for instruction in computation.values() if instruction.is_root), None)


def copied(instruction: HloInstruction | None, computation: Computation) -> HloInstruction | None:
    """What an instruction is a copy of, or itself."""
    while instruction is not None and instruction.opcode in SAME:
        instruction = computation.get(instruction.operands[0])
    return instruction


@dataclass(frozen=True, slots=True)
class Scope:
    """A computation that runs, and of a loop's body or condition the loop, with the scope that the
    loop stands in: what is known of integers there."""

    computation: Computation
    loop: HloInstruction | None = None
    body: Computation | None = None
    outer: "Scope | None" = None

    def integer(self, name: str) -> int | None:
        """None where data decide it."""
        instruction = copied(self.computation.get(name), self.computation)
        if instruction is None:
            return None
        if instruction.opcode == "constant":
            match = _NUMBER.match(instruction.text)
            return int(match[0]) if match and instruction.result[:3] in ("s32", "u32") else None
        if instruction.opcode == "get-tuple-element":
            return self._element(instruction)
        if instruction.opcode in ("add", "subtract"):
            first, second = (self.integer(operand) for operand in instruction.operands)
            if first is None or second is None:
                return None
            return first + second if instruction.opcode == "add" else first - second
        return None

    def _element(self, taken: HloInstruction) -> int | None:
        """An element of a tuple; of one that a loop hands on, where no turn changes it."""
        source, place = self.computation.get(taken.operands[0]), taken.element
        if source is None or place is None:
            return None
        if source.opcode == "tuple":
            return self.integer(source.operands[place])
        if source.opcode != "parameter" or None in (self.loop, self.body, self.outer):
            return None
        return self.start(place) if _is_handed_on(self.body or {}, place) else None

    def start(self, place: int) -> int | None:
        """An element of the tuple that the loop around this begins with."""
        if self.loop is None or self.outer is None:
            return None
        tuple_ = copied(self.outer.computation.get(self.loop.operands[0]), self.outer.computation)
        if tuple_ is None or tuple_.opcode != "tuple" or place >= len(tuple_.operands):
            return None
        return self.outer.integer(tuple_.operands[place])


def next_element(body: Computation, place: int) -> HloInstruction | None:
    """What a turn of a loop gives to the next one."""
    result = root(body)
    if result is None or result.opcode != "tuple" or place >= len(result.operands):
        return None
    return copied(body.get(result.operands[place]), body)


def _is_handed_on(body: Computation, place: int) -> bool:
    given = next_element(body, place)
    source = None if given is None else body.get(next(iter(given.operands), ""))
    is_parameter = source is not None and source.opcode == "parameter"
    return given is not None and is_parameter and given.element == place


def users(inner: Computation, given: str) -> list[HloInstruction]:
    """What takes a value of a fused computation as its first operand, and fusions within; none
    where something else takes it as another one."""
    readers = [instruction for instruction in inner.values() if given in instruction.operands]
    first = all(each.operands[0] == given or each.opcode == "fusion" for each in readers)
    return readers if first else []


def parameter(inner: Computation, number: int) -> str:
    """Its name; empty where the computation has none of the number."""
    parameters = (i for i in inner.values() if i.opcode == "parameter")
    return next((i.name for i in parameters if i.text.startswith(f"{number})")), "")


def sizes(array: re.Match[str]) -> list[int]:
    return [int(size) for size in array[4].split(",") if size]


def arrays_bytes(types: str, placed_as: str | None = None) -> list[int]:
    """Bytes in HBM of each array of a type; 0 for those that lie elsewhere. ``placed_as``: the
    type whose memory counts, for what a fusion has inside."""
    arrays = list(ARRAY.finditer(types))
    where = [space(a) == "0" for a in arrays]
    if placed_as is not None:
        outer = ARRAY.search(placed_as)
        where = [outer is None or space(outer) == "0"] * len(arrays)
    return [padded_bytes(a) if hbm else 0 for a, hbm in zip(arrays, where, strict=True)]


def copied_arrays(types: str, *, is_update: bool = False) -> list[re.Match[str]]:
    """Of a copy or slice that is started: operand and result, in either order, of which the smaller
    is what moves, then its context. Where an index is among the operands, they stand together. An
    update moves its second operand."""
    arrays = list(ARRAY.finditer(types))
    if is_update:
        return [arrays[1], arrays[0]]
    if types.startswith("(("):
        rest = types[2 + closing(types[2:]) :]
        arrays = [arrays[0], *ARRAY.finditer(rest)]
    return arrays[:2]


def space(array: re.Match[str]) -> str:
    """The memory that an array lies in: 0 for HBM."""
    match = _SPACE.search(array[5] or "")
    return match[1] if match else "0"


def padded_bytes(array: re.Match[str]) -> int:
    """With the padding of its tiles: the last sizes, in the order of the layout."""
    width = 8 if array[1] == "pred" else int(array[2] or 0)
    shape = sizes(array)
    order, _, tiles = (array[5] or "").partition(":")
    minor = [int(axis) for axis in order.split(",") if axis] or [*reversed(range(len(shape)))]
    tile = _TILE.search(tiles)
    shape = [shape[axis] for axis in reversed(minor)]
    for back, least in enumerate(reversed(tile[1].split(",") if tile else []), 1):
        if back <= len(shape):
            shape[-back] = round_up(shape[-back], int(least))
    return prod(shape) * width // 8
