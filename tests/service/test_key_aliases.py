"""A key has one spelling: what is pushed or asked for under another one is the same key."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.answering.push import result_to_data
from autotune.domain.codec import to_data
from autotune.domain.record import Record
from autotune.domain.store import KeyResult
from autotune_db import SqlStore
from tests.samples.matching import SPEC, question, record
from tests.servers.service import Running

SHAPE = 640
KEY = question(SHAPE, causal=True)
WORSE = record(KEY, 64)
WORSE = replace(
    WORSE,
    created_at=WORSE.created_at.replace(year=2025),
    estimate=replace(WORSE.estimate, time_us=9.0),
)
ALIASES = [1, 1.0, "true", "True"]


def _push(service: Running, writer: str, given: Record, **problem: Any) -> tuple[int, Any]:
    result = result_to_data(KeyResult(record=given))
    result["record"]["key"]["problem"] |= problem
    return service.post("/v1/results", {"kernels": [to_data(SPEC)], "results": [result]}, writer)


@pytest.mark.parametrize("value", ALIASES)
def test_an_alias_is_no_way_around_supersession(
    service: Running, store: SqlStore, writer: str, value: Any
) -> None:
    assert _push(service, writer, record(KEY))[0] == 200
    status, result = _push(service, writer, WORSE, options={"causal": value})
    assert (status, result["lost"]) == (200, 1)
    _, (answer,) = service.lookup(KEY)
    assert (answer["match"], answer["config"]["axes"]["bm"]) == ("exact", 256)


def test_what_is_known_of_a_kernel_is_not_for_a_push_to_say(service: Running, writer: str) -> None:
    """A description under which an alias is a value of its own changes nothing."""
    assert _push(service, writer, record(KEY))[0] == 200
    result = result_to_data(KeyResult(record=WORSE))
    result["record"]["key"]["problem"]["options"] = {"causal": 1}
    lie = {**to_data(SPEC), "options": [{"name": "causal", "choices": [0, 1], "default": 0}]}
    status, content = service.post("/v1/results", {"kernels": [lie], "results": [result]}, writer)
    assert status == 422 or content["lost"] == 1
    _, (answer,) = service.lookup(KEY)
    assert (answer["match"], answer["config"]["axes"]["bm"]) == ("exact", 256)
