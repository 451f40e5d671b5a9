"""One call with many inexact questions must not hold up the calls of others."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from autotune.answering import nearest_shape
from autotune.answering.matching import Index
from autotune_service import errors
from autotune_service.api import lookup, questions
from tests.samples.matching import SPEC, question, record
from tests.servers.service import asked, until

RECORDS, QUESTIONS = 480, 1_000


class Measured:
    """What reads JSON, with the lengths of what it is given."""

    def __init__(self, reader, lengths):
        self._reader, self._lengths = reader, lengths

    def __call__(self, text):
        self._lengths.append(len(text))
        return self._reader(text)

    def validate_json(self, text):
        self._lengths.append(len(text))
        return self._reader.validate_json(text)


def nearby(number):
    """No two alike, none published, and each has a nearest."""
    return question(m=256 * (3 * number + 1), k=128)


def published():
    keys = [question(m=256 * (3 * number + 2), k=128) for number in range(RECORDS)]
    return Index([record(key, used=1) for key in keys], [SPEC])


def test_the_nearest_looks_at_few_of_many_records(monkeypatch):
    index, looked_at = published(), 0
    real = nearest_shape.safe_config

    def counted(*given):
        nonlocal looked_at
        looked_at += 1
        return real(*given)

    monkeypatch.setattr(nearest_shape, "safe_config", counted)
    for number in range(QUESTIONS):
        assert index.match(nearby(number)).kind == "nearest"
    assert looked_at < 10 * QUESTIONS < RECORDS * QUESTIONS


def test_where_none_is_safe_the_search_ends(monkeypatch):
    whole = [record(question(m=256 + number), bm=10**6) for number in range(2_000)]
    looked_at = []
    monkeypatch.setattr(nearest_shape, "safe_config", lambda *given: looked_at.append(given))
    assert Index(whole, [SPEC]).match(question(m=7)).kind == "default"
    assert len(looked_at) <= 500


FIELD = "u0 is unknown"
LARGE = {
    "unknown fields": ({f"u{n}": 1 for n in range(60_000)}, 422, FIELD),
    "fields of a question": ({"questions": [{f"u{n}": 1 for n in range(60_000)}]}, 200, FIELD),
    "names": (
        {"questions": [asked(question(), problem={"dims": {f"{n}": 1 for n in range(60_000)}})]},
        200,
        "length <= 64",
    ),
    "numbers": ({"questions": [1] * 300_000}, 413, "at most 1000"),
    "lists": ({"questions": [[]] * 200_000}, 413, "at most 1000"),
    "a name": ({"questions": [], "`" * 500_000: 1}, 422, "```"),
    "a chip": ({"questions": [], "chip": "x" * 500_000}, 422, "chip: Expected `str` of length"),
    "no list": ({"questions": {f"u{n}": 1 for n in range(60_000)}}, 422, "must be a list"),
    "all that is accepted": ({"questions": [], "accept": ["x"] * 90_000}, 422, "value 'x'"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_call_that_is_wrong_is_read_to_its_first_mistake(service, monkeypatch, name):
    """By what ends there: Pydantic, and what makes objects of everything, take a hundred times as
    long, and nobody is answered meanwhile."""
    lengths = [0]
    for module, reader in ((errors, "from_json"), (lookup, "_request"), (questions, "_question")):
        monkeypatch.setattr(module, reader, Measured(getattr(module, reader), lengths))
    body, status, said = LARGE[name]
    code, answer = service.post("/v1/lookup", body)
    error = answer["answers"][0]["error"] if code == 200 else answer["error"]
    assert (code, max(lengths) <= questions._MOST_EXPLAINED_BYTES) == (status, True)
    assert said in error["message"] and len(json.dumps(error)) < 1_100


def test_who_asks_on_many_connections_goes_before_nobody(service, monkeypatch):
    """The question of another address is the next but one to be looked for."""
    read = []
    looked_for = []
    other_is_there = threading.Event()
    know, look_for, look_for_some = lookup._known, lookup._look_for, lookup._look_for_some

    def of(questions):
        keys = [nearby(len(read) * QUESTIONS + number) for number in range(questions)]
        return json.dumps({"questions": list(map(asked, keys))}).encode()

    async def known(*given):
        read.append(given)
        return await know(*given)

    async def some(state, call, *given):
        if len(call["questions"]) == 1:
            other_is_there.set()
        await look_for_some(state, call, *given)

    def looked(call, *given):
        looked_for.append(len(call["questions"]))
        assert other_is_there.wait(60)
        return look_for(call, *given)

    monkeypatch.setattr(lookup, "_known", known)
    monkeypatch.setattr(lookup, "_look_for_some", some)
    monkeypatch.setattr(lookup, "_look_for", looked)
    with ThreadPoolExecutor() as pool:
        for number in range(4):
            pool.submit(service.raw, "POST", "/v1/lookup", of(20 + number))
            until(lambda: len(read) == number + 1)  # noqa: B023 (at once)
        other = HTTPConnection("127.0.0.1", service.port, 60, ("127.0.0.2", 0))
        other.request("POST", "/v1/lookup", of(1))
        assert other.getresponse().status == 200
        other.close()
    assert looked_for.index(1) == 1
