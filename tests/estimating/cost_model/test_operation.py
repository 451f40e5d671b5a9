"""How long XLA keeps the chip around the kernels, by the order of the schedule."""

from dataclasses import replace

import pytest

from autotune.domain.explanation import Phase
from autotune.domain.key import Chip
from autotune.estimating.cost_model.operation import Rates, hbm_bytes_per_us, xla_time
from autotune.estimating.simulator.constants import LISTED, SPARSE, start_us
from tests.samples.operations import KERNEL, SUM, operation
from tests.samples.traces import V5E

RATE = hbm_bytes_per_us(V5E)
READ_US, WRITE_US = 645 / 1500, 436 / 1500  # latencies of v5e


def moved(us):
    """Bytes that take so long."""
    return round(us * RATE)


START = operation("copy-start", opcode="copy", phase=Phase.START, hbm_bytes=moved(30))
DONE = operation("copy-done", opcode="copy", phase=Phase.DONE, awaits="copy-start")


def time_us(*schedule, kernel_us=100.0):
    """Beside the start of the program."""
    return xla_time(schedule, [(kernel_us, 0)], V5E).time_us - start_us()


def test_a_program_takes_its_time_to_start():
    """Products of 128 and 256 cubed on a real v7x take 0.14 and 0.25 us more than their fusions."""
    assert xla_time([KERNEL], [(100.0, 0)], V5E).time_us == start_us() == 0.2
    assert xla_time([], [], V5E).time_us == 0


def test_by_its_own_schedule_or_else_by_its_bytes():
    assert time_us(operation("a", simulated_us=7.0, hbm_bytes=moved(500))) == pytest.approx(7)
    assert time_us(operation("a", hbm_bytes=moved(500))) == pytest.approx(500)
    assert time_us(operation("a", simulated_us=7.0, runs=3), KERNEL) == pytest.approx(21)


def test_what_was_started_ahead_hides_behind_the_kernel():
    assert time_us(START, KERNEL, DONE) == pytest.approx(0)
    assert time_us(START, DONE, KERNEL) == pytest.approx(30 + READ_US)
    assert time_us(replace(START, is_write=True), DONE) == pytest.approx(30 + WRITE_US)
    assert time_us(START, KERNEL, DONE, kernel_us=10) == pytest.approx(20 + READ_US)
    assert time_us(replace(START, runs=3), DONE) == pytest.approx(3 * (30 + READ_US))


@pytest.mark.parametrize("opcode", ["call", "call-update"])  # of libtpu 0.0.44 and 0.0.50
@pytest.mark.parametrize("does", ["", "gather", "scatter"])
def test_a_sparsecore_moves_bytes_at_nine_tenths_of_the_rate_of_copies(does, opcode):
    """It reads its command, its program and indices before them."""
    begun = replace(START, opcode=opcode, kind=does)
    assert time_us(begun, DONE) == pytest.approx(30 / 0.9 + 4 * READ_US)


def test_a_gather_is_told_by_what_says_its_time():
    gather = operation("g", kind="gather", hbm_bytes=moved(30))
    begun = replace(gather, name="copy-start", opcode="call-update", phase=Phase.START)
    timed = (gather, replace(gather, simulated_us=7.0), begun, DONE)
    assert list(xla_time(timed, [], V5E).by_kind) == ["gather", LISTED, SPARSE]


def test_what_the_program_before_fetches_is_there():
    assert time_us(replace(START, is_ahead=True), DONE, KERNEL) == pytest.approx(0)


@pytest.mark.parametrize(("its_bytes_us", "waited_us"), [(0, 10), (20, 30), (15, 25), (5, 15)])
def test_a_copy_on_its_way_waits_for_what_an_operation_moves(its_bytes_us, waited_us):
    """30 us of bytes beside an operation of 20 us, which leaves HBM for the rest of them."""
    other = operation("a", simulated_us=20.0, hbm_bytes=moved(its_bytes_us))
    assert time_us(START, other, DONE) == pytest.approx(20 + waited_us + READ_US)


@pytest.mark.parametrize(("its_bytes_us", "takes_us"), [(0, 20), (5, 25), (20, 40)])
def test_an_operation_shares_hbm_with_a_copy_that_nobody_waits_for(its_bytes_us, takes_us):
    """30 us of bytes for the next program. A product hides what it can behind its arithmetic."""
    other = operation("a", simulated_us=20.0, hbm_bytes=moved(its_bytes_us))
    assert time_us(START, other) == pytest.approx(takes_us)
    hidden = min(its_bytes_us, 20 - its_bytes_us)
    assert time_us(START, replace(other, flops=1)) == pytest.approx(takes_us - hidden)


@pytest.mark.parametrize(("kernels", "longer_us"), [([], 6 * 6 / 12), ([(1.0, 0.0)], 6)])
def test_a_copy_ahead_on_v5p_has_all_of_hbm_where_an_operation_leaves_it(kernels, longer_us):
    """6 us of bytes beside 12, of which 6 are of bytes: half of both is over after 9. Around a
    kernel each byte waits."""
    v5p = replace(V5E, chip=Chip.V5P, num_cores=2)
    rate = Rates(v5p).one_way_bytes_per_us
    ahead, other = (
        replace(START, hbm_bytes=round(6 * rate)),
        operation("a", simulated_us=11.9, hbm_bytes=round(6 * rate)),
    )
    taken_us = xla_time([ahead, other], kernels, v5p).time_us - start_us()
    assert taken_us == pytest.approx(12 + longer_us)


