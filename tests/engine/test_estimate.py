"""From a simulated schedule to an estimate with its parts and a name for what limits it."""

from typing import Any

import pytest
from tracesamples import V5E, operand, trace

from autotune.compiled import Compiled
from autotune.estimate import estimate
from autotune.outcome import Estimated, NotEstimated


def compiled(simulation: dict[str, Any] | None, refusal: str = "") -> Compiled:
    return Compiled(
        seconds=1.0, vmem_used_bytes=1 << 20, program="p", listing_bytes=1, simulation=simulation,
        refusal=refusal, simulate_s=0.0,
    )  # fmt: skip


def simulation(
    total_us: float, busy_us: float, fill_us: float = 0.0, **more: Any
) -> dict[str, Any]:
    cycles = 1000  # a clock of 1 GHz
    return {
        "clock_hz": 1e9,
        "us_shared": total_us,
        "bundle_cycles": busy_us * cycles,
        "stall_cycles": 0,
        "fill_cycles": fill_us * cycles,
        "vmem_operands": (),
        "notes": ("n",),
        **more,
    }


def run(total_us: float, busy_us: float, hbm_us: float = 1.0, fill_us: float = 0.0) -> Any:
    x = operand((8, 128), (8, 128), hbm_bytes=round(hbm_us * V5E.hbm_bytes_per_s / 1e6))
    outcome = estimate(trace(x), compiled(simulation(total_us, busy_us, fill_us)), V5E)
    assert isinstance(outcome, Estimated)
    return outcome.estimate


@pytest.mark.parametrize(
    ("total", "busy", "hbm", "fill", "limit"),
    [
        (100, 95, 10, 1, "compute"),
        (100, 30, 90, 1, "HBM"),
        (100, 30, 10, 1, "step overhead"),
        (100, 30, 10, 50, "pipeline fill"),
    ],
)
def test_what_limits(total: float, busy: float, hbm: float, fill: float, limit: str) -> None:
    assert run(total, busy, hbm, fill).limited_by == limit


def test_parts_are_in_microseconds_and_overhead_is_what_is_left() -> None:
    e = run(100, 30, 20, 5)
    assert (e.time_us, e.compute_us, e.memory_us, e.fill_us) == pytest.approx((100, 30, 20, 5))
    assert e.overhead_us == pytest.approx(65)
    assert e.vmem_allowed_bytes == V5E.scoped_vmem_bytes


def test_a_refusal_gives_no_number() -> None:
    outcome = estimate(trace(), compiled(None, "unknown opcode"), V5E)
    assert outcome == NotEstimated(reason="unknown opcode", vmem_used_bytes=1 << 20, program="p")


def test_operands_that_xla_put_in_vmem_are_copied_on_the_clock() -> None:
    """[1024, 1024] bf16 is 2 MiB: 2.56 us at 820 GB/s, instead of what its fetches would move."""
    placed = operand((1024, 1024), (128, 1024), hbm_bytes=1 << 40)
    other = operand((8, 128), (8, 128), hbm_bytes=820_000)
    run_it = simulation(10, 9, vmem_operands=(1,))
    outcome = estimate(trace(placed, other, scalar_operands=1), compiled(run_it), V5E)
    assert isinstance(outcome, Estimated)
    e = outcome.estimate
    assert e.time_us == pytest.approx(10 + 2.557, abs=0.01)
    assert e.hbm_bytes == (2 << 20) + 820_000
    assert any("2.00 MiB of operands in VMEM" in note for note in e.notes)
