"""What a tuning machine sends is what a service takes, field by field."""

from dataclasses import fields, replace
from inspect import isclass
from typing import Any

import pytest

from autotune.answering.push import kernel_to_data, possible_check, result_to_data
from autotune.domain import outcome as outcomes
from autotune.domain.check import Check
from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.errors import InvalidInputError
from autotune.domain.explanation import Explanation
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.measurement import Measurement, Timed
from autotune.domain.operation import OperationTime
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Option, Problem
from autotune.domain.record import Evidence, Record
from autotune.domain.record_check import CheckVerdict, RecordCheck
from autotune.domain.result import KeyResult
from autotune.domain.step_cost import StepCost
from autotune.domain.toolchain import Toolchain
from autotune.domain.trial import Trial
from autotune.domain.verdict import Proof
from autotune_service.api import uploads
from autotune_service.api.fields import Part
from tests.samples.matching import SPEC, question, record
from tests.service.test_checks_routes import check

OF_OTHER_NAMES = {
    uploads.KernelIn: KernelSpec,
    uploads.Versions: Toolchain,
    uploads.ResultIn: KeyResult,
}
OF_THE_DOMAIN = (
    *(Check, Config, Evidence, Explanation, KernelSpec, Key, Measurement, OperationTime, Option),
    *(Problem, Proof, Record, RecordCheck, Timed, Trial),
    *filter(isclass, vars(outcomes).values()),
)
STAYS_HERE = {
    Check: {"before_vmem_bytes", "vmem_bytes", "against", "fingerprint", "is_default", "asked"},
    Estimated: {"step"},
    KernelSpec: {"form"},
    Record: {"rule"},
}
NO_VALUES = {Part, uploads.PushRequest, uploads.ProgressIn, uploads.RefusalsIn}


@pytest.mark.parametrize(
    "model",
    sorted(
        {one for one in vars(uploads).values() if isclass(one) and issubclass(one, Part)}
        - NO_VALUES,
        key=lambda one: one.__name__,
    ),
)
def test_each_field_is_taken_or_stays_here(model: type[Part]) -> None:
    known = {f"{one.__name__}In": one for one in OF_THE_DOMAIN}
    cls: Any = OF_OTHER_NAMES.get(model) or known[model.__name__]
    own = {field.name for field in fields(cls)}
    if cls is KernelSpec:
        own = own - {"problems"} | {"dims", "dtypes", "options"}
    assert set(model.model_fields) - {"kind"} == own - STAYS_HERE.get(cls, set())


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
    told = check(CheckVerdict.FASTER, winner=timed, default=timed)
    told = replace(told, before_vmem_bytes=1, vmem_bytes=2, asked="autotune search mm")
    sent = possible_check(told, SPEC, told.checked_at)
    pushed = uploads.PushRequest.model_validate(
        {
            "kernels": [kernel_to_data(replace(SPEC, form="x=bfloat16[m]"))],
            "results": [result_to_data(KeyResult(record=record(), trials=(tried,)))],
            "checks": [to_data(sent)],
        }
    )
    assert pushed.kernels[0].parsed() == SPEC
    assert pushed.results[0].parsed().trials == (replace(tried, outcome=replace(timed, step=None)),)
    assert pushed.checks[0].parsed() == sent


def test_a_check_of_two_sources_stays_here() -> None:
    told = check(against="HEAD~1", fingerprint="beef", key=question())
    with pytest.raises(InvalidInputError, match="two sources"):
        possible_check(told, SPEC, told.checked_at)
