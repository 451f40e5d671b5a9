"""The schedule of a compiled HLO module: the kernels, and what XLA does around them, in the order
in which the chip runs it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from autotune.compiling.child.compile.hlo import CYCLES, instructions
from autotune.domain.explanation import Phase, ScheduledOperation
from autotune.domain.problem import round_up

T = TypeVar("T")

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.-]+) \(.*\{$", re.M)
_HEAD = re.compile(r"%([\w.-]+) = (.*?) ([a-z][\w-]*)\(", re.S)
_ARRAY = re.compile(r"\b([a-z]+)(\d*)(e\d+m\d+\w*)?\[([\d,]*)\](?:\{([^{}]*)\})?")
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|\w+_computations?)=(\{[^}]*\}|%[\w.-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_TILE = re.compile(r"T\(([\d,]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_NUMBER = re.compile(r"^\d+")
_REMARKS = re.compile(r", (?:metadata|backend_config|sharding|frontend_attributes)=")
_NO_IDEA = 2**62  # what XLA writes where it has no idea of the cycles

_FREE = (
    *("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all"),
    *("partition-id", "replica-id", "opt-barrier", "domain"),
)
_ASYNC = ("-start", "-done")
_PARTIAL = ("slice", "dynamic-slice", "gather")  # read of their operand what they return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instruction:
    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    text: str
    """What follows the opcode: operands and attributes."""
    is_root: bool

    @property
    def attributes(self) -> str:
        """Without names and remarks; of a custom call with what it is to do."""
        text = (
            self.text if self.opcode == "custom-call" else _REMARKS.split(self.text, maxsplit=1)[0]
        )
        return _NAME.sub("", text)

    @property
    def called(self) -> tuple[str, ...]:
        """Computations that it calls, a loop's condition apart."""
        called = (n for what, n in _CALLED.findall(self.text) if what != "condition")
        return tuple(name for names in called for name in _NAME.findall(names))


_Computation = Mapping[str, _Instruction]


def schedule(hlo: str) -> tuple[ScheduledOperation, ...]:
    """What runs of a scheduled module, kernels among it; loops are unrolled into ``runs``."""
    computations, entry = _parsed(hlo)
    return tuple(_Walk(computations).operations(entry, 1))


def shared(hlo: str, programs: Mapping[str, T]) -> dict[str, T]:
    """``programs`` by name of the instruction, with those of instructions that are equal but for
    their names: the compiler makes one program for all of them, and lists it once."""
    computations, _ = _parsed(hlo)
    walk, alike, names = _Walk(computations), dict[str, T](), dict[str, str]()
    for computation in computations.values():
        for name, instruction in computation.items():
            if instruction.opcode not in _FREE and not instruction.opcode.endswith(_ASYNC):
                names[name] = walk.signature(instruction, computation)
                if name in programs:
                    alike.setdefault(names[name], programs[name])
    twins = {name: alike[signature] for name, signature in names.items() if signature in alike}
    return {**twins, **programs}


def _parsed(hlo: str) -> tuple[dict[str, _Computation], str]:
    """All computations by name, and the name of the entry."""
    heads = list(_COMPUTATION.finditer(hlo))
    ends = [head.start() for head in heads[1:]] + [len(hlo)]
    computations: dict[str, _Computation] = {
        head[2]: {
            instruction.name: instruction for instruction in _instructions(hlo[head.end() : end])
        }
        for head, end in zip(heads, ends, strict=True)
    }
    return computations, next((head[2] for head in heads if head[1]), "")


def _instructions(body: str) -> Iterator[_Instruction]:
    for root, text in instructions(body):
        head = _HEAD.match(text)
        if head is None:
            continue
        rest = text[head.end() :]
        operands = _NAME.findall(rest[: _closing(rest)])
        yield _Instruction(
            name=head[1],
            result=head[2],
            opcode=head[3],
            operands=tuple(operands),
            text=rest,
            is_root=root,
        )


