"""Whether a small problem crosses the borders that the real one crosses, read from both traces."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from autotune.compiling.child.trace.blocks import array_of, block_shape
from autotune.compiling.child.trace.calls import walked
from autotune.compiling.child.trace.mapped import as_pallas_call
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import Problem


@dataclass(frozen=True, slots=True)
class CallBorders:
    """What one ``pallas_call`` walks. ``grid``: steps of each axis, None where an argument decides.
    ``blocks``: of each operand and dimension the block and the array, in elements. ``loops``: turns
    of each loop of the body in the order of the program, None where they depend on data. ``body``:
    the primitives in it, which tell branches of the kernel's own Python code apart."""

    grid: tuple[int | None, ...]
    blocks: tuple[tuple[int, int], ...]
    loops: tuple[int | None, ...]
    body: frozenset[str]

    @property
    def is_idle(self) -> bool:
        return 0 in self.grid

    def lacking(self, real: "CallBorders", count: int) -> Iterator[str]:
        """Where this walks fewer than ``count`` blocks and the real call walks more, or no ragged
        block where the real one does."""
        for axis, (steps, wanted) in enumerate(zip_longest(self.grid, real.grid)):
            if steps is not None and wanted is not None and steps < min(count, wanted):
                yield f"grid axis {axis}: {steps} of {wanted} steps"
        if len(self.loops) == len(real.loops):
            for place, (turns, wanted) in enumerate(zip(self.loops, real.loops, strict=True)):
                if turns is not None and wanted is not None and turns < min(count, wanted):
                    yield f"loop {place}: {turns} of {wanted} turns"
        for (block, extent), (real_block, real_extent) in zip(
            self.blocks, real.blocks, strict=False
        ):
            if block == real_block and real_extent % real_block and not extent % block:
                yield f"no ragged block of {block} of {real_extent}"


Borders = tuple[CallBorders, ...]
"""Of each call of a function, in the order of the program."""


def borders(jaxpr: Any) -> Borders:
    calls = (call for eqn in walked(jaxpr) if (call := as_pallas_call(eqn)) is not None)
    return tuple(map(_of_call, calls))


def _of_call(call: Any) -> CallBorders:
    mapping, body = call.params["grid_mapping"], call.params["jaxpr"]
    return CallBorders(
        grid=tuple(size if isinstance(size, int) else None for size in mapping.grid),
        blocks=tuple(
            pair
            for operand in mapping.block_mappings
            for pair in zip(block_shape(operand), array_of(operand).shape, strict=True)
        ),
        loops=tuple(_loops(body)),
        body=frozenset(eqn.primitive.name for eqn in walked(body)),
    )


def _loops(jaxpr: Any) -> Iterator[int | None]:
    for eqn in walked(open_jaxpr(jaxpr)):
        if eqn.primitive.name == "scan":
            yield int(eqn.params["length"])
        elif eqn.primitive.name == "while":
            yield None


class Coverage:
    """Of small problems of one config, by what ``trace`` says of a problem: None where the kernel
    cannot be built for it."""

    def __init__(self, trace: Callable[[Problem], Borders | None], problem: Problem) -> None:
        self._trace = trace
        self._known: dict[Problem, Borders | None] = {}
        self.real = self.of(problem)

    def of(self, problem: Problem) -> Borders | None:
        if problem not in self._known:
            self._known[problem] = self._trace(problem)
        return self._known[problem]

    def lacking(self, problem: Problem, count: int) -> list[str] | None:
        """What a small problem does not cross; None where the kernel cannot be built for it."""
        small = self.of(problem)
        if small is None or any(call.is_idle for call in small):
            return None
        if self.real is None:
            return []
        if len(small) != len(self.real):
            return ["another number of calls"]
        return [
            sentence
            for call, real in zip(small, self.real, strict=True)
            for sentence in call.lacking(real, count)
        ]

    def covers(self, problem: Problem, count: int) -> bool:
        return self.lacking(problem, count) == []

    def takes_same_path(self, problem: Problem) -> bool:
        """Whether the bodies do what the real ones do."""
        small = self.of(problem)
        return (
            self.real is None
            or small is None
            or [c.body for c in small] == [c.body for c in self.real]
        )

    def blocks_of(self, extent: int) -> frozenset[int]:
        """The blocks that dimensions of this length are cut into."""
        pairs = (pair for call in self.real or () for pair in call.blocks)
        return frozenset(block for block, whole in pairs if whole == extent and block < extent)
