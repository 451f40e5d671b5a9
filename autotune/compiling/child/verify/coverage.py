"""Whether a small problem crosses the borders that the real one crosses, read from both traces."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from operator import ge
from types import MappingProxyType
from typing import Any

import numpy as np

from autotune.compiling.child.trace import pallas_call, scalars
from autotune.compiling.child.trace.blocks import array_of, block_shape, memory_space, starts
from autotune.compiling.child.trace.calls import as_pallas_call, compute, inner_jaxprs, walked
from autotune.compiling.child.verify import conditions
from autotune.compiling.child.verify.numbers import lengths_cut, lengths_given, rows_named
from autotune.declaring.kernel import Array
from autotune.domain.evidence import ENOUGH_BLOCKS, Covered, Walked
from autotune.domain.problem import Problem

_TILE = 128  # its longer side
_ROWS = 64  # different ones, of operands that name some
_UNSET = (0, 65521)  # what memory may hold that nothing has set; a prime: few steps divide it


@dataclass(frozen=True, slots=True)
class CallBorders:
    """What one ``pallas_call`` walks. ``grid``: steps of each axis, None where an argument decides.
    ``blocks``: of each operand and dimension the block and the array, in elements. ``loops``: turns
    of each loop of the body in the order of the program, None where they depend on data. ``ways``:
    of the comparisons in index maps and body. ``inside``: whether all blocks of each operand and
    dimension begin in the array. ``ends``: of them and of what the body accesses. ``rows``: of each
    operand that names some, how many different ones, and how many. ``pipelines``: steps of each
    axis of those in the body. ``source``: of the body's function."""

    grid: tuple[int | None, ...]
    blocks: tuple[tuple[int, int], ...]
    loops: tuple[int | None, ...]
    ways: conditions.Ways = ()
    inside: tuple[bool, ...] = ()
    ends: conditions.Ends = ()
    rows: tuple[tuple[int, int], ...] = ()
    pipelines: tuple[int | None, ...] = ()
    source: tuple[str, int] | None = None

    @property
    def steps(self) -> tuple[int | None, ...]:
        return (*self.grid, *self.pipelines)

    def covers(self, real: "CallBorders", count: int) -> bool:
        """Whether this walks ``count`` blocks and turns, fewer only where the real call does, a
        ragged block wherever that does, and leaves no array in which that stays, nor reaches the
        end of one where that does not. With
        :data:`ENOUGH_BLOCKS` each comparison goes all its ways."""
        has_steps = all(map(partial(_is_enough, count), zip_longest(self.steps, real.steps)))
        same_loops = len(self.loops) == len(real.loops)
        has_turns = not same_loops or all(
            map(partial(_is_enough, count), zip(self.loops, real.loops, strict=True))
        )
        has_ways = count < ENOUGH_BLOCKS or conditions.goes_all_ways(self.ways, real.ways)
        is_alike = self.source == real.source
        is_alike = is_alike and all(map(_is_as_ragged, self.blocks, real.blocks))
        is_alike = is_alike and all(map(ge, self.inside, real.inside))
        is_alike = is_alike and all(map(_names_as_many, self.rows, real.rows))
        is_alike = is_alike and conditions.ends_alike(self.ends, real.ends)
        return has_steps and has_turns and has_ways and is_alike


Borders = tuple[CallBorders, ...]
"""Of each call of a function, in the order of the program; then of its given integers, and of its
reference."""


def _covered(real: CallBorders, smalls: Sequence[CallBorders]) -> Covered:
    grids = zip(real.steps, *(small.steps for small in smalls), strict=True)
    edges = [n for n, (block, extent) in enumerate(real.blocks) if extent % block]
    alike = [n for n in edges if any(_is_as_ragged(s.blocks[n], real.blocks[n]) for s in smalls)]
    ways = [small.ways for small in smalls if len(small.ways) == len(real.ways)]
    gone = [len(r & frozenset().union(*taken)) for r, *taken in zip(real.ways, *ways, strict=True)]
    return Covered(
        blocks=tuple(Walked(_most(sizes, size), size) for size, *sizes in grids),
        ragged=Walked(len(alike), len(edges)),
        ways=Walked(sum(gone), sum(map(len, real.ways)) if ways else 0),
        by_data=real.ways.count(frozenset()),
    )


def _sum(parts: Iterable[Walked]) -> Walked:
    return Walked(*(sum(number or 0 for number in numbers) for numbers in zip(*parts, strict=True)))


def _ranks(calls: Borders) -> list[tuple[int, int]]:
    return [(len(call.steps), len(call.blocks)) for call in calls]


def _most(sizes: Iterable[int | None], real: int | None) -> int | None:
    known = [size for size in sizes if size is not None]
    return min(max(known), real) if known and real is not None else None


