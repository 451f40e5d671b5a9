"""Kernels whose time depends on scalar data: exact with it, refused without."""

import itertools
from functools import partial

import numpy as np
import pytest

from autotune.estimating.simulator.memory import ScalarMemory, packed
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.scalars import ALLOCATION_SHIFT, SHARED_ALLOCATION
from tests.samples import recordings
from tests.samples.handwritten import read, run, wait

GATHERS = ["v4-0.10.2", "v5e-0.6.2", "v5e-0.10.2", "v7x-0.12.0.1"]
IN_HBM = GATHERS[:3]


def gather(which):
    return f"{which}-gather_16_1024_512"


@pytest.mark.parametrize("which", IN_HBM)
@pytest.mark.parametrize(
    "rows", [list(range(16)), [0] * 16, [0, 0, 1, 1, 1, 5, 5, 2, 2, 2, 2, 2, 9, 9, 9, 9]]
)
def test_a_gather_reads_a_block_only_when_the_row_changes(which, rows):
    result = recordings.run(gather(which), scalars={0: rows})
    changes = 1 + sum(a != b for a, b in itertools.pairwise(rows))
    prefetch_bytes = 512  # 16 words, rounded up to a line
    assert result.steps == 16
    assert result.dma_count == changes + 16 + 1
    assert result.hbm_bytes_read == changes * 8 * 512 * 4 + prefetch_bytes
    assert result.hbm_bytes_written == 16 * 8 * 512 * 4


@pytest.mark.parametrize("which", IN_HBM)
def test_a_gather_without_its_rows_refuses(which):
    name = gather(which)
    reason = recordings.refusal(recordings.text(name), chip=recordings.chip(name))
    assert "operand 0" in reason


@pytest.mark.parametrize("which", ["v5e-0.10.2", "v7x-0.12.0.1"])
def test_inner_loops_run_as_often_as_the_data_says(which):
    name = f"{which}-ploop_512_256_64_3"

    def bundles(trips):
        return recordings.run(name, scalars={0: trips}).bundle_cycles

    none, one, all_ = bundles([0] * 8), bundles([1] + [0] * 7), bundles([8] * 8)
    per_pass = (all_ - bundles([7] * 8)) / 8
    assert none < one < all_
    assert all_ - bundles([1] * 8) == 8 * 7 * per_pass
    assert "operand 0" in recordings.refusal(recordings.text(name), chip=recordings.chip(name))


@pytest.mark.parametrize("name", ["v5e-0.6.2-dyn_1024_512_128", "v5e-0.10.2-dyn_1024_512_128"])
@pytest.mark.parametrize("bound", [1, 5, 8])
def test_a_dynamic_grid_runs_its_bound(name, bound):
    result = recordings.run(name, scalars={0: [bound]})
    assert (result.steps, result.dma_count) == (bound, 2 * bound)
    assert result.hbm_bytes_read == result.hbm_bytes_written == bound * 128 * 512 * 4


def test_a_dynamic_grid_without_its_bound_refuses():
    text = recordings.text("v5e-0.10.2-dyn_1024_512_128")
    assert "operand 0 is the grid bound" in recordings.refusal(text, chip="v5e")
    assert "no DMA" in recordings.refusal(text, chip="v5e", scalars={0: [0]})


@pytest.mark.parametrize("name", ["v5e-0.10.2-gmm_512_256_256_4", "v7x-0.12.0.1-gmm_512_256_256_4"])
def test_grouped_matmul_with_its_metadata(name):
    """Four groups of 128 rows: 4 active tiles, 2 by 2 tiles of columns and depth."""
    metadata = {
        0: [4],
        1: [0, 128, 256, 384, 512],
        2: [0, 1, 2, 3, 3, 3, 3],
        3: [0, 1, 2, 3, 3, 3, 3],
        4: [0],
    }
    result = recordings.run(name, scalars=metadata)
    assert result.steps == 4 * 2 * 2
    assert result.hbm_bytes_written == 512 * 256 * 4
    for missing in metadata:
        rest = {k: v for k, v in metadata.items() if k != missing}
        outcome = recordings.simulate(
            recordings.text(name),
            chip=recordings.chip(name),
            libtpu=recordings.libtpu(name),
            scalars=rest,
        )
        if isinstance(outcome, recordings.Simulation):
            assert outcome == result  # this operand does not decide the time


