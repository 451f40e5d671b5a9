"""Rules against brute force over small grids, and against JAX's own check of block shapes."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotune.compiling.child.trace.block_fetches import BlockWalk, visits
from autotune.domain.key import Chip
from autotune.domain.outcome import MisalignedBlock, UnreadInput, UnsafeAlias, UnwrittenOutput
from autotune.estimating import bad_visits, legality
from autotune.wording.outcome import violation_text
from tests.samples.traces import V4, V5E, V7X, operand, scratch, trace

P, A = "parallel", "arbitrary"


def output(**fields):
    return operand((64, 512), (16, 128), name="out", is_output=True, **fields)


# --- alignment


@pytest.mark.parametrize(
    ("bits", "dtype", "rows"),
    [
        (8, "int8", 32),
        (8, "float8_e4m3fn", 32),
        (8, "int4", 64),
        (4, "int4", 64),
        (4, "int8", 8),
        (8, "bfloat16", 8),
        (0, "int8", 8),
    ],
)
def test_narrow_dtypes_have_whole_tiles_where_the_compiler_wants_them(bits, dtype, rows):
    chip = replace(V5E, whole_tiles_up_to_bits=bits)
    blocks = {size: trace(operand((4096, 512), (size, 128), dtype)) for size in range(1, 130)}
    legal = {size for size, one in blocks.items() if legality.misaligned(one, chip) is None}
    assert legal == {size for size in blocks if size % rows == 0}
    assert legality.misaligned(trace(operand((40, 512), (40, 128), dtype)), chip) is None
    found = legality.misaligned(blocks[rows + 1], chip)
    assert found is not None and found.nearest == (rows, 2 * rows)


@pytest.mark.parametrize(
    ("shape", "block", "sentence"),
    [
        (
            (4096, 1024),
            (37, 128),
            "block (37, 128) of x: 37 is not a multiple of 8 and not the whole dimension 4096; "
            "32 or 40 are",
        ),
        (
            (10_000,),
            (384,),
            "block (384) of x: 384 is not a multiple of 1024, not a power of two from 256 and not "
            "the whole dimension 10000; 256 or 512 are",
        ),
    ],
)
def test_a_misaligned_block_is_described(shape, block, sentence):
    found = legality.misaligned(trace(operand(shape, block)), V5E)
    assert found is not None and violation_text(found) == sentence


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=3).map(tuple),
    st.data(),
    st.sampled_from(["float32", "bfloat16", "int8"]),
    st.sampled_from([V5E, replace(V5E, whole_tiles_up_to_bits=8)]),
)
def test_the_nearest_sizes_that_a_refusal_names_are_legal_and_the_nearest(shape, data, dtype, chip):
    block = tuple(data.draw(st.integers(1, size)) for size in shape)
    found = legality.misaligned(trace(operand(shape, block, dtype)), chip)
    assume(found is not None)

    def is_legal(size):
        other = tuple(size if n == found.dimension else b for n, b in enumerate(block))
        again = legality.misaligned(trace(operand(shape, other, dtype)), chip)
        return again is None or again.dimension != found.dimension

    size, whole = block[found.dimension], shape[found.dimension]
    legal = [n for n in range(1, whole + 1) if is_legal(n)]
    below, above = [n for n in legal if n < size], [n for n in legal if n > size]
    assert found.nearest == (*below[-1:], *above[:1])


def test_only_blocks_in_vector_and_scalar_memory_are_checked():
    for space, checked in {"any": False, "hbm": False, "vmem": True, "smem": True}.items():
        found = legality.misaligned(trace(operand((64, 512), (3, 5), space=space)), V5E)
        assert (found is not None) == checked, space
    whole = operand((3, 5), (3, 5), space="smem", blocks=1, blocks_total=1)
    assert legality.misaligned(trace(whole), V5E) is None


# --- visits of outputs


def brute_force_blocks(index, grid):
    full = np.broadcast_to(index, grid)
    return [(point, int(full[point])) for point in product(*map(range, grid))]


@st.composite
def output_walks(draw):
    """A grid and an output that visits blocks along some of its axes."""
    grid = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    shape = tuple(extent if draw(st.booleans()) else 1 for extent in grid)
    values = draw(st.lists(st.integers(0, 3), min_size=prod(shape), max_size=prod(shape)))
    return grid, np.array(values).reshape(shape)


def walked_trace(grid, index, **fields):
    found = visits(BlockWalk(index=(index,), sizes=(np.ones_like(index),)), grid)
    op = output(
        varies=found.varies,
        exclusive=found.exclusive,
        fetches=found.fetches,
        blocks=found.blocks,
        blocks_total=found.blocks,
    )
    return trace(op, grid=grid, **fields)


@given(output_walks())
def test_an_output_is_bad_exactly_when_a_block_is_left_and_visited_again(case):
    grid, index = case
    order = [block for _, block in brute_force_blocks(index, grid)]
    runs = [b for n, b in enumerate(order) if n == 0 or order[n - 1] != b]
    found = bad_visits.bad_output_visits(walked_trace(grid, index))
    assert (found is not None) == (len(runs) != len(set(runs)))


@given(output_walks())
def test_an_axis_is_sequential_exactly_when_two_positions_write_one_block(case):
    grid, index = case
    steps = brute_force_blocks(index, grid)
    made = walked_trace(grid, index)
    for axis in range(len(grid)):
        shared = any(
            block == other and point[axis] != place[axis]
            for point, block in steps
            for place, other in steps
        )
        assert (legality.sequential_axis(made, axis) is not None) == shared


def test_an_output_must_be_written_whole_unless_it_shares_memory_with_an_input():
    half = output(fetches=2, blocks=2, blocks_total=4)
    found = bad_visits.bad_output_visits(trace(half))
    assert found == UnwrittenOutput(operand="out", blocks=2, blocks_total=4)
    x = operand((64, 512), (16, 128))
    assert bad_visits.bad_output_visits(trace(x, half, aliases=((0, 1),))) is None


def test_a_candidate_must_read_what_the_default_reads():
    whole = trace(operand((1024, 64), (128, 64), reached=(1024, 64)))
    short = trace(operand((1024, 64), (768, 64), reached=(768, 64)))
    unread = UnreadInput(operand="x", dimension=0, read=768, whole=1024)
    assert bad_visits.unread_input(short, whole) == unread
    assert bad_visits.unread_input(whole, short) is None  # the default may leave out what it likes
    assert bad_visits.unread_input(short, None) is None
    unknown = trace(operand((1024, 64), (768, 64), reached=(None, 64)))
    assert bad_visits.unread_input(unknown, whole) is None


def test_padding_that_xla_made_may_be_left_out():
    """Of what is no argument of the function, up to the last block of the default."""
    whole = trace(operand((1024, 64), (256, 64), reached=(1024, 64), at_boundary=False))
    for read, is_unread in ((896, False), (768, True)):
        short = trace(operand((1024, 64), (128, 64), reached=(read, 64), at_boundary=False))
        assert (bad_visits.unread_input(short, whole) is not None) == is_unread


# --- parallel axes


def grid3(**fields):
    op = output(varies=(True,) * 3, exclusive=(True,) * 3, fetches=8, blocks=8, blocks_total=8)
    return trace(op, grid=(2, 2, 2), **fields)


@pytest.mark.parametrize(
    ("reset_axes", "prefix"),
    [((), 3), ((2,), 2), ((1, 2), 1), ((0, 1, 2), 0), ((0,), 0), (None, 0)],
)
def test_a_carried_scratch_ends_the_parallel_axes_where_its_reset_begins(reset_axes, prefix):
    carrying = scratch((8, 128), carried=reset_axes != (), reset_axes=reset_axes)
    assert legality.parallel_prefix(grid3(scratch=(carrying,))) == prefix


def test_an_output_written_by_hand_has_no_parallel_axis():
    assert legality.parallel_prefix(trace(output(space="any"))) == 0
    assert legality.parallel_prefix(trace(output(space="semaphore"))) == 1


@pytest.mark.parametrize(
    ("semantics", "legal"),
    [
        ((), True),
        ((A, A, A), True),
        ((P, A, A), True),
        ((P, P, A), True),
        ((P, P, P), False),
        ((A, P, A), False),
        ((P, A), False),
        ((A, A, P), False),
    ],
)
def test_semantics_are_legal_up_to_the_last_parallel_axis(semantics, legal):
    made = grid3(scratch=(scratch((8, 128), reset_axes=(2,)),), dimension_semantics=semantics)
    assert (legality.illegal_semantics(made) is None) == legal


def test_the_author_is_believed_where_the_trace_leaves_it_open():
    """Ours need a proof; a kernel's own semantics are refuted or left to the gate."""
    open_ends = (scratch((8, 128), reset_axes=None),)
    made = grid3(scratch=open_ends, dimension_semantics=(P, A, A))
    assert legality.parallel_prefix(made) == 0
    assert legality.illegal_semantics(made) is None
    by_hand = trace(output(space="any"), dimension_semantics=(P,))
    assert legality.parallel_prefix(by_hand) == 0 and legality.illegal_semantics(by_hand) is None


