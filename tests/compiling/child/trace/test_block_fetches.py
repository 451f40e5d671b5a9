"""``visits`` against brute force: every grid point in order, blocks as tuples."""

from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiling.child.trace import block_fetches as module
from autotune.compiling.child.trace.block_fetches import BlockWalk, same_walk, visits

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


def test_too_many_steps_are_answered_with_caution(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENUMERATED_STEPS", 5)
    index = np.array([0, 1, 0, 1, 0, 2]).reshape(6)
    walk = BlockWalk(index=(index,), sizes=(np.full(6, 4),))
    assert not visits(walk, (6,)).exact
    assert visits(BlockWalk(index=(index[:5],), sizes=(np.full(5, 4),)), (5,)).exact
