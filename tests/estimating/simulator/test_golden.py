"""Steps, DMAs and bytes of recorded listings, against arithmetic on the problem."""

import dataclasses
import json

import pytest

from autotune.estimating.simulator import constants
from tests.samples import recordings

MEGACORE = ("v4", "v5p")  # the listing is one core's half of the first parallel axis
DTYPE_BYTES = {"": 2, "float32": 4, "int8": 1}


def matmul_traffic(name):
    """Grid (m/bm, n/bn, k/bk), k innermost: every step reads two new blocks, unless k is whole."""
    *numbers, dtype = [*name.split("-mm_")[1].split("_"), ""][:7]
    m, k, n, bm, bk, bn = map(int, numbers)
    rows = m // bm // (2 if recordings.chip(name) in MEGACORE else 1)
    steps = rows * (n // bn) * (k // bk)
    size = DTYPE_BYTES[dtype]
    out = 4 if dtype == "int8" else size
    read = steps * (bm * bk + bk * bn) * size
    written = rows * bm * n * out
    return steps, 2 * steps + rows * (n // bn), read, written


MATMULS = [name for name in recordings.names() if "-mm_" in name]
ALL_IN_HBM = [
    name for name in MATMULS if name.startswith(("v4", "v5", "v6", "v7x-0.12.0.1-mm_4096_4096"))
]


@pytest.mark.parametrize("name", ALL_IN_HBM)
def test_matmul_moves_exactly_its_blocks(name):
    result = recordings.run(name)
    got = (result.steps, result.dma_count, result.hbm_bytes_read, result.hbm_bytes_written)
    assert got == matmul_traffic(name)
    assert result.vmem_operands == ()


def test_operands_placed_in_vmem_are_reported_and_not_counted():
    result = recordings.run("v7x-0.10.2-mm_1024_1024_1024_128_128_128")
    assert result.vmem_operands == (0, 1)
    assert (result.steps, result.dma_count, result.hbm_bytes_read) == (512, 64, 0)
    assert result.hbm_bytes_written == 1024 * 1024 * 2
    assert any("VMEM" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "steps", "dmas", "read", "written"),
    [
        # add: 2 reads and 1 write a step, every block once
        ("v4-0.10.2-add_2048_1024_256_512", 8, 24, 2 * 1024 * 1024 * 4, 1024 * 1024 * 4),
        ("v7x-0.12.0.1-add_4096_4096_256_512", 128, 384, 2 * 4096 * 4096 * 4, 4096 * 4096 * 4),
        # three row blocks on two cores: core 0 has two; its index needs an integer division
        ("v5p-0.10.2-add_768_1024_256_1024", 2, 6, 2 * 512 * 1024 * 4, 512 * 1024 * 4),
        # softmax: 1 read, 1 write
        ("v5e-0.10.2-softmax_2048_1024_128", 16, 32, 2048 * 1024 * 4, 2048 * 1024 * 4),
        ("v7x-0.12.0.1-softmax_16384_2048_128", 128, 256, 16384 * 2048 * 4, 16384 * 2048 * 4),
        # rmsnorm: the weights once; one row of (1, 2048) bf16 is padded to two sublanes
        ("v5p-0.10.2-rms_4096_2048_128", 16, 33, 2048 * 2048 * 2 + 2 * 2048 * 2, 2048 * 2048 * 2),
        # a loop inside the kernel, and transposes
        ("v5e-0.10.2-loop_1024_512_128", 8, 16, 1024 * 512 * 4, 1024 * 512 * 4),
        ("v7x-0.12.0.1-transpose_4096_4096_256", 256, 512, 4096 * 4096 * 4, 4096 * 4096 * 4),
        # DMAs by hand inside a fori_loop; v7x had the input in VMEM
        ("v5e-0.10.2-manual_1024_512_128", 8, 16, 1024 * 512 * 4, 1024 * 512 * 4),
        ("v7x-0.12.0.1-manual_1024_512_128", 8, 8, 0, 1024 * 512 * 4),
        # flash (batch 1, heads, length, head size, q block, k block): q and out once per q block,
        # k and v every step; head size 64 is padded to 128 lanes
        (
            "v5e-0.10.2-flash_1_2_1024_128_256_256",
            2 * 4 * 4,
            2 * 2 * 4 + 2 * 2 * 4 * 4,
            2 * 1024 * 128 * 2 * (1 + 2 * 4),
            2 * 1024 * 128 * 2,
        ),
        (
            "v5p-0.10.2-flash_1_4_1024_64_128_128",  # q was in VMEM
            2 * 8 * 8,
            2 * 8 + 2 * 2 * 8 * 8,
            2 * 1024 * 128 * 2 * 2 * 8,
            2 * 1024 * 128 * 2,
        ),
        ("v6e-0.10.2-flash_1_4_1024_64_128_128", 4 * 8 * 8, 0, 0, 0),  # all of it in VMEM
        # an index map with i // 3: eleven different input blocks, 32 output blocks
        ("v6e-0.6.2-divs_2048_2048_64", 32, 11 + 32, 11 * 64 * 2048 * 4, 2048 * 2048 * 4),
    ],
)
def test_kernels_move_exactly_their_blocks(name, steps, dmas, read, written):
    result = recordings.run(name)
    assert result.steps == steps
    assert result.dma_count == dmas
    assert (result.hbm_bytes_read, result.hbm_bytes_written) == (read, written)


@pytest.mark.parametrize("max_steps", [20, 50, 100, 300])
@pytest.mark.parametrize(
    "name", ["v5e-0.10.2-mm_1024_1024_1024_128_128_128", "v4-0.10.2-mm_1024_1024_1024_128_128_128"]
)
def test_extrapolation_agrees_with_the_whole_run(name, max_steps):
    whole, part = recordings.run(name), recordings.run_to(name, max_steps)
    assert (part.notes != whole.notes) == (max_steps < whole.steps)
    assert part.steps == whole.steps
    assert part.dma_count == whole.dma_count
    assert part.hbm_bytes_read == whole.hbm_bytes_read
    assert part.hbm_bytes_written == whole.hbm_bytes_written
    for field in ("cycles_shared", "bundle_cycles", "mxu_busy_cycles"):
        assert getattr(part, field) == pytest.approx(getattr(whole, field), rel=0.01)


@pytest.mark.parametrize("name", recordings.names())
def test_the_breakdown_adds_up_and_is_json(name):
    result = recordings.simulate(recordings.text(name), chip=recordings.chip(name))
    if isinstance(result, recordings.NotSimulated):
        pytest.skip("needs scalar data")
    json.dumps(dataclasses.asdict(result))
    assert result.cycles_shared == pytest.approx(sum(result.parts.values()), abs=2)
    assert round(result.us_shared * result.clock_hz / 1e6) == result.cycles_shared
    assert result.mxu_busy_cycles <= result.bundle_cycles + result.stall_cycles


def test_the_nearest_series_of_constants_is_used_and_named():
    """Series are counted by the third part of the version; one in the middle takes the newer."""
    listing = recordings.text("v5e-0.10.2-mm_1024_2048_512_256_512_256")
    for version, series, said in (
        ("0.0.42.1", "0.0.42", False),
        ("0.0.17.1", "0.0.42", True),
        ("0.0.45", "0.0.48", True),
        ("0.0.49", "0.0.50", True),
        ("0.0.99", "0.0.50", True),
        ("0.1.0", "0.0.50", True),
        (None, "0.0.50", False),
    ):
        result = recordings.simulate(listing, chip="v5e", libtpu=version)
        assert result.constants == series
        assert any("the nearest to" in note for note in result.notes) == said


def test_a_file_of_constants_serves_the_series_that_a_fit_found_the_same():
    other, fitted = (constants.load("v7x", version) for version in ("0.0.42.1", "0.0.50.1"))
    assert other == dataclasses.replace(fitted, libtpu="0.0.42")