def _closing(text: str) -> int:
    """Where the parenthesis that is open at the start closes."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return len(text)


@dataclass(frozen=True, slots=True)
class _Walk:
    computations: Mapping[str, _Computation]

    def operations(self, name: str, runs: int | None) -> Iterator[ScheduledOperation]:
        """Those of a computation and of what it calls. ``runs``: None where it is not known."""
        computation = self.computations.get(name, {})
        for instruction in computation.values():
            if instruction.opcode == "while":
                trips = self._trips(instruction, computation)
                often = None if runs is None or trips is None else runs * trips
                yield from self._of_all(instruction, often)
            elif instruction.opcode == "conditional":
                yield from self._of_all(instruction, None)
            elif instruction.opcode == "call":
                yield from self._of_all(instruction, runs)
            elif instruction.opcode not in _FREE and "S(6)" not in instruction.result:
                yield self._operation(instruction, computation, runs)

    def _of_all(self, instruction: _Instruction, runs: int | None) -> Iterator[ScheduledOperation]:
        for called in instruction.called:
            yield from self.operations(called, runs)

    def signature(self, instruction: _Instruction, computation: _Computation) -> str:
        """What an instruction does, and to what: equal for two that differ by names alone."""
        given = [computation[name].result for name in instruction.operands if name in computation]
        inside = [self._body(name) for name in instruction.called]
        return (
            f"{instruction.opcode} {instruction.result} {given} {instruction.attributes} {inside}"
        )

    def _body(self, name: str) -> list[str]:
        """A computation with its values by their place."""
        computation = self.computations.get(name, {})
        places = {name: place for place, name in enumerate(computation)}
        return [
            f"{[places.get(name) for name in instruction.operands]} "
            f"{self.signature(instruction, computation)}"
            for instruction in computation.values()
        ]

    def _operation(
        self, instruction: _Instruction, computation: _Computation, runs: int | None
    ) -> ScheduledOperation:
        cycles = CYCLES.search(instruction.text)
        expected = int(cycles[1]) if cycles else 0
        phase = next(
            (p for p in (Phase.START, Phase.DONE) if instruction.opcode.endswith(f"-{p}")), None
        )
        return ScheduledOperation(
            name=instruction.name,
            opcode=instruction.opcode.removesuffix(f"-{phase}") if phase else instruction.opcode,
            runs=runs,
            phase=phase or Phase.WHOLE,
            awaits=instruction.operands[0] if phase == Phase.DONE and instruction.operands else "",
            is_ahead="cross_program_prefetch_index" in instruction.text,
            hbm_bytes=0 if phase == Phase.DONE else self._hbm_bytes(instruction, computation),
            expected_cycles=0 if expected >= _NO_IDEA else expected,
        )

    def _hbm_bytes(self, instruction: _Instruction, computation: _Computation) -> int:
        """What it reads and writes in HBM, tiles padded."""
        if instruction.opcode.endswith("-start"):
            return _copied_bytes(instruction.result)
        written = sum(_arrays_bytes(instruction.result))
        operands = [
            computation[name].result for name in instruction.operands if name in computation
        ]
        if instruction.opcode in _PARTIAL:
            operands = [instruction.result]
        if instruction.opcode == "dynamic-update-slice":
            return 2 * sum(_arrays_bytes(operands[1])) if len(operands) > 1 else 0
        if instruction.opcode == "fusion" and instruction.called:
            return self._fused_bytes(instruction.called[0], operands, written)
        return written + sum(sum(_arrays_bytes(text)) for text in operands)

    def _fused_bytes(self, name: str, operands: list[str], written: int) -> int:
        """Of a fusion: an operand that is only sliced is read in slices; one that is updated in
        place is written where it is updated."""
        inner = self.computations.get(name, {})
        total = written
        for number, text in enumerate(operands):
            users, readers = _users(inner, number), self._readers(name, number)
            whole = sum(_arrays_bytes(text))
            if readers and all(reader.opcode in _PARTIAL for reader in readers):
                total += min(whole, sum(sum(_arrays_bytes(r.result, text)) for r in readers))
            elif users and all(user.opcode == "dynamic-update-slice" for user in users):
                changed = sum(sum(_arrays_bytes(inner[u.operands[1]].result, text)) for u in users)
                total += changed - min(written, whole)
            else:
                total += whole
        return max(0, total)

    def _readers(self, name: str, number: int) -> list[_Instruction]:
        """What takes a parameter of a fused computation, in the fusions within it too."""
        readers = list[_Instruction]()
        for user in _users(self.computations.get(name, {}), number):
            within = user.opcode == "fusion" and user.called
            place = user.operands.index(_parameter(self.computations[name], number))
            readers += self._readers(user.called[0], place) if within else [user]
        return readers

    def _trips(self, loop: _Instruction, computation: _Computation) -> int | None:
        """How often a loop runs, where XLA says it, or where nothing but a count from zero by one
        to a constant ends it."""
        known = _TRIPS.search(loop.text)
        if known:
            return int(known[1])
        condition, body = (self._named(what, loop) for what in ("condition", "body"))
        root = _root(condition)
        if root is None or "direction=LT" not in root.text:
            return None
        counter, limit = (condition.get(name) for name in root.operands)
        place = _place(counter)
        if place is None or not _counts_by_one(body, place):
            return None
        start = self._constant(counter, loop, computation)
        last = self._constant(limit, loop, computation)
        return last if start == 0 and last is not None and last >= 0 else None

    def _named(self, what: str, loop: _Instruction) -> _Computation:
        match = re.search(rf"{what}=%([\w.-]+)", loop.text)
        return self.computations.get(match[1], {}) if match else {}

    def _constant(
        self, instruction: _Instruction | None, loop: _Instruction, computation: _Computation
    ) -> int | None:
        """An integer of a loop's condition, through the tuple that the loop begins with."""
        place = _place(instruction)
        if place is not None:
            start = computation.get(loop.operands[0])
            if start is None or start.opcode != "tuple":
                return None
            instruction = computation.get(start.operands[place])
        return _integer(_copied(instruction, computation))