def test_an_output_that_nobody_reads_cannot_be_wrong():
    own = {"fetches": 8, "blocks": 4, "blocks_total": 9, "exclusive": (False,)}
    assert bad_visits.bad_output_visits(trace(output(**own))) is not None
    assert legality.parallel_prefix(trace(output(**own))) == 0
    unread = trace(output(**own, is_unread=True))
    assert bad_visits.bad_output_visits(unread) is None
    assert legality.parallel_prefix(unread) == 1


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 4))
def test_variants_are_legal_and_no_two_divide_the_same_axis(extents, sequential):
    grid = tuple(extents)
    assume(sequential <= len(grid))
    exclusive = tuple(axis < sequential for axis in range(len(grid)))
    made = trace(output(exclusive=exclusive), grid=grid)
    for chip in (Chip.V4, Chip.V5E, Chip.V5P, Chip.V7X):
        variants = legality.semantics_variants(made, chip)
        for semantics in variants:
            assert legality.illegal_semantics(replace(made, dimension_semantics=semantics)) is None
        divided = [legality.split_axis(grid, s) for s in variants]
        assert len(divided) == len(set(divided))
        assert len(variants) == 1 or chip.is_megacore
        assert None in divided or not chip.is_megacore


@pytest.mark.parametrize(
    ("grid", "semantics", "axis"),
    [
        ((4, 4), (P, P), 0),
        ((3, 4), (P, P), 1),
        ((3, 5), (P, P), 0),
        ((1, 5), (P, P), 1),
        ((4, 4), (A, A), None),
        ((3, 4), (P, A), 0),
        ((1, 1), (P, P), None),
    ],
)
def test_the_axis_that_two_cores_divide(grid, semantics, axis):
    assert legality.split_axis(grid, semantics) == axis


def test_the_first_broken_rule_is_the_answer():
    misaligned = trace(operand((64, 512), (3, 128)), alias_safe=False)
    assert isinstance(legality.violation(misaligned, V4), MisalignedBlock)
    assert legality.violation(trace(output(), alias_safe=False), V7X) == UnsafeAlias()
    assert legality.violation(trace(output()), V7X) is None
