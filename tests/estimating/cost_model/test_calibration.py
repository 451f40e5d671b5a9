"""Estimates against measurements that were made up from known factors."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.domain.evidence import Measurement, Timed
from autotune.domain.key import Chip, Key
from autotune.domain.known_config import KnownConfig
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import make_config
from autotune.domain.record import Record, Trial
from autotune.estimating.cost_model.calibration import (
    MeasuredEstimate,
    errors,
    points,
    points_elsewhere,
    proposals,
)
from tests.samples import estimates, records


def estimate(issue: float, hbm: float, latency: float, scalar: float) -> Estimate:
    given = estimates.parts(issue=issue, hbm=hbm, latency=latency, scalar=scalar)
    return estimates.estimate(given, limited_by="HBM" if hbm > issue else "compute")


def trial(number: int, **axes: int) -> Trial:
    outcome = Estimated(estimate=estimate(1, 1, 1, 1), program="p")
    return replace(records.trial(number, outcome), config=make_config(axes))


def made_up(count: int) -> list[MeasuredEstimate]:
    """HBM is slower than assumed by 1.2, latency shorter by 0.7, step overhead as assumed."""
    found = []
    for n in range(count):
        one = estimate(10 + n % 3, 5 + n % 5, 2 + n % 4, 1 + n % 2)
        true = 10 + n % 3 + 1.2 * (5 + n % 5) + 0.7 * (2 + n % 4) + 1 + n % 2
        found.append(MeasuredEstimate(kernel="k", chip="v5e", estimate=one, measured_us=true))
    return found


def test_the_factors_that_made_the_times_are_found() -> None:
    (found,) = proposals(made_up(60))
    assert found.factors["hbm"] == pytest.approx(1.2, abs=0.01)
    assert found.factors["dma_latency"] == pytest.approx(0.7, abs=0.01)
    assert found.factors["step_overhead"] == pytest.approx(1.0, abs=0.02)
    assert found.after < 0.001 < found.before


def test_few_points_propose_nothing() -> None:
    assert proposals(made_up(7)) == []


def test_a_factor_stays_within_reason() -> None:
    wild = [replace(p, measured_us=p.measured_us * 50) for p in made_up(20)]
    assert max(proposals(wild)[0].factors.values()) <= 4.0


def test_errors_are_told_by_kernel_and_by_what_limits_it() -> None:
    found = {e.group: e for e in errors(made_up(20))}
    assert found["k on v5e"].points == 20
    assert "limited by vector and matrix issue" in found
    two = [
        MeasuredEstimate(kernel="a", chip="v6e", estimate=estimate(8, 0, 0, 0), measured_us=10.0)
    ] * 3
    assert errors(two)[0].bias == pytest.approx(-0.2)


def record(measurement: Measurement | None) -> Record:
    return replace(records.record(records.key("k")), measurement=measurement)


@pytest.mark.parametrize(
    ("changes", "count"), [({}, 1), ({"method": "wall clock"}, 0), ({"void": "it was lost"}, 0)]
)
def test_only_device_time_that_decided_counts(changes: dict[str, Any], count: int) -> None:
    config = make_config({"b": 1})
    run = Measurement(
        method="device time",
        device="d",
        stopped_by="settled",
        timed=(
            Timed(config=config, samples_us=(5.0,)),
            Timed(config=None, samples_us=(3.0,)),
            Timed(config=make_config({"b": 2}), samples_us=(3.0,)),
        ),
    )
    found = points([(record(replace(run, **changes)), [trial(0, b=1)]), (record(None), [trial])])
    assert [p.measured_us for p in found] == [5.0] * count


def test_of_other_problems_no_trial_is_read_and_a_table_may_leave_out_axes() -> None:
    key = record(None).key
    known = KnownConfig(
        kernel="k",
        problem=(("m", 4096),),
        chips=(Chip.V5E,),
        axes=(("b", 1),),
        source="t",
        time_us=5.0,
    )
    trials = [trial(number, a=9, b=size) for number, size in enumerate((1, 2))]
    read: list[Key] = []

    def kept(one: Key) -> list[Trial]:
        read.append(one)
        return trials

    keys = [replace(key, chip=Chip.V6E), key, replace(key, kernel="other")]
    assert [p.measured_us for p in points_elsewhere([known], keys, kept)] == [5.0]
    assert read == [key]