def _root(computation: _Computation) -> _Instruction | None:
    """What a computation returns."""
    return next((instruction for instruction in computation.values() if instruction.is_root), None)


def _copied(instruction: _Instruction | None, computation: _Computation) -> _Instruction | None:
    """What an instruction is a copy of, or itself."""
    while instruction is not None and instruction.opcode in ("copy", "bitcast"):
        instruction = computation.get(instruction.operands[0])
    return instruction


def _place(instruction: _Instruction | None) -> int | None:
    """Which element of a tuple an instruction takes."""
    if instruction is None or instruction.opcode != "get-tuple-element":
        return None
    index = re.search(r"index=(\d+)", instruction.text)
    return int(index[1]) if index else None


def _integer(instruction: _Instruction | None) -> int | None:
    if (
        instruction is None
        or instruction.opcode != "constant"
        or not instruction.result.startswith(("s32", "u32"))
    ):
        return None
    match = _NUMBER.match(instruction.text)
    return int(match[0]) if match else None


def _counts_by_one(body: _Computation, place: int) -> bool:
    """Whether a loop's body adds one to this element of its tuple."""
    root = _root(body)
    if root is None or root.opcode != "tuple" or place >= len(root.operands):
        return False
    step = _copied(body.get(root.operands[place]), body)
    if step is None or step.opcode != "add":
        return False
    added = [_copied(body.get(name), body) for name in step.operands]
    return place in map(_place, added) and 1 in map(_integer, added)


def _users(inner: _Computation, number: int) -> list[_Instruction]:
    """What takes a parameter of a fused computation as its first operand, and fusions within; none
    where something else takes it as another one."""
    given = _parameter(inner, number)
    users = [instruction for instruction in inner.values() if given in instruction.operands]
    first = all(user.operands[0] == given or user.opcode == "fusion" for user in users)
    return users if first else []


def _parameter(inner: _Computation, number: int) -> str:
    """Its name; empty where the computation has none of the number."""
    parameters = (i for i in inner.values() if i.opcode == "parameter")
    return next((i.name for i in parameters if i.text.startswith(f"{number})")), "")


def _arrays_bytes(types: str, placed_as: str | None = None) -> list[int]:
    """Bytes in HBM of each array of a type; 0 for those that lie elsewhere. ``placed_as``: the
    type whose memory counts, for what a fusion has inside."""
    arrays = list(_ARRAY.finditer(types))
    where = [_in_hbm(a[5] or "") for a in arrays]
    if placed_as is not None:
        outer = _ARRAY.search(placed_as)
        where = [outer is None or _in_hbm(outer[5] or "")] * len(arrays)
    return [_padded_bytes(a) if hbm else 0 for a, hbm in zip(arrays, where, strict=True)]


def _copied_bytes(types: str) -> int:
    """Of a copy or slice that is started: operand and result, in either order, of which the smaller
    is what moves, then its context. Where an index is among the operands, they stand together."""
    arrays = list(_ARRAY.finditer(types))
    if types.startswith("(("):
        rest = types[2 + _closing(types[2:]) :]
        arrays = [arrays[0], *_ARRAY.finditer(rest)]
    moved = min(map(_padded_bytes, arrays[:2]), default=0)
    return moved * sum(_in_hbm(array[5] or "") for array in arrays[:2])


def _in_hbm(layout: str) -> bool:
    space = _SPACE.search(layout)
    return space is None or space[1] == "0"


def _padded_bytes(array: re.Match[str]) -> int:
    """With the padding of its tiles: the last sizes, in the order of the layout."""
    width = 8 if array[1] == "pred" else int(array[2] or 0)
    sizes = [int(size) for size in array[4].split(",") if size]
    order, _, tiles = (array[5] or "").partition(":")
    minor = [int(axis) for axis in order.split(",") if axis] or [*reversed(range(len(sizes)))]
    tile = _TILE.search(tiles)
    shape = [sizes[axis] for axis in reversed(minor)]
    for back, least in enumerate(reversed(tile[1].split(",") if tile else []), 1):
        if back <= len(shape):
            shape[-back] = round_up(shape[-back], int(least))
    return prod(shape) * width // 8
