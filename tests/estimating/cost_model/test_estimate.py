"""From a simulated schedule to an estimate with its parts and a name for what limits it."""

import math
from dataclasses import replace

import pytest

from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.estimating.cost_model.estimate import estimate
from autotune.estimating.simulator.constants import (
    LISTED,
    SPARSE,
    bars,
    error_bar,
    kernel_error,
    pattern_of,
    start_us,
    xla_error,
)
from autotune.wording.outcome import reason_of
from tests.samples.operations import KERNEL, SUM, operation
from tests.samples.simulations import compiled, simulation
from tests.samples.traces import V5E, operand, trace


def run(total_us, hbm_us=1.0, **parts):
    x = operand((8, 128), (8, 128), hbm_bytes=round(hbm_us * V5E.hbm_bytes_per_s / 1e6))
    outcome = estimate(trace(x), compiled(simulation(total_us, **parts)), V5E)
    assert isinstance(outcome, Estimated)
    return outcome.estimate


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        ({"matrix": 20, "hbm": 9, "fill": 5}, "compute"),
        ({"hbm": 30, "latency": 10}, "HBM"),
        ({"hbm": 10, "latency": 30}, "step overhead"),
        ({"scalar": 60}, "step overhead"),
        ({"fill": 50, "latency": 10}, "pipeline fill"),
    ],
)
def test_what_limits(parts, limit):
    found = run(100, **parts)
    assert found.limited_by == limit
    parts_us = dict(found.explanation.parts_us)
    assert found.error == pytest.approx(error_bar("v5e", parts_us, steps=4))


def test_the_parts_add_up_to_the_time():
    e = run(100, 20, scalar=10, matrix=5, lanes=4, hbm=3, latency=2, fill=1)
    assert sum(us for _, us in e.explanation.parts_us) == pytest.approx(e.time_us) == 100
    assert e.explanation.part_us("vector and matrix issue") == pytest.approx(75)
    assert (e.compute_us, e.memory_us, e.fill_us) == pytest.approx((94, 20, 1))
    assert e.overhead_us == pytest.approx(12)
    assert e.vmem_allowed_bytes == V5E.scoped_vmem_bytes


def test_short_bodies_of_v4_have_a_wide_bar_or_none():
    """183 cycles of a step may be missing there: 0.17 us."""
    bars = []
    for total_us in (0.4, 10.0, 100.0):  # of four steps
        outcome = estimate(trace(), compiled(simulation(total_us)), replace(V5E, chip=Chip.V4))
        assert isinstance(outcome, Estimated)
        bars.append(outcome.estimate.error)
    assert bars[0] is None
    base = error_bar("v4")
    assert base is not None
    assert bars[1:] == pytest.approx([base + 0.07, base + 0.007], abs=1e-3)


def test_a_refusal_gives_no_number():
    outcome = estimate(trace(), compiled(None, refusal="unknown opcode"), V5E)
    assert outcome == NotEstimated(reason="unknown opcode", vmem_used_bytes=1, program="p")


def test_operands_that_xla_put_in_vmem_move_nothing_in_the_kernel():
    placed = operand((1024, 1024), (128, 1024), hbm_bytes=1 << 40)
    other = operand((8, 128), (8, 128), hbm_bytes=820_000)
    run_it = {**simulation(10), "vmem_operands": (1,)}
    outcome = estimate(trace(placed, other, scalar_operands=1), compiled(run_it), V5E)
    assert isinstance(outcome, Estimated)
    assert outcome.estimate.hbm_bytes == 820_000


@pytest.mark.parametrize(
    ("fields", "run_fields"),
    [({}, {}), ({"exact": False}, {}), ({}, {"vmem_operands": (0,)}), ({"space": "any"}, {})],
)
def test_a_time_below_what_its_bytes_take_is_no_estimate(fields, run_fields):
    """Unless nobody knows whether they move."""
    x = operand(
        (8, 128), (8, 128), **{"hbm_bytes": round(20 * V5E.hbm_bytes_per_s / 1e6), **fields}
    )
    outcome = estimate(trace(x), compiled({**simulation(10), **run_fields}), V5E)
    if fields or run_fields:
        assert isinstance(outcome, Estimated)
    else:
        assert isinstance(outcome, NotEstimated)
        assert (outcome.us, outcome.least_us) == (pytest.approx(10.0), pytest.approx(20.0))
        assert "10.0 µs is less than the 20.0 µs" in reason_of(outcome)


@pytest.mark.parametrize(("written_us", "bound_us"), [(0.0, 0.01), (10.0, 10.01)])
def test_what_a_kernel_writes_by_hand_counts_by_its_transfers(written_us, bound_us):
    """It may write a few rows of a result and leave the rest: the whole is no bound."""
    cache = operand((8, 128), (8, 128), space="any")
    whole = round(20 * V5E.hbm_bytes_per_s / 1e6)
    result = replace(cache, hbm_bytes=whole, is_output=True)
    run = simulation(30)
    run["hbm_bytes_written"] += round(written_us * V5E.hbm_bytes_per_s / 1e6)
    outcome = estimate(trace(cache, result), compiled(run), V5E)
    assert isinstance(outcome, Estimated) and outcome.estimate.explanation is not None
    assert outcome.estimate.explanation.roofline_us == pytest.approx(bound_us, rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "times"), [("bfloat16", 1), ("float32", 1), ("int8", 2), ("int4", 4)]
)
def test_a_time_below_what_its_operations_take_is_no_estimate(dtype, times):
    flops = round(20e-6 * V5E.bf16_ops_per_s * times)
    for share, kind in ((0.98, NotEstimated), (1.0, Estimated)):
        made = compiled(simulation(20 * share))
        certain = trace(mxu_flops=flops, least_mxu_flops=flops, mxu_dtype=dtype)
        assert isinstance(estimate(certain, made, V5E), kind)
        uncertain = replace(certain, least_mxu_flops=0)
        assert isinstance(estimate(uncertain, made, V5E), Estimated)