def test_a_back_edge_that_is_printed_outside_of_its_loop():
    """tokamax's ragged dot (gradient of the rows, 16 groups of 256 rows, tiles of 128 by 512 by 256
    with three buffers): behind it stands what turns to the next buffer. 3 by 32 by 2 steps, each
    with a block of weights; a DMA wait that nothing satisfies otherwise."""
    tiles = [*range(32), *[31] * 15]
    scalars = {
        0: [32],
        1: list(range(0, 4097, 256)),
        2: [tile // 2 for tile in tiles],
        3: tiles,
        4: [0],
    }
    result = recordings.run("v7x-0.10.2-gmm_tokamax_4096_1024_768_16", scalars=scalars)
    assert result.steps == 3 * 32 * 2
    assert result.hbm_bytes_read == result.steps * 512 * 256 * 2
    assert result.hbm_bytes_written == 4096 * 768 * 2


@pytest.mark.parametrize("length", [64, 128])
def test_paged_attention_reads_the_pages_of_each_sequence(length):
    """8 sequences, 2 key-value heads of 128 in bf16, pages in blocks of four."""
    scalars = {0: [length] * 8, 1: list(range(64)), 2: [0], 3: [1]}
    result = recordings.run("v5e-0.12.0.1-paged", scalars=scalars)
    assert result.hbm_bytes_read == 8 * length * 2 * 128 * 2 * 2
    assert "operand" in recordings.refusal(recordings.text("v5e-0.12.0.1-paged"), chip="v5e")


@pytest.mark.parametrize(
    ("dtype", "shape", "place", "word", "shift"),
    [
        ("s32", (300,), (257,), 257, 0),
        ("s8", (300,), (257,), 1, 16),  # rows of 128 share a word, four at a time
        ("s32", (9, 300), (8, 299), (8 * 3 + 2 * 8) * 128 + 43, 0),  # second band, third tile
        ("s32", (3, 5, 7), (2, 4, 6), (2 * 8 + 4) * 128 + 6, 0),  # five rows fill a tile of eight
        ("s8", (1, 4, 4), (0, 3, 2), 2, 24),
        ("s8", (2, 40, 200), (1, 39, 199), ((5 + 4) * 2 + 1) * 256 + 128 + 71, 24),
        ("s16", (2, 40, 200), (1, 39, 199), ((5 + 4) * 2 + 1) * 512 + 3 * 128 + 71, 16),
    ],
)
def test_scalar_memory_is_tiled_like_vector_memory(dtype, shape, place, word, shift):
    """As the compiler addresses them: each case was counted in DMAs of a kernel that reads them."""
    elements = np.zeros(shape, int)
    elements[place] = 1
    words = packed(elements.reshape(-1).tolist(), dtype, shape)
    assert {n: w for n, w in enumerate(words) if w} == {word: 1 << shift}


def test_more_scalars_than_the_operand_has_are_refused():
    with pytest.raises(UnfitError, match="were given"):
        packed([1, 2, 3], "s32", (2,))


def test_allocations_beyond_the_first_thousand_are_one_that_holds_nothing():
    """libtpu writes a null and a dummy flag of its own for each DMA."""
    flag = "[#allocation2500]"
    many, few = run(read(1, flag=flag), wait(2, flag=flag)), run(read(1), wait(2))
    assert (many.cycles_shared, many.dma_count) == (few.cycles_shared, 1)
    memory = ScalarMemory(given={}, absent={}, opaque=False, operands={})
    store, fill = partial(memory.store, word=1), partial(memory.fill, 0, 0, 1, granule_bytes=32)
    for write in (store, fill):
        with pytest.raises(UnfitError, match="in more than 1,023 allocations"):
            write(SHARED_ALLOCATION << ALLOCATION_SHIFT)
