"""The DMA engine, on listings written by hand."""

import pytest

from autotune.simulator.constants import load
from tests.samples.handwritten import read, run, wait

LARGE = "2048"  # granules: 64 KiB


def test_dmas_on_one_semaphore_follow_each_other_as_libtpu_counts():
    """On two semaphores both have the whole bandwidth."""
    flag, moves = "[#allocation4]", 2048 * 32 / load("v5e").dma_bytes_per_cycle
    one = run(read(1, size=LARGE), read(2, size=LARGE), wait(3, size="4096"))
    other = (read(2, size=LARGE, flag=flag), wait(3, size=LARGE), wait(4, size=LARGE, flag=flag))
    two = run(read(1, size=LARGE), *other)
    assert one.cycles_independent - two.cycles_independent == pytest.approx(moves, abs=3)


def test_a_copy_within_hbm_moves_its_bytes_twice():
    """And has the longer of the two latencies."""
    chip = load("v5e")
    within = read(1, size=LARGE).replace("hbm_to_vmem", "hbm_to_hbm")
    copied, plain = (run(dma, wait(2, size=LARGE)) for dma in (within, read(1, size=LARGE)))
    assert copied.hbm_bytes_read == copied.hbm_bytes_written == plain.hbm_bytes_read == 2048 * 32
    moves = 2048 * 32 / chip.hbm_bytes_per_cycle
    later = max(chip.write_latency_cycles, chip.real_read_latency_cycles)
    late = moves + later - chip.real_read_latency_cycles
    assert copied.cycles_shared - plain.cycles_shared == pytest.approx(late, abs=2)


def test_the_mean_burst_is_what_lies_between_two_jumps():
    """Eight steps of 512 bytes; without strides a DMA is one piece."""
    flag, strides = (
        "[#allocation3]",
        "/*src_stride=*/256, /*dst_stride=*/64, /*steps_per_stride=*/8",
    )
    whole = read(1, size=LARGE)
    strided = whole.replace(f"{flag} /*", f"{flag}, {strides} /*")
    assert strided != whole
    assert run(strided, wait(2, size=LARGE)).burst_bytes == 8 * 512
    assert run(whole, wait(2, size=LARGE)).burst_bytes == 2048 * 32
