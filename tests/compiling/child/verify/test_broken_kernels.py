"""The gate before publishing: each broken kernel is refused with a reason, its twin passes."""

import pytest

from tests.samples.broken.cases import CASES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_broken_config_is_refused_with_its_reason(pool, case):
    verdict = case.verify(pool, case.wrong)
    assert verdict.ok is False, verdict
    assert verdict.check in case.checks, verdict
    assert verdict.reason


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_twin_passes(pool, case):
    verdict = case.verify(pool, case.right)
    assert verdict.ok is True, verdict
