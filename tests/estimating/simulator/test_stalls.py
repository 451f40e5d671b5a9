"""Stalls of the units, on listings written by hand. Constants are the chip's, the rest is here."""

import pytest

from autotune.estimating.simulator import NotSimulated
from autotune.estimating.simulator.bundles import parse
from autotune.estimating.simulator.constants import element_kind, load
from autotune.estimating.simulator.stalls import price
from benchmarks.calibration.as_libtpu import as_libtpu_counts
from tests.samples.handwritten import listing, read, run, wait


def stalls(*operations, chip="v5e"):
    return run(read(1), wait(2), *operations, chip=chip)


def test_busy_matrix_units_slow_down_operations_of_xla_alone_and_not_as_libtpu_counts():
    product, chip = "%10 = vmatmul.mubr.bf16.gmra.mrb[0].mxu0 %v1", load("v6e", is_fused=True)
    more = chip.matrix_slowdown * chip.bf16_matmul_cycles / chip.mxu_count
    assert more > 0
    fused = run(read(1), wait(2), product, chip="v6e", is_fused=True).stall_cycles
    assert fused == pytest.approx(more, abs=1)
    assert stalls(product, chip="v6e").stall_cycles == as_libtpu_counts(chip).matrix_slowdown == 0
    assert load("v5e", is_fused=True).matrix_slowdown == 0


@pytest.mark.parametrize("pushes", [1, 16])
def test_a_matrix_unit_of_v6e_takes_a_cycle_to_load_each_register_of_weights(pushes):
    """In kernels; what comes too late for it shows in the result that is waited for."""
    pushed = [f"%{n} = vmatpush1.bf16.msra.mxu0 %v1" for n in range(10, 10 + pushes)]
    product = "%50 = vmatmul.mubr.bf16.vlgmr.msra.gmra.mxu0 %v1"
    parsed, chip = parse(listing(*pushed, product, "%v2_v2 = vpop.f32.mrf.mxu0")), load("v6e")
    real, plain = (price(parsed, c).stalls_before[-1] for c in (chip, as_libtpu_counts(chip)))
    assert real - plain == pushes * chip.load_cycles == pushes


def test_no_product_that_was_measured_is_faster_than_the_matrix_units_of_v7x():
    """32,768 cubed ran at 956 TFLOP/s on a device: more than the clock of its core allows."""
    chip = load("v7x")
    rows_per_us = 16 / chip.matmul_cycles("vmatmul.bf16") * chip.mxu_count * chip.clock_hz / 1e6
    assert 956.38 < 2 * chip.mxu_width**2 * rows_per_us / 1e6 < 1000


def test_8_bit_floats_are_multiplied_as_bfloat16_where_no_unit_takes_them():
    """Two ragged dots of a real v5p took that long; without, estimates were four times as long."""
    chip, widened = load("v5p"), "vmatmul.msk.f8e4m3b11.bf16.gmra.mxu0"
    assert chip.matmul_cycles(widened) == 2 * chip.matmul_cycles("vmatmul.bf16.gmra.mxu0")
    assert chip.matmul_results(widened) == chip.matmul_results("vmatmul.s8.gmra.mxu0") == 4
    assert element_kind("vmatpush.bf8.bf16.msra.mxu0") == "int8"  # of float8_e5m2


@pytest.mark.parametrize(("pushes", "share"), [(16, 1), (8, 0.5), (4, 0.25), (32, 1)])
def test_only_rows_that_hold_weights_slow_a_matrix_unit_down(pushes, share):
    """256 rows of v6e, 16 a push. On a real one attention of head size 64 is slowed less."""
    pushed = [f"%{n} = vmatpush1.bf16.msra.mxu0 %v1" for n in range(10, 10 + pushes)]
    products = ["%50 = vmatmul.mubr.bf16.vlgmr.msra.gmra.mxu0 %v1"]
    products += [f"%{n} = vmatmul.mubr.bf16.gmra.mxu0 %v1" for n in range(51, 151)]
    chip, parsed = load("v6e", is_fused=True), parse(listing(*pushed, *products))
    real, plain = (
        price(parsed, known).stalls_before[-1] for known in (chip, as_libtpu_counts(chip))
    )
    busy = len(products) * chip.bf16_matmul_cycles / chip.mxu_count
    assert real - plain == pytest.approx(share * chip.matrix_slowdown * busy)


