"""Operations of XLA in which a collective goes on: timed without it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from autotune.compiling.child.compile.scheduled import simulated, timed
from autotune.domain.key import Chip
from tests.estimating.simulator.test_grammar import loop
from tests.samples import recordings
from tests.samples.handwritten import SCALAR, SEMAPHORE, listing, read, wait
from tests.samples.operations import KERNEL, operation
from tests.samples.traces import operand, trace

_STATE = SCALAR.replace("<no memory space> [shape: s32[]", "smem [shape: s32[2]")


def _time(*operands, **options):
    text = listing(
        "%s1_s1 = sld [smem:[%s9_s9]]",
        "%p1_p1 = scmp.gt.s32.totalorder %s1_s1, 0",
        "%11 = vsyncmov %s8_s8",
        "%s2_s2 = vpop.sfrf %11",
        "%p2_p2 = scmp.gt.s32.totalorder %s2_s2, 65535",
        "%p3_p3 = pand %p1_p1, %p2_p2",
        read(1),
        read(2, guard="(%p3_p3),"),
        wait(3),
    )
    return simulated(text.replace(SCALAR, "  ;;  ".join(operands)), None, Chip.V5E, **options)


def test_how_far_a_collective_is_that_goes_on_decides_nothing():
    assert isinstance(_time(_STATE, SEMAPHORE), tuple)


def test_other_scalars_are_not_guessed():
    assert "semaphore" in str(_time(_STATE))
    assert "operand 3" in str(_time(SCALAR, SEMAPHORE))


def test_a_scalar_of_a_fusion_says_where_a_slice_begins():
    assert isinstance(_time(SCALAR, SEMAPHORE, is_fused=True), tuple)


def test_indices_of_a_fusion_may_be_any_where_the_time_is_the_same():
    """A row that is beyond the table is not read; or an index says how often a loop runs."""
    copy = read(7).replace("hbm_to_vmem", "hbm_to_smem").replace("allocation2", "allocation5")
    index = "%s5_s5 = sld [smem:[#allocation5 + $0x180]]"
    within = "%p6_p6 = scmp.lt.s32.totalorder %s5_s5, 4096", read(9, guard="(%p6_p6),")
    looped = loop("%s5_s5")
    same, decided, kernel = (
        simulated(listing(copy, wait(8), index, *used), None, Chip.V5E, is_fused=is_fused)
        for used, is_fused in ((within, True), (looped, True), (within, False))
    )
    assert isinstance(same, tuple)
    assert "indices" in decided and "operand 0" in kernel


def test_what_a_product_sends_for_a_collective_takes_no_time_in_it():
    """A recorded ring, given a semaphore as XLA's products with collectives are."""
    text = recordings.text("v5e-0.10.2-ring_gather_4_1024_512")
    alone = simulated(text, None, Chip.V5E)
    first = text.index("inlined_call_operand")
    start = text.rindex("%", 0, first)
    given = simulated(f"{text[:start]}{SEMAPHORE}  ;;  {text[start:]}", None, Chip.V5E)
    assert given[0] < alone[0] / 2


@pytest.mark.parametrize(
    ("name", "chip"),
    [("v5e-0.10.2-gmm_512_256_256_4", Chip.V5E), ("v7x-0.12.0.1-gmm_512_256_256_4", Chip.V7X)],
)
def test_groups_of_a_ragged_dot_that_is_no_call_of_the_function_are_taken_for_equal(name, chip):
    """XLA's own is megablox, but for the shape of the number of visits: four tiles, and three ends
    of groups within them."""
    text = recordings.text(name)
    own = text.replace("s32[], index: 0,", "s32[1], index: 0,")
    ends, groups, tiles = [0, 192, 320, 448, 512], [0, 0, 1, 1, 2, 2, 3], [0, 1, 1, 2, 2, 3, 3]
    given = {0: [7], 1: ends, 2: groups, 3: tiles, 4: [0]}
    known = recordings.run(name, scalars=given)
    us, moved = simulated(own, None, chip)
    assert us == pytest.approx(known.us_shared, 0.01)
    assert moved == known.hbm_bytes_read + known.hbm_bytes_written
    assert "operand 0" in str(simulated(text, None, chip))


def test_of_a_kernel_without_its_call_nothing_is_known():
    assert timed(replace(KERNEL, is_kernel=True), None).is_unsized
    assert not timed(operation("sum"), None).is_unsized


def test_what_a_fusion_reads_twice_it_moves_twice():
    """By its listing, as a core has it: XLA's arrays say only that it is read."""
    text = listing(read(1), wait(2), read(3), wait(4))
    once, both = (simulated(text, None, chip) for chip in (Chip.V5E, Chip.V5P))
    assert timed(operation("sum", hbm_bytes=32), once).hbm_bytes == once[1] > 32
    assert both[1] == 2 * once[1]


def test_of_pages_in_hbm_a_kernel_moves_what_it_copies():
    """Of a decode step on v6e they kept HBM busy for all of its attention, 24 layers of it."""
    pages = trace(operand((8, 128), (8, 128), space="any", hbm_bytes=1 << 20))
    call = SimpleNamespace(traces=lambda _: [pages], sends=False, is_unsized=False)
    moved = [timed(KERNEL, outcome, call).hbm_bytes for outcome in ((5.0, 4096), "data decide")]
    assert moved == [4096, 1 << 20]
