"""What a tuning machine sends is what a service takes."""

from dataclasses import replace

import pytest

from autotune.answering.push import possible_check, result_to_data
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.explanation import StepCost
from autotune.domain.outcome import Estimated
from autotune.domain.record import CheckVerdict, Trial
from autotune.domain.store import KeyResult
from autotune_service.api.schema import PushRequest
from tests.samples.matching import SPEC, question, record
from tests.service.test_checks_routes import check


def test_what_stays_here_is_not_sent() -> None:
    step = StepCost(core_us=1.0, facts=(("core_us", 0.5),))
    timed = Estimated(estimate=record().estimate, program="p", step=step)
    tried = Trial(
        number=0,
        config=record().config,
        outcome=timed,
        seconds=1.0,
        created_at=record().created_at,
    )
    plain = replace(timed, step=None)
    told = check(CheckVerdict.FASTER, winner=timed, default=timed)
    told = replace(told, before_vmem_bytes=1, vmem_bytes=2, asked="autotune search mm")
    sent = check(CheckVerdict.FASTER, winner=plain, default=plain)
    pushed = PushRequest.model_validate(
        {
            "kernels": [to_data(replace(SPEC, form="x=bfloat16[m]"), sent=True)],
            "results": [result_to_data(KeyResult(record=record(), trials=(tried,)))],
            "checks": [to_data(told, sent=True)],
        }
    )
    assert pushed.kernels == [SPEC] and pushed.checks == [sent]
    assert pushed.results[0].trials == (replace(tried, outcome=plain),)


def test_a_check_of_two_sources_stays_here() -> None:
    told = check(against="HEAD~1", fingerprint="beef", key=question())
    with pytest.raises(InvalidInputError, match="two sources"):
        possible_check(told, SPEC, told.checked_at)