def _is_enough(count: int, numbers: tuple[int | None, int | None]) -> bool:
    """Of steps or turns, those of the small problem first; what is not known is not compared."""
    small, real = numbers
    return small is None or real is None or small >= min(count, real)


def _is_as_ragged(small: tuple[int, int], real: tuple[int, int]) -> bool:
    (block, extent), (real_block, real_extent) = small, real
    return block != real_block or not real_extent % block or bool(extent % block)


def _names_as_many(small: tuple[int, int], real: tuple[int, int]) -> bool:
    """Whether so many rows are different that a wrong one shows: a page for all hides which was
    copied. A table may be filled up with one."""
    return small[0] >= min(small[1], real[0], _ROWS)


BlockSize = tuple[str | None, int, bool]
"""The operand whose integers are the lengths that it cuts, None for any; its elements; and whether
none is of two sequences."""


def borders(
    jaxpr: Any,
    arrays: Sequence[Array],
    reference: Any | None = None,
    block_sizes: Sequence[BlockSize] = (),
    naming: Set[str] = frozenset(),
) -> Borders:
    """``arrays``: the arguments, whose integers may decide a grid, or name rows (``naming``).
    ``block_sizes``: those that a config has for what is no dimension."""
    eqns = (call for eqn in walked(jaxpr) if (call := as_pallas_call(eqn)) is not None)
    calls = list(map(_of_call, eqns))
    if any(None in call.steps for call in calls):
        with suppress(ValueError):  # not even these decide it
            known = pallas_call.calls(jaxpr, arrays)
            if len(known) == len(calls):
                calls = [replace(_of_call(k.eqn, _counted(k)), grid=k.grid) for k in known]
    compared = [] if reference is None else [_of_reference(reference)]
    data = _of_integers(arrays, block_sizes, naming)
    return (*calls, *(() if data is None else (data,)), *compared)


