"""The schedule of a compiled HLO module: the kernels, and what XLA does around them, in the order
in which the chip runs it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from autotune.compiling.child.compile.computations import (
    ARRAY,
    SAME,
    Computation,
    HloInstruction,
    Scope,
    arrays_bytes,
    copied,
    copied_arrays,
    next_element,
    padded_bytes,
    parameter,
    parsed,
    root,
    space,
    users,
)
from autotune.compiling.child.compile.hlo import CYCLES, PALLAS_CALL
from autotune.compiling.child.compile.origins import Origins
from autotune.compiling.child.compile.transfers import products, transfer
from autotune.domain.explanation import Phase, ScheduledOperation
from autotune.estimating.simulator.constants import PRECISE, SPATIAL

T = TypeVar("T")

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_DIRECTION = re.compile(r"direction=(\w+)")
_NO_IDEA = 2**62  # what XLA writes where it has no idea of the cycles

_FREE = (
    *("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all"),
    *("partition-id", "replica-id", "opt-barrier", "domain", "async-update"),
)
_UPDATE = "call-update"  # hands a SparseCore, started before, its operand: from here on it works
_SPARSE_KERNEL = '"offload":"OFFLOAD_KERNEL"'  # one of Pallas: XLA's own work has other names
_BY_ROWS = re.compile(r'"OFFLOAD_(GATHER|SCATTER)"')
_NO_CODE = re.compile(
    r'custom_call_target="(?:AllocateBuffer|ConcatBitcast|Sharding|AssumeGatherIndicesInBound)"'
)
_ASYNC = ("-start", "-done")
_FUSED = re.compile(r"(async-collective)-(start|done)(.*)")
_PARTIAL = ("slice", "dynamic-slice", "gather")  # read of their operand what they return
_KINDS = (  # rare ones first
    *("ragged-dot", "custom-call", "sort", "scatter", "gather", "reduce-window"),
    *("dynamic-update-slice", "select-and-scatter", "rng-bit-generator", "rng", "fft"),
    *("cholesky", "triangular-solve", "topk", "reverse", SPATIAL, PRECISE, "convolution"),
    *("dot", "reduce"),
)
_NO_DOT = re.compile("conv_general_dilated|_group_count=")  # JAX's name of it, or XLA's of groups
_PASSES = re.compile(r"operand_precision=\{[^}]*high")  # high or highest
_SLICES = {"dynamic-slice", "dynamic-update-slice"}
_FIRST_IS_OUTERMOST = re.compile(r"\[\d+,[\d,]+\]\{[\d,]+,0[:}]")
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}
_UP, _DOWN = ("LT", "LE", "NE"), ("GT", "GE", "NE")


def schedule(hlo: str) -> tuple[ScheduledOperation, ...]:
    """What runs of a scheduled module, kernels among it; loops are unrolled into ``runs``."""
    computations, entry = parsed(hlo)
    walk = _Walk(computations, Origins.of(hlo))
    return tuple(walk.operations(_Place(Scope(computations.get(entry, {})))))


def signatures(hlo: str) -> dict[str, str]:
    """What each instruction that may have code does, and to what, by its name: equal for two that
    differ by names alone."""
    computations, _ = parsed(hlo)
    walk = _Walk(computations, Origins({}))
    return {
        name: walk.signature(instruction, computation)
        for computation in computations.values()
        for name, instruction in computation.items()
        if instruction.opcode not in _FREE and not instruction.opcode.endswith(_ASYNC)
    }


def shared(hlo: str, programs: Mapping[str, T]) -> dict[str, T]:
    """``programs`` by name of the instruction, with those of instructions that are equal but for
    their names: the compiler makes one program for all of them, and lists it once."""
    names = signatures(hlo)
    alike: dict[str, T] = {}
    for name in filter(programs.__contains__, names):
        alike.setdefault(names[name], programs[name])
    twins = {name: alike[signature] for name, signature in names.items() if signature in alike}
    return {**twins, **programs}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an instruction runs, and how often: as if loops of which data decide that, the first at
    the line ``undecided``, had a turn; ``branches`` as ``ScheduledOperation`` has them."""

    scope: Scope
    runs: int = 1
    branches: tuple[tuple[str, int], ...] = ()
    loop: str = ""
    undecided: str = ""


