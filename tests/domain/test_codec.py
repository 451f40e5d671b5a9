"""Data that was written by earlier versions reads, and what is written stays byte for byte."""

import json
from math import inf, nan
from pathlib import Path
from typing import get_args

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import Compiled
from autotune.domain.evidence import Measurement, Verdict
from autotune.domain.job import Job, Progress, Request
from autotune.domain.key import ChipInfo, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimate, Estimated, Outcome, TimedOut, WrongResult
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Evidence, Record, Trial
from autotune.domain.store import KeyResult, Pushed
from autotune.domain.trace import Trace
from autotune.estimating.simulator.drawing.picture import Picture
from tests.samples.records import OUTCOMES, estimate

RECORDED = Path(__file__).parents[1] / "recorded" / "values"
FORMS = {
    form.__name__: form
    for form in (
        *(ChipInfo, Compiled, Config, Estimate, Evidence, Job, Key, KernelSpec, KeyResult),
        *(Measurement, Picture, Problem, Progress, Pushed, Record, Request, Toolchain),
        *(Trace, Trial, Verdict),
    )
}


def _recorded(name):
    """The name of a class and the text of a value; ``today``: of 2026-11-22, before the codec."""
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [pytest.param(*line.split(" ", 1), id=line[:12]) for line in lines]


@pytest.mark.parametrize(("name", "text"), _recorded("today"))
def test_recorded_values_are_written_again_byte_for_byte(name, text):
    value = from_data(FORMS[name], json.loads(text))
    assert isinstance(value, FORMS[name])
    assert json.dumps(to_data(value), separators=(",", ":")) == text
    assert from_data(FORMS[name], to_data(value)) == value


def test_the_recorded_values_hold_every_outcome_and_every_form():
    recorded = [param.values for param in _recorded("today")]
    assert {name for name, _ in recorded} == set(FORMS)
    trials = [from_data(Trial, json.loads(str(text))) for name, text in recorded if name == "Trial"]
    assert {type(trial.outcome) for trial in trials} == set(get_args(Outcome))


@pytest.mark.parametrize(("name", "text"), _recorded("older"))
def test_values_of_older_versions_get_the_defaults_of_what_they_lack(name, text):
    assert list(_differences(json.loads(text), to_data(from_data(FORMS[name], json.loads(text)))))


def _differences(old, new):
    """Names that only the new data has; everything else must be the same."""
    if not isinstance(old, dict):
        assert old == new
        return
    assert old.keys() <= new.keys()
    yield from new.keys() - old.keys()
    for name, value in old.items():
        yield from _differences(value, new[name])


def test_fields_of_newer_versions_are_ignored():
    data = to_data(OUTCOMES[0])
    data["estimate"]["surprise"] = data["surprise"] = 1
    assert from_data(Outcome, data) == OUTCOMES[0]


@pytest.mark.parametrize("number", [inf, -inf, nan])
def test_numbers_that_are_not_finite_are_text(number):
    for outcome in (
        WrongResult(reason="NaN", error=number),
        TimedOut(reason="never", limit_s=number),
        Estimated(estimate=estimate(number), program=""),
    ):
        text = json.dumps(to_data(outcome), allow_nan=False)
        assert str(from_data(Outcome, json.loads(text))) == str(outcome)


@pytest.mark.parametrize(
    ("form", "data", "says"),
    [
        (Outcome, {"kind": "on holiday"}, "'on holiday'"),
        (Outcome, {"kind": "timed out"}, "'reason'"),
        (Outcome, [], "list"),
        (Config, {"axes": [], "grid_order": []}, "items"),
        (Estimate, None, "NoneType"),
        (TimedOut, {"reason": "", "limit_s": "soon"}, "soon"),
    ],
)
def test_data_of_another_form_is_one_error(form, data, says):
    with pytest.raises(ValueError, match=says):
        from_data(form, data)
