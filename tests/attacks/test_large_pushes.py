"""Pushes of megabytes, by a writer who may have meant no harm."""

import json
import threading
import tracemalloc

import pytest
from pydantic import TypeAdapter

from autotune_service.api import bodies, writing
from autotune_service.api.questions import Unread
from autotune_service.api.schema import PushRequest
from autotune_service.errors import HttpError
from tests.samples.matching import question, record
from tests.servers.service import asked
from tests.service.test_writing_routes import body

TRIALS = [{"number": -1}] * 100_000
UNKNOWN = {f"u{n}": 0 for n in range(30_000)}


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"trials": TRIALS}, "results[0].trials[0].number"), (UNKNOWN, None)],
    ids=["trials", "unknown"],
)
def test_of_many_mistakes_few_are_kept(changes, field):
    (result,) = body(record())["results"]
    pushed = json.dumps(body(results=[result | changes])).encode()
    model = TypeAdapter(PushRequest)
    tracemalloc.start()
    with pytest.raises(HttpError) as refused:
        bodies._read(model, pushed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (refused.value.status, refused.value.field) == (422, field)
    assert peak < 50 * len(pushed)


def test_pushes_are_read_one_after_another(service, writer, monkeypatch):
    """And in none of the threads that newer snapshots come by."""
    there = []
    real = (bodies._read, writing._possible)

    def told(work):
        return lambda *given: there.append(threading.current_thread().name) or work(*given)

    monkeypatch.setattr(bodies, "_read", told(real[0]))
    monkeypatch.setattr(writing, "_possible", told(real[1]))
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {writer}"}
    large = json.dumps(body(record(question(512)))).encode().ljust(bodies._LARGE_BYTES + 1)
    assert service.raw("POST", "/v1/results", large, **headers)[0] == 200
    assert there == ["pushes_0"] * 2


def test_bad_questions_are_not_read_where_calls_are_answered(service, monkeypatch):
    there = []
    read = Unread.read

    def told(given):
        there.append(threading.current_thread().name)
        return read(given)

    monkeypatch.setattr(Unread, "read", told)
    problem = {"dims": {"m": 1}, "options": {f"o{n}": [] for n in range(75)}}
    wrong = asked(question(1024), problem=problem)
    _, answer = service.post("/v1/lookup", {"questions": [wrong] * 20})
    fields = [each["error"]["field"] for each in answer["answers"]]
    assert fields == [f"questions[{n}].problem.options.o0" for n in range(20)]
    assert len(there) == 20 and all(name.startswith("matching") for name in there)


@pytest.mark.parametrize("part", ["dims", "options"])
def test_a_question_has_few_names(service, part):
    problem = {"dims": {"m": 1}, part: {f"n{n}": 1 for n in range(65)}}
    _, answer = service.post("/v1/lookup", {"questions": [asked(question(), problem=problem)]})
    error = answer["answers"][0]["error"]
    assert error["field"] == f"questions[0].problem.{part}" and "at most 64" in error["message"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/claims", "/v1/jobs/1/heartbeat"])
@pytest.mark.parametrize("mistakes", [2_000, 30_000])  # read in the event loop, and in a thread
def test_many_mistakes_are_counted_by_all_routes(service, writer, path, mistakes):
    wrong = {f"u{n}": 0 for n in range(mistakes)}
    status, answer = service.post(path, wrong, writer)
    assert (status, answer["error"]["code"]) == (422, "invalid_field")
    count, words = answer["error"]["message"].split(" ", 1)
    assert int(count) >= mistakes and words == "parts of it are wrong or unknown"


def test_only_results_may_be_so_large(service, writer):
    """What else is written is read in the event loop."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {writer}"}
    sent = b'{"miss": 1}'.ljust((1 << 20) + 1)
    for path in ("/v1/jobs", "/v1/claims"):
        assert service.raw("POST", path, sent, **headers)[0] == 413