@dataclass(frozen=True, slots=True)
class _Walk:
    computations: Mapping[str, Computation]
    origins: Origins

    def operations(self, place: _Place) -> Iterator[ScheduledOperation]:
        """Those of a computation and of what it calls."""
        for instruction in place.scope.computation.values():
            if instruction.opcode in ("while", "conditional", "call"):
                for inner in self._inside(instruction, place):
                    yield from self.operations(inner)
            elif _runs(instruction):
                yield self._operation(instruction, place)

    def _inside(self, instruction: HloInstruction, place: _Place) -> Iterator[_Place]:
        if instruction.opcode == "while":
            yield self._turns(instruction, place)
            return
        for number, name in enumerate(instruction.called):
            scope = Scope(self.computations.get(name, {}))
            branches = place.branches
            if instruction.opcode == "conditional":
                branches = (*branches, (instruction.name, number))
            yield replace(place, scope=scope, branches=branches)

    def _turns(self, loop: HloInstruction, place: _Place) -> _Place:
        body, trips = self._named("body", loop), self._trips(loop, place.scope)
        scope = Scope(body, loop, body, place.scope)
        place = replace(place, loop=place.loop or loop.name)
        if trips is None:
            line = self.origins.origin(iter([loop.text])).line or loop.name
            return replace(place, scope=scope, undecided=place.undecided or line)
        return replace(place, scope=scope, runs=place.runs * trips)

    def signature(self, instruction: HloInstruction, computation: Computation) -> str:
        given = [computation[name].result for name in instruction.operands if name in computation]
        inside = [self._body(name) for name in instruction.called]
        does = f"{instruction.opcode} {instruction.result} {given} {instruction.attributes}"
        does += f" {inside}"
        for shape in self._stacked(instruction, given):
            does = re.sub(rf"\b{re.escape(shape)}", re.sub(r"\[\d+", "[", shape), does)
        return does

    def _stacked(self, fusion: HloInstruction, given: list[str]) -> set[str]:
        """Shapes of which it reads and writes parts alone, so that the length of their first axis
        is of no consequence: weights of all layers in a scan."""
        if fusion.opcode != "fusion" or not fusion.called:
            return set()
        parts = set[str]()
        whole = {made.result.partition("{")[0] for made in self._made_whole(fusion.called[0])}
        for number, text in enumerate(given):
            inner = self.computations.get(fusion.called[0], {})
            readers = self._readers(inner, parameter(inner, number))
            is_sliced = _FIRST_IS_OUTERMOST.search(text) and {r.opcode for r in readers} <= _SLICES
            (parts if readers and is_sliced else whole).add(text.partition("{")[0])
        return parts - whole

    def _made_whole(self, name: str) -> Iterator[HloInstruction]:
        """All that a fused computation makes, but for an array that it writes a part of and gives
        back; in the fusions within it too."""
        inner = self.computations.get(name, {})
        for made in inner.values():
            readers = (other for other in inner.values() if made.name in other.operands)
            is_part = made.opcode == "dynamic-update-slice" and all(
                reader.opcode == "tuple" for reader in readers
            )
            if not is_part and made.opcode not in ("parameter", "tuple"):
                yield made
            for called in made.called:
                yield from self._made_whole(called)

    def _body(self, name: str) -> list[str]:
        """A computation with its values by their place."""
        computation = self.computations.get(name, {})
        places = {name: place for place, name in enumerate(computation)}
        return [
            f"{[places.get(name) for name in instruction.operands]} "
            f"{self.signature(instruction, computation)}"
            for instruction in computation.values()
        ]

    def _operation(self, instruction: HloInstruction, place: _Place) -> ScheduledOperation:
        cycles = CYCLES.search(instruction.text)
        expected = int(cycles[1]) if cycles else 0
        opcode, phase, awaits = self._phase(instruction, place.scope.computation)
        crossing = None if phase is Phase.DONE else transfer(instruction, self.computations)
        made = list(products(instruction, place.scope.computation, self.computations))
        moved = phase is not Phase.DONE and (crossing is None or phase is Phase.WHOLE)
        first = place.scope.computation.get(next(iter(instruction.operands), ""))
        source = ARRAY.search(first.result) if first and opcode == "copy" else None
        works = first if first and instruction.opcode == _UPDATE else instruction
        origin = self.origins.origin(self._texts(works))
        is_sparse = bool(first) and _SPARSE_KERNEL in works.text
        return ScheduledOperation(
            name=instruction.name,
            opcode=opcode,
            runs=place.runs,
            phase=phase,
            awaits=awaits,
            is_ahead="cross_program_prefetch_index" in instruction.text,
            is_write=source is not None and space(source) != "0",
            hbm_bytes=self._hbm_bytes(instruction, place.scope.computation) if moved else 0,
            expected_cycles=0 if expected >= _NO_IDEA else expected,
            is_kernel=is_sparse or PALLAS_CALL in instruction.text,
            kind=next(filter(self._does(works).__contains__, _KINDS), ""),
            flops=sum(flops for flops, _ in made),
            dtype=max(made)[1] if made else "",
            transfer=crossing,
            scope=origin.scope,
            line=origin.line,
            branches=place.branches,
            loop=place.loop,
            undecided=place.undecided,
        )

    def _phase(
        self, instruction: HloInstruction, computation: Computation
    ) -> tuple[str, Phase, str]:
        """The opcode without its phase, and of what is waited for the start."""
        if fused := _FUSED.match(instruction.name):  # a fusion hands it on from start to done
            start = f"{fused[1]}-{Phase.START}{fused[3]}"
            phase = Phase(fused[2])
            return instruction.opcode, phase, start if phase is Phase.DONE else ""
        if instruction.opcode == _UPDATE or _hands_rows(instruction):
            return _UPDATE, Phase.START, ""
        for phase in (Phase.START, Phase.DONE):
            if instruction.opcode.endswith(f"-{phase}"):
                begun = computation.get(next(iter(instruction.operands), ""))
                while begun is not None and begun.opcode == "async-update":
                    begun = computation.get(begun.operands[0])
                awaits = begun.name if begun is not None and phase is Phase.DONE else ""
                return instruction.opcode.removesuffix(f"-{phase}"), phase, awaits
        return instruction.opcode, Phase.WHOLE, ""

    def _does(self, instruction: HloInstruction) -> set[str]:
        """Opcodes of an instruction and of what it calls."""
        inner = [self.computations.get(name, {}).values() for name in instruction.called]
        opcode, text = instruction.opcode, instruction.text
        if opcode in ("convolution", "dot"):
            opcode = PRECISE if _PASSES.search(text) else opcode
            opcode = SPATIAL if _NO_DOT.search(text) else opcode
        opcode = "ragged-dot" if "ragged_dot_tiling=" in text else opcode
        opcode = "" if _NO_CODE.search(text) else opcode
        return {opcode}.union(*(self._does(each) for each in chain(*inner)))

    def _texts(self, instruction: HloInstruction) -> Iterator[str]:
        """Of an instruction and, where it is a fusion, of what is fused."""
        yield instruction.text
        for name in instruction.called if instruction.opcode == "fusion" else ():
            for inner in self.computations.get(name, {}).values():
                yield inner.text

    def _hbm_bytes(self, instruction: HloInstruction, computation: Computation) -> int:
        """What it reads and writes in HBM, tiles padded."""
        is_sparse = bool(instruction.operands) and _SPARSE_KERNEL in instruction.text
        is_sparse |= (hands_rows := _hands_rows(instruction))
        if instruction.opcode.endswith("-start") and not is_sparse:
            is_update = instruction.opcode.startswith("dynamic-update")
            arrays = copied_arrays(instruction.result, is_update=is_update)
            moved = min(map(padded_bytes, arrays[:1] if is_update else arrays), default=0)
            return moved * sum(space(array) == "0" for array in arrays)
        written = sum(arrays_bytes(instruction.result))
        if is_sparse or instruction.opcode == _UPDATE:  # its result names the operands as well
            begun = computation[instruction.operands[0]]
            by_rows = _BY_ROWS.search((instruction if hands_rows else begun).text)
            *given, made = ARRAY.finditer(instruction.result)
            shared = max(1, 32 // int(made[2] or 32))  # rows of 16 bits share their words
            if by_rows and by_rows[1] == "SCATTER":  # in place
                updates = max(map(padded_bytes, given[1:]), default=0) or padded_bytes(made)
                return shared * updates + 2 * min(shared * updates, padded_bytes(made))
            return padded_bytes(made) * (1 + shared) if by_rows else written
        operands = [
            computation[name].result for name in instruction.operands if name in computation
        ]
        if instruction.opcode in _PARTIAL:
            operands = [instruction.result]
        if instruction.opcode == "dynamic-update-slice":
            return 2 * sum(arrays_bytes(operands[1])) if len(operands) > 1 else 0
        if instruction.opcode == "fusion" and instruction.called:
            return self._fused_bytes(instruction.called[0], operands, written)
        return written + sum(sum(arrays_bytes(text)) for text in operands)

    def _fused_bytes(self, name: str, operands: list[str], written: int) -> int:
        """Of a fusion: an operand that is only sliced is read in slices; one that is updated in
        place is written where it is updated, whether that is read before or not. What it only
        hands on, or another device writes, it does not move."""
        inner = self.computations.get(name, {})
        result, handed = root(inner), set[str]()
        if result is not None and result.opcode == "tuple":
            given = [inner[name] for name in result.operands if name in inner]
            passed = [i for i in given if i.opcode == "parameter" or transfer(i, {})]
            written -= sum(sum(arrays_bytes(i.result)) for i in passed)
            handed = {i.name for i in passed}
        total = written
        for number, text in enumerate(operands):
            if self._is_handed_on(inner, number, handed):
                continue
            value = parameter(inner, number)
            readers, whole = self._readers(inner, value), sum(arrays_bytes(text))
            updates = [u for u in users(inner, value) if u.opcode == "dynamic-update-slice"]
            parts = [reader for reader in readers if reader.opcode in _PARTIAL]
            if not readers or len(parts) + len(updates) < len(readers):
                total += whole
                continue
            total += min(whole, sum(sum(arrays_bytes(part.result, text)) for part in parts))
            if updates:
                changed = sum(sum(arrays_bytes(inner[u.operands[1]].result, text)) for u in updates)
                total += changed - min(written, whole)
        return max(0, total)

    def _is_handed_on(self, inner: Computation, number: int, handed: set[str]) -> bool:
        given = parameter(inner, number)
        using = [i for i in inner.values() if given in i.operands and not i.is_root]
        return given in handed and all(transfer(i, {}) for i in using)

    def _readers(self, inner: Computation, given: str) -> list[HloInstruction]:
        """What takes a value of a fused computation, or the like in another layout or type, in the
        fusions within it too."""
        readers = list[HloInstruction]()
        for user in users(inner, given):
            called = self.computations.get(next(iter(user.called), ""), {})
            made = copied(root(called), called)
            is_same = user.opcode in SAME or (made is not None and made.opcode == "parameter")
            if is_same and not user.is_root:
                readers += self._readers(inner, user.name)
            elif user.opcode != "fusion" or not called:
                readers.append(user)
            else:
                places = [at for at, operand in enumerate(user.operands) if operand == given]
                taken = (self._readers(called, parameter(called, at)) for at in places)
                readers += chain.from_iterable(taken)
        return readers

    def _trips(self, loop: HloInstruction, outer: Scope) -> int | None:
        """How often a loop runs, where XLA says it, or where its counter goes in equal steps from
        one known number to another."""
        if known := _TRIPS.search(loop.text):
            return int(known[1])
        condition, body = self._named("condition", loop), self._named("body", loop)
        scope, compared = Scope(condition, loop, body, outer), root(condition)
        if compared is None or compared.opcode != "compare":
            return None
        comparison = _DIRECTION.search(compared.text)
        for name, limit, direction in zip(
            compared.operands,
            reversed(compared.operands),
            (comparison and comparison[1], comparison and _MIRRORED.get(comparison[1])),
            strict=True,
        ):
            counter = copied(condition.get(name), condition)
            if counter is not None and counter.element is not None and direction:
                start, step = scope.start(counter.element), _step(body, counter.element, scope)
                return _turns(start, scope.integer(limit), step, direction)
        return None

    def _named(self, what: str, loop: HloInstruction) -> Computation:
        match = re.search(rf"{what}=%([\w.-]+)", loop.text)
        return self.computations.get(match[1], {}) if match else {}


def _runs(instruction: HloInstruction) -> bool:
    """Whether it takes any time, and is not of scalars alone."""
    is_free = instruction.opcode in _FREE or "S(6)" in instruction.result
    return not is_free and not _NO_CODE.search(instruction.text)


def _hands_rows(instruction: HloInstruction) -> bool:
    """Whether it starts a gather or scatter of SparseCores with its operands, as libtpu 0.0.44
    writes them: later ones start it without, and hand them in an update."""
    is_start = instruction.opcode == "call-start" and bool(instruction.operands)
    return is_start and _BY_ROWS.search(instruction.text) is not None


def _step(body: Computation, place: int, condition: Scope) -> int | None:
    """What a turn adds to an element of a loop's tuple."""
    made, scope = next_element(body, place), replace(condition, computation=body)
    if made is None or made.opcode not in ("add", "subtract"):
        return None
    first, second = (copied(body.get(name), body) for name in made.operands)
    if first is not None and second is not None:
        if first.element == place and (step := scope.integer(second.name)) is not None:
            return step if made.opcode == "add" else -step
        if second.element == place and made.opcode == "add":
            return scope.integer(first.name)
    return None


def _turns(start: int | None, limit: int | None, step: int | None, direction: str) -> int | None:
    """None for a loop that has no known end."""
    if start is None or limit is None or not step:
        return None
    if direction not in (_UP if step > 0 else _DOWN):
        return None
    way = (limit - start) * (1 if step > 0 else -1) + (direction in ("LE", "GE"))
    turns, rest = divmod(max(0, way), abs(step))
    if direction == "NE":
        return turns if rest == 0 and way >= 0 else None
    return turns + (rest > 0)
