"""``visits`` against brute force: every grid point in order, blocks as tuples."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiling.child.trace import visits as module
from autotune.compiling.child.trace.visits import BlockWalk, same_walk, visits

BLOCK, EXTENT = 4, 14  # 14 elements in blocks of 4: the fourth block has 2, a fifth has none


@st.composite
def grids(draw):
    return tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))


@st.composite
def indices(draw, grid):
    """An index of one array dimension: along some axes of the grid, straight or anyhow."""
    shape = tuple(extent if draw(st.booleans()) else 1 for extent in grid)
    if draw(st.booleans()):  # the usual index map: one program id
        axis = draw(st.integers(0, len(grid) - 1))
        return np.arange(grid[axis]).reshape([-1 if a == axis else 1 for a in range(len(grid))])
    values = draw(st.lists(st.integers(0, 4), min_size=prod(shape), max_size=prod(shape)))
    return np.array(values, dtype=np.int64).reshape(shape)


@st.composite
def walks(draw, grid):
    found = [draw(indices(grid)) for _ in range(draw(st.integers(1, 3)))]
    sizes = tuple(np.clip(EXTENT - BLOCK * index, 0, BLOCK) for index in found)
    return BlockWalk(index=tuple(found), sizes=sizes)


@st.composite
def grids_with_walks(draw):
    grid = draw(grids())
    return grid, draw(walks(grid))


def enumerate_steps(walk, grid):
    """(grid point, block, elements) of each step in order."""
    full = [np.broadcast_to(i, grid) for i in walk.index]
    sizes = [np.broadcast_to(s, grid) for s in walk.sizes]
    for point in product(*map(range, grid)):
        yield point, tuple(int(i[point]) for i in full), prod(int(s[point]) for s in sizes)


def brute_varies(steps, axis):
    by_rest = {}
    for point, block, _ in steps:
        by_rest.setdefault(point[:axis] + point[axis + 1 :], set()).add(block)
    return any(len(blocks) > 1 for blocks in by_rest.values())


def brute_exclusive(steps, axis):
    positions = {}
    for point, block, _ in steps:
        positions.setdefault(block, set()).add(point[axis])
    return all(len(found) == 1 for found in positions.values())


@given(grids_with_walks())
def test_visits_are_those_of_brute_force(case):
    grid, walk = case
    steps = list(enumerate_steps(walk, grid))
    found = visits(walk, grid)
    changed = [n for n, s in enumerate(steps) if n == 0 or s[1] != steps[n - 1][1]]
    assert found.exact
    assert found.fetches == len(changed)
    assert found.blocks == len({block for _, block, _ in steps})
    assert found.elements == sum(steps[n][2] for n in changed)
    axes = range(len(grid))
    assert found.varies == tuple(brute_varies(steps, axis) for axis in axes)
    assert found.exclusive == tuple(brute_exclusive(steps, axis) for axis in axes)


@given(st.data())
def test_a_permuted_walk_is_the_walk_of_the_permuted_grid(data):
    grid, walk = data.draw(grids_with_walks())
    order = data.draw(st.permutations(range(len(grid))))
    permuted = tuple(grid[axis] for axis in order)
    before = {p: (b, n) for p, b, n in enumerate_steps(walk, grid)}
    for point, block, elements in enumerate_steps(walk.permuted(order), permuted):
        original = [0] * len(grid)
        for position, axis in enumerate(order):
            original[axis] = point[position]
        assert before[tuple(original)] == (block, elements)


@given(st.data())
def test_walks_are_the_same_when_every_step_visits_the_same_block(data):
    grid = data.draw(grids())
    a, b = data.draw(walks(grid)), data.draw(walks(grid))
    full_a, full_b = list(enumerate_steps(a, grid)), list(enumerate_steps(b, grid))
    assert same_walk(a, a)
    assert same_walk(a, b) == ([s[:2] for s in full_a] == [s[:2] for s in full_b])


def test_an_unknown_index_is_answered_with_caution():
    walk = BlockWalk(index=(None, np.zeros((1, 1), int)), sizes=(np.full((1, 1), 4),) * 2)
    found = visits(walk, (3, 1))
    assert not found.exact
    assert (found.fetches, found.blocks, found.elements) == (3, 3, 48)
    assert (found.varies, found.exclusive) == ((True, False), (False, True))


def test_too_many_steps_are_answered_with_caution(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENUMERATED_STEPS", 5)
    index = np.array([0, 1, 0, 1, 0, 2]).reshape(6)
    walk = BlockWalk(index=(index,), sizes=(np.full(6, 4),))
    assert not visits(walk, (6,)).exact
    assert visits(BlockWalk(index=(index[:5],), sizes=(np.full(5, 4),)), (5,)).exact


@pytest.mark.parametrize("grid", [(1 << 20, 1 << 20, 4), (1 << 30,)])
def test_a_large_grid_with_plain_index_maps_is_not_enumerated(grid):
    """2^42 steps: the answer follows from each axis on its own."""
    rank = len(grid)
    last = np.arange(4).reshape((1,) * (rank - 1) + (4,)) if rank == 3 else np.arange(1 << 10)
    walk = BlockWalk(index=(last,), sizes=(np.full_like(last, 4),))
    shape = grid if rank == 3 else (1 << 10,)
    found = visits(walk, shape)
    assert found.exact
    assert found.fetches == prod(shape)
    assert found.elements == 4 * prod(shape)