def around(*operations):
    made = replace(compiled(simulation(100)), schedule=operations)
    outcome = estimate(trace(), made, V5E)
    assert isinstance(outcome, Estimated)
    return outcome.estimate


def test_what_xla_does_around_the_kernel_is_in_the_time_and_named():
    e = around(operation("copy.1", simulated_us=25.0, hbm_bytes=4096), KERNEL)
    xla_us = 25 + start_us()
    assert (e.time_us, e.kernel_us, e.xla_us) == pytest.approx((100 + xla_us, 100, xla_us))
    assert sum(us for _, us in e.explanation.parts_us) == pytest.approx(e.time_us)
    assert e.explanation.part_us("operations of XLA") == pytest.approx(xla_us)
    assert [(one.name, one.time_us) for one in e.operations] == [("copy.1", 25)]
    assert e.hbm_bytes == around(KERNEL).hbm_bytes + 4096
    kernel, xla = error_bar("v5e"), xla_error("v5e", operations_per_us=1 / xla_us)
    assert kernel is not None and xla is not None
    assert e.error == pytest.approx((kernel * 100 + xla * xla_us) / e.time_us)


def test_plain_xla_of_many_operations_of_a_new_kind_or_of_what_data_decide_is_less_sure():
    known, new = xla_error("v6e"), bars()["other"]["new kind"]["value"]
    assert known == xla_error("v6e", {"convolution": 3.0}) == bars()["XLA"]["value"] < new
    many = xla_error("v6e", {"dot": 3.0}, operations_per_us=0.5)
    assert many == pytest.approx(math.hypot(known, 0.5 * bars()["operation_us"]["value"]))
    kinds = {"dot": 2.0, "a kind of its own": 1.0, "gather": 1.0}
    assert xla_error("v6e", kinds) == pytest.approx((2 * known + new + 1.0) / 4)
    bounds = [xla_error("v6e", {kind: 1.0}) for kind in (LISTED, SPARSE, "gather")]
    assert bounds == pytest.approx([0.25, 0.3, 1.0])
    assert xla_error("v9") is None


@pytest.mark.parametrize(
    ("name", "waits_us", "steps", "more"),
    [
        ("splash_mha_fwd_no_residuals", 0.0, 4, None),  # timed: as those were off
        ("pallas_tpu_ragged_dot_gmm", 0.0, 4, None),
        ("lce_fwd_bt_128_ht_512_vt_1024", 0.0, 4, None),
        ("my_splash_mha_fwd_no_residuals", 0.0, 4, 0.0),
        ("splash_mha_fwd_mine", 0.0, 4, 0.0),
        ("splash_mha_dkv_no_residuals", 0.0, 4, 0.0),
        ("", bars()["shown"]["v7x"]["value"]["DMA latency waits"] * 100, 4, 0.0),
        ("", 80.0, 4, 0.2 * (0.8 - bars()["shown"]["v7x"]["value"]["DMA latency waits"])),
    ],
)
def test_a_kernel_never_timed_is_less_sure_the_more_it_does_what_no_time_shows(
    name, waits_us, steps, more
):
    parts_us = {"vector and matrix issue": 100 - waits_us, "DMA latency waits": waits_us}
    known = kernel_error("v7x")
    bar = error_bar("v7x", parts_us, steps, timed_as=pattern_of(name))
    timed = bars()["kernels"]["value"].get(pattern_of(name))
    assert bar == pytest.approx(timed["v7x"] if more is None else known + more)


def test_steps_that_are_shorter_than_any_that_were_timed_are_less_sure():
    shortest = bars()["shortest step"]["v7x"]["value"]
    known, half = (
        error_bar("v7x", {"vector and matrix issue": us}, steps=1)
        for us in (shortest, shortest / 2)
    )
    assert half - known == pytest.approx(bars()["other"]["step"]["value"] / shortest)


def test_a_libtpu_without_constants_of_its_own_has_a_wider_bar():
    fitted = simulation(10)
    bars = [
        estimate(trace(), compiled(run_it), V5E).estimate.error
        for run_it in (fitted, fitted | {"is_fitted": False})
    ]
    assert bars[1] > bars[0]


def test_what_depends_on_data_leaves_no_error_bar():
    e = around(operation("gather.7", undecided="m.py:7", simulated_us=25.0), KERNEL)
    assert e.error is None and "gather.7" in e.notes[-1]
    e = around(operation("all-reduce", transfer=SUM, hbm_bytes=1 << 30), KERNEL)
    assert e.time_us == 100 + start_us() and "all-reduce" in e.notes[-1]
