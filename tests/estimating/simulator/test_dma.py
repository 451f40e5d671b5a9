"""The DMA engine, on listings written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiling.child.devices import tpu_info
from autotune.domain.key import Chip
from autotune.estimating.simulator import dma, simulate
from autotune.estimating.simulator.constants import CHIPS, load
from autotune.estimating.simulator.lowering import HBM_READ, HBM_WRITE, STEP, WAITED, CoreWork
from benchmarks.calibration.as_libtpu import independent
from tests.samples.handwritten import HBM, SCALAR, libtpu_cycles, listing, read, run, wait

LARGE = "2048"  # granules: 64 KiB


def test_dmas_on_one_semaphore_follow_each_other_as_libtpu_counts():
    """On two semaphores both have the whole bandwidth."""
    flag, moves = "[#allocation4]", 2048 * 32 / load("v5e").dma_bytes_per_cycle
    one = libtpu_cycles(read(1, size=LARGE), read(2, size=LARGE), wait(3, size="4096"))
    other = (read(2, size=LARGE, flag=flag), wait(3, size=LARGE), wait(4, size=LARGE, flag=flag))
    two = libtpu_cycles(read(1, size=LARGE), *other)
    assert one - two == pytest.approx(moves, abs=3)


def test_a_copy_within_hbm_moves_its_bytes_twice():
    """A written byte takes longer than one that is read; and of the two latencies the longer."""
    chip = load("v5e")
    within = read(1, size=LARGE).replace("hbm_to_vmem", "hbm_to_hbm")
    copied, plain = (run(dma, wait(2, size=LARGE)) for dma in (within, read(1, size=LARGE)))
    assert copied.hbm_bytes_read == copied.hbm_bytes_written == plain.hbm_bytes_read == 2048 * 32
    moves = 2048 * 32 / chip.hbm_bytes_per_cycle * chip.write_cost
    assert chip.write_cost > 1.05
    later = max(chip.write_latency_cycles, chip.real_read_latency_cycles)
    late = moves + later - chip.real_read_latency_cycles
    assert copied.cycles_shared - plain.cycles_shared == pytest.approx(late, abs=2)


@pytest.mark.parametrize("place", ["[#allocation3]", "[#allocation3 + $0x1]"])
def test_a_copy_to_both_cores_signals_the_own_one_too(place):
    """Its semaphore has that of the other core in its upper half."""
    both = ("%s1_s1 = sor.u32 24576, %s5_s5", "%s2_s2 = sshll.u32 %s1_s1, 16")
    named = (f"%s5_s5 = smov {place}", *both, "%s3_s3 = sor.u32 %s2_s2, %s5_s5")
    shared, own = (run(*named, read(4, flag=f), wait(6, flag=place)) for f in ("%s3_s3", place))
    assert shared.cycles_shared == own.cycles_shared


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


@pytest.mark.parametrize("name", CHIPS)
def test_hbm_is_never_faster_than_what_a_time_is_refused_by(name):
    """A time below the bytes at the peak rate of the chip is taken for a misread listing."""
    chip = load(name)
    assert chip.hbm_bytes_per_cycle * chip.clock_hz <= tpu_info(Chip(name))["hbm_bytes_per_s"]


@pytest.mark.parametrize("name", CHIPS)
def test_what_hardware_showed_is_not_in_what_libtpu_counts(name):
    chip = load(name)
    channel = independent(chip)
    assert (channel.turn_cost, channel.chip_latency) == (0.0, chip.read_latency_cycles)


_WORK = CoreWork(*(0.0 for _ in CoreWork._fields))


def _steps(core_cycles, granules, chip):
    """The totals of a core that works, then reads, then waits for what it has read, so often."""
    events = []
    for number, (busy, size) in enumerate(zip(core_cycles, granules, strict=True), 1):
        clock = float(sum(core_cycles[:number]))
        events += [(clock, size, 1, HBM_READ, (0.0,)), (clock, size, 1, WAITED, ())]
        assert busy >= 0
    final = (float(sum(core_cycles)), 0, 0, STEP, _WORK)
    return dma.replay(events, dma.shared(chip), final).end


def test_a_burst_has_the_whole_chips_memory_as_far_as_its_core_left_it_to_the_other():
    """Work long enough, and a read of 1 MiB goes at the rate of a burst; without, at half of it."""
    chip, size = load("v5p"), 2**20
    granules, latency = size / chip.granule_bytes, chip.real_read_latency_cycles
    rested = _steps([100_000], [granules], chip).waited - latency
    at_once = _steps([0], [granules], chip).waited - latency
    assert rested == pytest.approx(size / chip.burst_bytes_per_cycle)
    assert at_once == pytest.approx(size / chip.hbm_bytes_per_cycle)
    assert chip.burst_bytes_per_cycle > 1.5 * chip.hbm_bytes_per_cycle
    fused = load("v5p", is_fused=True)  # its cores do the same at once, and leave each other less
    between = _steps([100_000], [granules], fused).waited - fused.real_read_latency_cycles
    assert between == pytest.approx(size / fused.burst_bytes_per_cycle)
    assert rested < 0.7 * between < 0.65 * at_once


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 60_000)), min_size=1, max_size=20),
    st.sampled_from(["v5e", "v5p", "v6e", "v7x"]),
)
def test_in_the_long_run_a_core_has_no_more_than_its_share(steps, name):
    """However its bursts lie."""
    chip = load(name)
    end = _steps(*zip(*steps, strict=True), chip)
    assert end.cycles >= end.read_bytes / chip.hbm_bytes_per_cycle - 1e-6


@pytest.mark.parametrize(("kinds", "share"), [((HBM_READ, HBM_WRITE), 1), ((HBM_WRITE,), 0)])
def test_bytes_take_longer_where_reads_and_writes_take_turns(kinds, share):
    """64 MiB of small DMAs; half of each is what a copy moves."""
    chip, size, count = load("v6e"), 2**16, 1024
    issued = [(0.0, size / chip.granule_bytes, n, kinds[n % len(kinds)], ()) for n in range(count)]
    waits = [(0.0, size / chip.granule_bytes, n, WAITED, ()) for n in range(count)]
    end = dma.replay([*issued, *waits], dma.shared(chip), (0.0, 0, 0, STEP, _WORK)).end
    bytes_per_cycle = size * count / (end.cycles - chip.real_write_latency_cycles)
    slower = 1 + chip.turn_cost * share
    assert bytes_per_cycle == pytest.approx(chip.hbm_bytes_per_cycle / slower, rel=0.015)
    assert chip.turn_cost > 0.04


@pytest.mark.parametrize("size", [2**16, 2**21])
@pytest.mark.parametrize(("kinds", "late"), [((HBM_WRITE, HBM_READ), 1), ((HBM_READ,), 0)])
def test_a_read_of_v7x_arrives_later_where_it_follows_a_write(kinds, late, size):
    """As much as the write takes, up to a limit."""
    chip = load("v7x")
    issued = [(0.0, size / chip.granule_bytes, kind, kind, ()) for kind in kinds]
    wait = (0.0, size / chip.granule_bytes, HBM_READ, WAITED, ())
    end = dma.replay([*issued, wait], dma.shared(chip), (0.0, 0, 0, STEP, _WORK)).end
    moving = size * len(kinds) / chip.hbm_bytes_per_cycle * (1 + chip.turn_cost / 2 * late)
    turn = min(chip.turn_latency_cycles, size / chip.hbm_bytes_per_cycle)
    latency = chip.real_read_latency_cycles + turn * late
    assert end.cycles == pytest.approx(moving + latency, rel=0.02)
    assert chip.turn_latency_cycles > 500


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("made", ["bf16[8,128]", "f32[8,128]", "bf16[8,1]"])
@pytest.mark.parametrize("operation", ["%9 = vxpose.xlu0.b32.start.end [1/1] vx=%v1", "%9 = vld"])
def test_a_copy_of_v7x_that_transposes_16_bits_for_a_kernel_has_libtpus_own_latencies(
    operation, made, is_plain
):
    given = HBM.replace("s32[8,128]", made.replace("8,1]", "8,128]"))
    output = HBM.replace("_s0 =", "_s1 =").replace("input", "output").replace("s32[8,128]", made)
    within = read(1, size="65536").replace("hbm_to_vmem", "hbm_to_hbm")
    text = listing(within, wait(2, size="65536"), operation)
    text = text.replace(HBM, given).replace(SCALAR, output)
    us = simulate(text, chip="v7x", is_fused=True, is_plain=is_plain).us_shared
    is_own = "vxpose" in operation and made == "bf16[8,128]" and not is_plain
    late_us = 0.40 if is_own else 1.4
    assert us - late_us == pytest.approx(2 * 65536 * 32 / 3165e3, abs=0.02)


@pytest.mark.parametrize(("is_fused", "share"), [(True, 2), (False, 5)])
def test_a_read_of_xla_on_v5p_has_half_of_hbm_beside_a_write(is_fused, share):
    """Of a quarter of its bytes; the write ends later by as much. One of a kernel follows it."""
    chip = load("v5p", is_fused=is_fused, is_plain=True)
    size = 2**20 / chip.granule_bytes
    sent = [(0.0, 4 * size, 1, HBM_WRITE, ()), (0.0, size, 2, HBM_READ, ())]
    read, write = ((0.0, n * size, kind, WAITED, ()) for n, kind in ((1, 2), (4, 1)))
    final, channel = (0.0, 0, 0, STEP, _WORK), dma.shared(chip)
    first, both = (
        dma.replay(events, channel, final).end for events in ([*sent, read], [*sent, read, write])
    )
    bytes_us = 2**20 / chip.hbm_bytes_per_cycle
    assert first.cycles - chip.real_read_latency_cycles == pytest.approx(share * bytes_us, rel=0.08)
    moved = both.cycles - max(chip.real_write_latency_cycles, chip.real_read_latency_cycles)
    assert moved == pytest.approx(5 * bytes_us, rel=0.1)


def test_operations_of_xla_on_v5p_read_beside_a_write_in_programs_without_kernels_alone():
    flag = "[#allocation4]"
    write = read(1, size="32768", flag=flag).replace("hbm_to_vmem", "vmem_to_hbm")
    bundles = (write, read(2, size="4096"), wait(3, size="4096"), wait(4, size="32768", flag=flag))
    plain, around = (
        run(*bundles, chip="v5p", is_fused=True, is_plain=is_plain) for is_plain in (True, False)
    )
    assert plain.hbm_bytes_written == around.hbm_bytes_written > 0
    assert plain.cycles_shared < around.cycles_shared


def test_a_write_takes_longer_beside_its_bytes_than_libtpu_says():
    chip = load("v5p", is_fused=True)
    events = [(0.0, 1.0, 1, HBM_WRITE, ()), (0.0, 1.0, 1, WAITED, ())]
    end = dma.replay(events, dma.shared(chip), (0.0, 0, 0, STEP, _WORK)).end
    assert end.cycles == pytest.approx(chip.real_write_latency_cycles, abs=2)
    assert chip.write_latency_cycles < end.cycles < chip.real_read_latency_cycles
    assert load("v5p").real_read_latency_cycles == chip.read_latency_cycles


def test_what_hardware_showed_of_the_clock_changes_no_cycle_of_libtpus_own_reading():
    """DMAs of libtpu's model are in cycles of its own clock."""
    chip = load("v7x", is_fused=True)
    assert chip.dma_bytes_per_cycle == pytest.approx(3715 / 2.2)
    assert chip.clock_hz < 2.2e9
    assert chip.hbm_bytes_per_cycle * chip.clock_hz == pytest.approx(0.924 * 3700e9)
    copied = chip.hbm_bytes_per_cycle * chip.clock_hz / (1 + chip.turn_cost)
    kernel = load("v7x")
    assert kernel.hbm_bytes_per_cycle * kernel.clock_hz == pytest.approx(copied, rel=1e-3)
    assert kernel.turn_cost == 0
