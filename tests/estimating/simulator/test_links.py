"""Remote DMAs and semaphores of other devices: a ring of equal devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.explanation import LINKS
from autotune.estimating.simulator import dma, simulate
from autotune.estimating.simulator.bundles import parse
from autotune.estimating.simulator.constants import load
from autotune.estimating.simulator.lowering import (
    ANY_SEMAPHORE,
    AWAITED,
    HBM_READ,
    STEP,
    TOLD,
    WAITED,
    CoreWork,
)
from autotune.estimating.simulator.slicing import IS_REMOTE, cut
from tests.samples import recordings
from tests.samples.handwritten import SCALAR, SEMAPHORE, listing, read, wait

CHIP = load("v5e")
SHARD_BYTES = 1024 * 512 * 4
RIGHT = IS_REMOTE | 1


def sent(clock, granules, device):
    return (clock, granules, 1, HBM_READ, (0.0, 2, IS_REMOTE | device))


def replayed(events, clock=0.0):
    final = (clock, 0, 0, STEP, CoreWork(*(0.0 for _ in CoreWork._fields)))
    return dma.replay(events, dma.shared(CHIP), final).end


def hops(count, granules):
    """As many sends to the right, each after what the one before has brought."""
    each = [
        sent(0.0, granules, 1),
        (0.0, granules, 2, WAITED, (5,)),
        (0.0, granules, 1, WAITED, (6,)),
    ]
    return replayed(each * count)


@given(st.lists(st.integers(1, 1 << 16), min_size=1, max_size=9))
def test_it_is_never_faster_than_the_link(sizes):
    end = replayed([*(sent(0.0, size, 1) for size in sizes), (0.0, sum(sizes), 1, WAITED, (5,))])
    assert end.cycles >= sum(sizes) * CHIP.granule_bytes / CHIP.link_bytes_per_cycle
    assert end.linked == end.cycles


@given(st.integers(2, 20), st.integers(100, 1 << 16))
def test_equal_hops_take_as_many_times_one(count, granules):
    assert hops(count, granules).cycles == pytest.approx(count * hops(1, granules).cycles, rel=0.01)


def test_neighbours_have_a_link_each_and_more_devices_a_ring():
    """Of eight devices three are to the left, and bytes for the others go to the right."""
    alone = replayed([sent(0.0, 4096, 1)]).linking
    assert replayed([sent(0.0, 4096, device) for device in (1, 7)]).linking == alone
    everybody = replayed([sent(0.0, 4096, device) for device in range(1, 8)])
    assert everybody.linking == pytest.approx((1 + 2 + 3 + 4) * alone)
    assert replayed([sent(0.0, 4096, 0)]).linking == 0


def test_a_semaphore_is_raised_one_hop_after_it_is_told():
    """Or, where this device has told nobody, one hop after it comes to wait. A core that is alone
    waits for nobody: the cores of a chip speak by semaphores too."""
    told, heard = (0.0, 0, 3, TOLD, ()), (500.0, 0, 3, AWAITED, (7,))
    other = sent(0.0, 1, 1)
    assert replayed([other, told, heard], 500.0).linked == pytest.approx(CHIP.hop_cycles - 500)
    assert replayed([other, heard], 500.0).linked == CHIP.hop_cycles
    assert replayed([told, heard], 500.0).linked == 0


def test_what_comes_to_a_number_is_taken_by_the_wait_that_has_nothing_else():
    event = (0.0, 64, ANY_SEMAPHORE, HBM_READ, (0.0, 2, RIGHT))
    assert replayed([event, (0.0, 64, 9, WAITED, (5,))]).linked > CHIP.hop_cycles


@pytest.mark.parametrize(
    ("name", "shards", "devices"),
    [("v5e-0.10.2-ring_gather_4_1024_512", 3, 1), ("v7x-0.10.2-ring_barrier_8_1024_512", 1, 2)],
)
def test_a_ring_takes_its_shards_by_the_link(name, shards, devices):
    """JAX's tutorial: all-gather over four devices; and a hand-over behind a barrier, on v7x to the
    other core of the chip."""
    made = recordings.run(name)
    rate = {"v5e": 45, "v7x": 89.4}[recordings.chip(name)] * 1e3 / devices
    assert shards * SHARD_BYTES / rate < made.us_shared < 1.15 * shards * SHARD_BYTES / rate
    assert made.parts[LINKS] > 0.9 * made.cycles_shared


@pytest.mark.parametrize("allocation", [3, 1023, 2500])
@pytest.mark.parametrize(("place", "crosses"), [(26, False), (15, False), (14, True), (2, True)])
def test_a_copy_that_names_its_own_core_goes_to_no_device(place, crosses, allocation):
    """Ragged dots of v6e and v7x load the number of their core; it says nothing of another chip."""
    core = (
        "%s4_s4 = sld [smem:[#allocation9]]",
        f"%s5_s5 = sshll.u32 %s4_s4, {place}",
        f"%s7_s7 = smov [#allocation{allocation}]",
        "%s6_s6 = sadd.s32 134217728, %s5_s5",
    )
    flag = "/*dst_syncflagno=*/[#allocation3]"
    named = "/*dst_syncflagno=*/%s7_s7, /*src_syncflagno=*/[#allocation5], /*overrides=*/%s6_s6"
    text = listing(*core, read(1).replace(flag, named), wait(3))
    crossings = cut(parse(text), {}).crossings.values()
    assert bool(crossings) is crosses
    for crossing in crossings:
        assert crossing.received.source.startswith(f"({min(allocation, 1023) << 20}+")


def test_a_wait_that_nothing_satisfies_is_named():
    assert recordings.refusal(listing(read(1), wait(7, flag="[#allocation5]")), chip="v5e") == (
        "%7 waits for a DMA that never starts: it may hang"
    )


_OWN = "int_to_ptr.sflag [#allocation3]", "sadd.s32 4, [#allocation3]", "smov [#allocation3]"


@pytest.mark.parametrize("semaphore", ["smov %s8_s8", *_OWN])
@pytest.mark.parametrize("given", [True, False])
def test_a_product_that_looks_for_a_collective_goes_on_without_it(semaphore, given):
    """A semaphore of its own that a kernel reads may decide anything."""
    looked = (f"%s4_s4 = {semaphore}", "%5 = vsyncmov %s4_s4", "%s6_s6 = vpop.sfrf %5")
    tested = "%p7_p0 = scmp.ge.s32.totalorder %s6_s6, 64"
    text = listing(*looked, tested, read(1, guard="(%p7_p0),"), read(2), wait(3))
    text = text.replace(SCALAR, f"{SCALAR}  ;;  {SEMAPHORE}") if given else text
    result = simulate(text, chip="v5e")
    if given and semaphore not in _OWN:
        assert result.dma_count == 1
    else:
        assert "%s6_s6 reads of a semaphore" in result.reason