def test_copies_ahead_follow_each_other():
    more = operation("more-start", opcode="copy", phase=Phase.START, hbm_bytes=moved(30))
    both = (START, more, DONE, operation("d", phase=Phase.DONE, awaits="more-start"))
    assert time_us(*both) == pytest.approx(60 + READ_US)


def test_both_cores_of_a_chip_wait_for_each_other_after_each_operation():
    schedule = [operation(name, simulated_us=7.0, runs=5) for name in "ab"]
    v5p = replace(V5E, chip=Chip.V5P, num_cores=2)
    assert xla_time(schedule, [], v5p).time_us == pytest.approx(start_us() + 2 * 5 * 7.1)
    assert time_us(*schedule) == pytest.approx(2 * 5 * 7)


@pytest.mark.parametrize(
    ("streams_us", "takes_us"),
    [
        ([9_000], 9_000),
        ([20_000], 23_077),
        ([5_000] * 4, 23_077),
        ([9_000, 0, 9_000], 18_000),
        ([20_000, 0], 23_077),
    ],
)
def test_a_long_stream_falls_to_what_hbm_of_v6e_sustains(streams_us, takes_us):
    """20 ms at the full rate are 18 at 0.78 of it, as far as 2 are saved. What leaves HBM alone
    for a while saves them again, as it does in each turn of a loop; another chip has no such
    limit."""
    v6e = replace(V5E, chip=Chip.V6E, hbm_bytes_per_s=1_640_000_000_000)
    rate = Rates(v6e).one_way_bytes_per_us
    schedule = [
        operation(str(n), simulated_us=us or 5_000.0, hbm_bytes=round(us * rate))
        for n, us in enumerate(streams_us)
    ]
    rest_us = 5_000 * streams_us.count(0)
    measured_us = xla_time(schedule, [], v6e).time_us - start_us() - rest_us
    assert measured_us == pytest.approx(takes_us, abs=1)
    assert time_us(*schedule) - rest_us == pytest.approx(sum(streams_us))
    in_loop = [
        replace(
            o,
            loop="while",
            runs=500,
            simulated_us=o.simulated_us / 500,
            hbm_bytes=o.hbm_bytes // 500,
        )
        for o in schedule
    ]
    never = [replace(o, runs=0) for o in in_loop]
    assert xla_time(never, [], v6e).time_us == start_us()
    busy_us = max(sum(streams_us) + rest_us, (sum(streams_us) - 2_000) / 0.78)
    assert xla_time(in_loop, [], v6e).time_us - start_us() == pytest.approx(busy_us, abs=1)


def test_a_kernel_strains_hbm_as_operations_of_xla_do():
    v6e = replace(V5E, chip=Chip.V6E, hbm_bytes_per_s=1_640_000_000_000)
    moves = round(9_000 * Rates(v6e).one_way_bytes_per_us)
    after = operation("after", simulated_us=9_000.0, hbm_bytes=moves)
    made = xla_time([KERNEL, after], [(10_000.0, moves)], v6e)
    # The kernel uses 1,200 of the 2,000 us that are saved.
    assert made.time_us - start_us() == pytest.approx((9_000 - 800) / 0.78)
    assert made.kernels_late_us == 0
    alone = xla_time([KERNEL], [(10_000.0, 2 * moves)], v6e)
    assert alone.kernels_late_us == pytest.approx((10_000 - 2_000) / 0.78 - 10_000)
    assert xla_time([KERNEL], [(10_000.0, 2 * moves)], V5E).kernels_late_us == 0


def test_only_what_matters_is_unknown():
    large = operation("large", undecided="m.py:7", simulated_us=0.1)
    small = operation("small", refusal="a scalar decides", hbm_bytes=moved(0.1))
    assert xla_time([KERNEL, large, small], [(100.0, 0)], V5E).unknown == ("large",)
    refused = operation("refused", refusal="a scalar decides", hbm_bytes=moved(5))
    assert xla_time([KERNEL, refused], [(100.0, 0)], V5E).unknown == ("refused",)
    often = replace(small, runs=20)
    assert xla_time([KERNEL, often], [(100.0, 0)], V5E).unknown == ("small",)


def test_what_cannot_be_simulated_takes_the_longer_of_its_bytes_and_what_xla_expects():
    refused = operation("r", refusal="a scalar decides", hbm_bytes=moved(5), expected_cycles=10**6)
    assert time_us(refused) == time_us(replace(refused, flops=1, dtype="bfloat16")) > 100
    assert time_us(operation("r", hbm_bytes=moved(5), expected_cycles=10**6)) == pytest.approx(5)


def test_collectives_are_named_and_not_timed():
    found = xla_time([operation("r", transfer=SUM, hbm_bytes=moved(50))], [], V5E)
    assert (found.time_us, found.untimed) == (start_us(), ("r",))
    known = operation("k", simulated_us=9.0)
    sparse = operation(
        "s", opcode="call-update", is_kernel=True, hbm_bytes=moved(50), undecided="l"
    )
    alone, found = (xla_time(each, [], V5E) for each in ([known], [known, sparse]))
    assert (found.time_us, found.untimed, found.error) == (alone.time_us, ("s",), None)
    assert (found.hbm_bytes, found.unknown) == (alone.hbm_bytes, ())