def test_weights_that_are_transposed_take_as_long_in_half_as_large_pushes():
    """XLA's products of v6e name no type and push twice: 25.5 us by 4 cycles for 26.2 measured,
    43.7 by the 8 of those that are of bfloat16."""

    def starts(push, count):
        pushes = [f"%{n} = {push}.xpose.msra.mxu0 %v1" for n in range(100, 100 + count)]
        product = "%50 = vmatmul.mubr.bf16.vlgmr.msra.gmra.mxu0 %v1"
        parsed = parse(listing(*pushes, product))
        return count + price(parsed, as_libtpu_counts(load("v6e"))).stalls_before[-1]

    assert starts("vmatpush1", 96) == pytest.approx(starts("vmatpush1.bf16", 48), abs=4)


def test_a_pop_waits_for_its_matmul():
    chip = load("v5e")
    result = stalls("%10 = vmatmul.bf16.gmra.mxu0 %v1", "%v2_v2 = vpop.f32.mrf.mxu0")
    assert result.stall_cycles == chip.stalls.matmul_latency["bf16"] - 1
    assert result.mxu_busy_cycles == 16 / 4
    apart = stalls("%10 = vmatmul.bf16.gmra.mxu0 %v1", "%v2_v2 = vpop.f32.mrf.mxu1")
    assert apart.stall_cycles == 0


@pytest.mark.parametrize(
    ("chip", "libtpu"), [("v5e", "0.0.48"), ("v5e", "0.0.50"), ("v5p", "0.0.50")]
)
def test_the_third_cross_lane_unit_is_the_fastest_to_reduce_since_libtpu_0_0_48(chip, libtpu):
    """Found in libtpu's estimate of the reductions in benchmarks/calibration/samples.py, 1 to 64:
    before, all three units take as long."""
    now, before = (load(chip, series).stalls.reduce_latency for series in (libtpu, "0.0.42"))
    assert now["xlu0"] == now["xlu1"] > now["xlu2"] + 16
    assert len(set(before.values())) == 1


@pytest.mark.parametrize("moved", ["vrot.lane.b32", "vperm.lane"])
def test_the_third_cross_lane_unit_is_the_fastest_to_move_lanes_too_and_patterns_are_free(moved):
    """Normalization over lanes on v5p: libtpu counts 66,417 cycles, 81,140 came of equal units."""

    def stalled(unit):
        operations = f"%10 = {moved}.{unit} %v1", f"%v2_v2 = vpop.permute.{unit} %10"
        pattern = f"%9 = vset.pattern.permute.{unit} %v0"
        plain, fixed = (stalls(*more, *operations, chip="v5p") for more in ((), (pattern,)))
        assert fixed.stall_cycles == plain.stall_cycles
        return plain.stall_cycles

    assert stalled("xlu0") - 24 == stalled("xlu1") - 24 == stalled("xlu2") == 90 - 1


@pytest.mark.parametrize(
    ("chip", "unit", "operation"),
    [
        ("v5e", "xlu3", "vadd.xlane.f32.xlu3"),
        ("v6e", "xlu2", "vadd.xlane.f32.xlu2"),
        ("v5e", "mxu4", "vmatmul.bf16.gmra.mxu4"),
        ("v7x", "mxu2", "vmatmul.mubr.bf16.gmra.mrb[0].mxu2"),
    ],
)
def test_a_unit_that_the_chip_does_not_have_is_refused(chip, unit, operation):
    refused = stalls(f"%20 = {operation} %v1", chip=chip)
    assert refused == NotSimulated(f"{chip} has no {unit}: {operation}")