def _of_integers(
    arrays: Sequence[Array], block_sizes: Sequence[BlockSize], naming: Set[str]
) -> CallBorders | None:
    """How many blocks of each size there may be in what an operand counts: a body that copies
    pages by hand walks them in loops that data decides. Of lengths that are declared, too: whether
    some end in a block, some at its border, and some are empty."""
    lengths, grid, ways = lengths_given(arrays, naming), list[int](), list[frozenset[bool]]()
    for name, size, is_within in block_sizes:
        cut = None if name is None else lengths_cut(arrays, name)
        walked_by = None if cut is None else (cut[-1],) if is_within else (cut[0], cut[-1])
        longest = lengths if walked_by is None else [int(part.max()) for part in walked_by]
        grid += [max(1, -(-length // size)) for length in longest]
        if cut is not None:
            full = cut[-1][cut[-1] > 0]
            ways += [frozenset((full % size == 0).tolist()), frozenset((cut[-1] > 0).tolist())]
    rows = rows_named(arrays, naming)
    if not grid and not rows:
        return None
    return CallBorders(grid=tuple(grid), blocks=(), loops=(), rows=tuple(rows), ways=tuple(ways))


def _of_reference(jaxpr: Any) -> CallBorders:
    """What it compares: a kernel may have forgotten it."""
    ways, ends = conditions.ways_of([(jaxpr, ())])
    return CallBorders(grid=(), blocks=(), loops=(), ways=ways, ends=ends)


def _of_call(call: Any, known: Mapping[Any, Any] = MappingProxyType({})) -> CallBorders:
    """``known``: variables that stay in loops, with what they are."""
    mapping = call.params["grid_mapping"]
    grid = tuple(size if isinstance(size, int) else None for size in mapping.grid)
    added = getattr(mapping, "vmapped_dims", ())
    counted = [size for axis, size in enumerate(grid) if axis not in added]
    operands = mapping.block_mappings
    maps = [(operand.index_map_jaxpr, [*map(conditions.up_to, grid)]) for operand in operands]
    blocks = tuple(
        pair
        for operand in operands
        for pair in zip(block_shape(operand), array_of(operand).shape, strict=True)
    )
    firsts = [  # of the last block
        first
        for operand, each in zip(operands, maps, strict=True)
        for first in starts(
            operand, [index and index.high for index in conditions.results_of(*each)]
        )
    ]
    ways, ends = conditions.ways_of([*maps, (call.params["jaxpr"], ())], counted)
    walked_ends = [
        conditions.end_of(None if first is None else conditions.Range(0, first + block - 1), extent)
        for first, (block, extent) in zip(firsts, blocks, strict=True)
    ]
    body = walked(scalars.open_jaxpr(call.params["jaxpr"]))
    loops = [eqn for eqn in body if eqn.primitive.name in ("scan", "while")]
    turns = tuple(loop.params.get("length") for loop in loops)
    terms = max((size for size in (*grid, *turns) if size), default=1)
    return CallBorders(
        grid=grid,
        blocks=blocks,
        inside=tuple(
            first is not None and first < extent
            for first, (_, extent) in zip(firsts, blocks, strict=True)
        ),
        loops=turns,
        ways=(*ways, *conditions.narrow_sums(call.params["jaxpr"], terms)),
        ends=(*walked_ends, *ends),
        pipelines=tuple(size for loop in loops for size in scalars.pipeline_steps(loop, known)),
        source=scalars.source_of(call.params["jaxpr"]),
    )


def _counted(call: pallas_call.Call) -> dict[Any, Any]:
    """What a body counts from given integers before it loops, as the tiles of all groups, and what
    is the same whatever is in memory that nothing has set."""
    import jax

    body = scalars.open_jaxpr(call.eqn.params["jaxpr"])
    given = [*call.scalars, *map(call.whole_scalars, range(call.mapping.num_inputs))]
    refs = [var for var in body.invars if hasattr(jax, "new_ref")]
    counts: list[dict[Any, Any]] = []
    for unset in _UNSET:
        pairs: Any = zip_longest(refs, given, fillvalue=unset)  # scratch comes last
        words = [(v, n) for v, n in pairs if n is not None and memory_space(v.aval) == "smem"]
        cast = [(v, np.resize(n, v.aval.shape).astype(v.aval.dtype)) for v, n in words]
        counts.append({var: jax.new_ref(jax.numpy.asarray(array)) for var, array in cast})
        _count(body, counts[-1])
    first, second = counts
    return {v: n for v, n in first.items() if np.array_equal(n, second.get(v, ()))}


def _count(jaxpr: Any, made: dict[Any, Any]) -> None:
    """Adds what can be computed, and forgets references to which something else may write."""

    def operands(eqn: Any) -> list[Any]:
        return [var.val if hasattr(var, "val") else made.get(var) for var in eqn.invars]

    for eqn in scalars.open_jaxpr(jaxpr).eqns:
        each = [eqn, *(e for inner, _ in inner_jaxprs(eqn, [None]) for e in walked(inner))]
        ends = all(e.primitive.name != "while" or scalars.counter_ends(e) for e in each)
        if ends and all(value is not None for value in operands(eqn)):
            with suppress(Exception):  # the index of a core
                made.update(zip(eqn.outvars, compute(eqn, operands(eqn)), strict=True))
                continue
        for effect in eqn.effects:
            if type(effect).__name__ in ("WriteEffect", "AccumEffect"):
                made[getattr(effect, "input", None) or eqn.invars[effect.input_index]] = None
        if eqn.primitive.name == "while":
            first, count = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
            stay = scalars.open_jaxpr(eqn.params["body_jaxpr"]).invars[:count]
            made.update(zip(stay, operands(eqn)[first:], strict=False))
        elif eqn.primitive.name in ("cond", "run_scoped") or scalars.called_jaxpr(eqn) is not None:
            given = operands(eqn)[eqn.primitive.name == "cond" :]
            for inner, _ in inner_jaxprs(eqn, [None]):
                made.update(zip(scalars.parameters(eqn, inner), given, strict=False))
                _count(inner, made)


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

    def covers(self, problem: Problem, count: int) -> bool:
        """Whether the kernel can be built for a small problem, and each of its calls walks as many
        blocks as that, or as the real one."""
        small = self.of(problem)
        if small is None or any(0 in call.grid for call in small):
            return False
        if self.real is None:
            return True
        return len(small) == len(self.real) and all(
            call.covers(real, count) for call, real in zip(small, self.real, strict=True)
        )

    def covered(self, problems: Iterable[Problem]) -> Covered | None:
        """What some problems have of the real one together; None where they are other programs."""
        real, others = self.real or (), [self.of(problem) or () for problem in problems]
        smalls = [small for small in others if _ranks(small) == _ranks(real)]
        if not real or not smalls:
            return None
        parts = list(map(_covered, real, zip(*smalls, strict=True)))
        return Covered(
            blocks=tuple(axis for part in parts for axis in part.blocks),
            ragged=_sum(part.ragged for part in parts),
            ways=_sum(part.ways for part in parts),
            by_data=sum(part.by_data for part in parts),
        )

    def cuts_near(self, extent: int) -> frozenset[tuple[int, int]]:
        """Blocks, and lengths that they cut, of dimensions as long as this or, for a halo, less
        than a block longer or shorter; and as many parts of this as an axis has steps: arrays may
        be reshaped before the call, or copied by its body."""
        calls = self.real or ()
        steps = [n for call in calls for n in call.steps if n and not extent % (_TILE * n)]
        pairs = [pair for call in calls for pair in call.blocks]
        pairs += [(extent // n, extent) for n in steps]
        return frozenset((b, whole) for b, whole in pairs if abs(whole - extent) < b < whole)
