"""Functions with several ``pallas_call``s, and kernels under ``vmap``, by the real compiler."""

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import DescribeChip, ListChoices
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.domain.problem import make_config
from autotune.estimating.space import explore
from tests.samples import several_calls
from tests.samples.questions import case_of

KERNEL = f"{several_calls.__file__}:KERNEL"


def outcome(pool, branch, **axes):
    case = case_of(pool, KERNEL, "2048", None, [f"branch={branch}"])
    found = case.estimated(make_config({"block": 64, "last": 256, **axes}), Chip.V6E)
    assert isinstance(found, Estimated | NotEstimated), found
    return found


def test_the_time_is_the_sum_of_the_calls(pool):
    """Of those that run, as often as they run; an axis may reach some of them."""
    found = outcome(pool, "known")
    assert isinstance(found, Estimated), found
    calls = {call.name: call for call in found.estimate.calls}
    assert [(c.name, c.runs) for c in found.estimate.calls] == [
        ("first", 1),
        ("right", 1),
        ("looped", several_calls.TURNS),
        ("last", 1),
    ]
    assert found.estimate.kernel_us == pytest.approx(sum(c.time_us for c in calls.values()))
    assert from_data(Estimated, to_data(found)) == found
    other = outcome(pool, "known", last=64)
    assert isinstance(other, Estimated)
    changed = {call.name: call for call in other.estimate.calls}
    assert changed["last"].time_us != calls["last"].time_us
    assert changed["last"].vmem_used_bytes < calls["last"].vmem_used_bytes


def test_what_depends_on_data_is_not_estimated(pool):
    found = outcome(pool, "unknown")
    assert isinstance(found, NotEstimated)
    assert found.reason.startswith("call 2 of 5, left: how often it runs depends on data")


def test_all_of_it_is_verified(pool):
    verdict = case_of(pool, KERNEL, "2048").verify(make_config({"block": 64, "last": 256}))
    assert verdict.ok, verdict


@pytest.mark.parametrize("chip", [Chip.V6E, Chip.V5P])
def test_every_candidate_compiles(pool, chip):
    case = case_of(pool, f"{several_calls.__file__}:VMAPPED", "6x2048")
    info = pool.ask(DescribeChip(chip=chip))
    space = explore(pool, case.ref, case.problem, case.ask(ListChoices), info)
    assert space.passed_on.semantics
    for candidate in space.candidates:
        config = candidate.config
        answer = case.compile(config, chip)
        assert isinstance(answer, tuple), answer
        assert answer[1].simulation is not None, answer[1].refusal
        assert answer[0].dimension_semantics == candidate.trace.dimension_semantics
        verdict = case.verify(config, chip)
        assert verdict.ok, verdict
