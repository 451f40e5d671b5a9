"""``POST /v1/lookup`` and ``GET /v1/configs``, over HTTP."""

import http.client
import json
from dataclasses import replace
from itertools import chain
from sys import getsizeof

import pytest

from autotune.answering.client import ServiceAnswers
from autotune.answering.http import Remote
from autotune.answering.rule_answers import ruled_config
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.record import Record
from autotune_service import snapshot_cache
from autotune_service.api import questions
from autotune_service.api.questions import MAX_QUESTIONS
from autotune_service.middleware.body import MAX_BYTES
from autotune_service.snapshot_cache import Reply, SnapshotCache
from tests.samples.matching import older, question, record, ruled
from tests.samples.records import trial
from tests.servers.service import asked, publish, until

QUERY = "chip=v5e&jax=0.10.2&jaxlib=0.10.2&libtpu=0.0.42"


def test_an_exact_answer_is_the_record(service):
    snapshot, (answer,) = service.lookup(question(1024))
    assert (snapshot, answer["match"]) == (2, "exact")
    assert answer["config"] == to_data(record().config)
    assert from_data(Record, answer["record"]) == record(question(1024))


def test_what_cannot_be_taken_is_passed_over_and_counted(service, store):
    other = replace(record(question(512)), config=record(bm=128).config)
    publish(service, store, older(other, "0.9.0"), older(other, "0.8.0"))
    client = ServiceAnswers(service.url)
    first = client.match(question(512))
    assert (first.kind, first.config) == ("toolchain", other.config)
    assert client.match(question(512), without=[other.config]).config == record().config
    near = [client.match(question(2048), without=w).kind for w in ([], [record().config])]
    assert near == ["nearest", "default"]
    assert client.match(question(1024), without=[record().config]).kind == "default"
    assert client.match(question(1024)).kind == "exact"
    until(lambda: {question(512), question(2048)} <= {miss.key for miss in store.misses()})
    many = [to_data(first.config)] * 17
    for wrong in ([{}], [3], 3, [{"axes": {"bm": [1]}}], [{"axes": 3}], many):
        body = {"questions": [asked(question())], "without": wrong}
        assert service.post("/v1/lookup", body)[0] == 422, wrong


def test_times_of_a_config_that_was_tried(service, store, tmp_path):
    key = question(causal=True)
    took = Estimated(estimate=replace(record().estimate, time_us=9.0), program="p")
    store.save_trials(key, [replace(trial(0, took), config=record().config)])
    cache = tmp_path / "a.bundle"
    axes, client = dict(record().config.axes), ServiceAnswers(service.url, cache=cache)
    assert client.times_us(key, axes) == {"schedule-1": 9.0}
    assert client.times_us(key, {**axes, "bm": 8}) == client.times_us(question(), axes) == {}
    assert client.times_us(replace(key, kernel="unknown"), axes) == {}
    later = ServiceAnswers(service.url, cache=cache)
    later._service = Remote("http://127.0.0.1:9", 0.1)  # it is down when the next process starts
    assert later.times_us(key, axes) == {"schedule-1": 9.0} and not later.times_us(question(), axes)
    cache.with_name("a.bundle.times").write_text("[3")
    assert later.times_us(key, axes) == {} and client.times_us(key, axes)
    assert service.get(f"/v1/configs/mm/times?{QUERY}&shape=1024x128&axis=")[0] == 422
    assert service.get(f"/v1/configs/mm/times?{QUERY}&shape=1024x128")[0] == 422
    assert service.get(f"/v1/configs/mm?{QUERY}&shape=1024x128&axis=bm=8")[0] == 422


def test_a_rule_answers_before_the_nearest(service, store):
    publish(
        service,
        store,
        replace(record(question(4096)), rule=ruled()),
        older(record(question(512)), "0.9.0"),
    )
    keys = (question(4096), question(512), question(2048), question(8192))
    _, answers = service.lookup(*keys)
    assert [answer["match"] for answer in answers] == ["exact", "toolchain", "rule", "nearest"]
    assert [answer.get("expected_regret") for answer in answers] == [None, None, 0.01, None]
    assert answers[2]["config"] == to_data(ruled_config(ruled(), question(2048).problem))
    assert all("rule" not in answer["record"] for answer in answers)  # it is large
    by_client = ServiceAnswers(service.url).lookup(keys)
    assert [item.kind for item in by_client] == ["exact", "toolchain", "rule", "nearest"]
    assert by_client[2].expected_regret == 0.01
    assert to_data(by_client[2].config) == answers[2]["config"]


def test_the_same_body_again(service, store):
    """It is answered from memory, but never from another snapshot."""
    body = {"questions": [asked(question(1024))]}
    first = service.post("/v1/lookup", body)
    assert service.post("/v1/lookup", body) == first
    publish(service, store, replace(record(question(1024)), trials=99))
    for _ in range(2):
        status, answer = service.post("/v1/lookup", body)
        assert (status, answer["snapshot"]) == (200, 3)
        assert answer["answers"][0]["record"]["trials"] == 99
        assert service.post("/v1/lookup", body | {"snapshot": 2}) == first


def test_what_is_published_but_not_accepted_is_no_miss(service, store):
    _, answers = service.lookup(question(1024), question(9, 9), accept=["toolchain"])
    assert [answer["match"] for answer in answers] == ["default"] * 2
    assert answers[0]["why"] == "exact is not accepted"
    until(lambda: store.misses())
    assert [miss.key for miss in store.misses()] == [question(9, 9)]


def test_a_call_without_questions_is_not_kept(service, monkeypatch):
    """White space makes any number of them."""
    stored = []
    monkeypatch.setattr(SnapshotCache, "keep_reply", lambda _, body, __: stored.append(body))
    assert service.post("/v1/lookup", {"questions": []})[1]["answers"] == []
    assert not stored
    service.lookup(question(1024))
    assert len(stored) == 1


def test_replies_in_memory_are_bounded(store, monkeypatch):
    """By what a process takes for them, that of Python's objects too."""
    monkeypatch.setattr(snapshot_cache, "_MOST_REPLY_BYTES", 1_000)
    cache = SnapshotCache(store)
    for number in range(50):
        body = b"body %02d" % number
        cache.keep_reply(body, Reply(b"reply", "", 1))
        assert body in cache.replies
        assert sum(map(getsizeof, chain(cache.replies, *cache.replies.values()))) <= 1_000
    cache.keep_reply(b"of another snapshot", Reply(b"reply", "of another", 1))
    assert b"of another snapshot" not in cache.replies


def test_chip_and_toolchain_for_the_whole_call(service):
    lone = asked(question(1024), chip=None, toolchain=None)
    toolchain = asked(question())["toolchain"]
    call = {"questions": [lone], "toolchain": toolchain}
    for chip, match in (("TPU v5 lite", "exact"), ("v6e", "default")):
        assert service.post("/v1/lookup", call | {"chip": chip})[1]["answers"][0]["match"] == match
    both = [lone, asked(question(1024, chip=Chip.V6E), toolchain=None)]
    answers = service.post("/v1/lookup", call | {"questions": both, "chip": "v5e"})[1]["answers"]
    assert [answer["match"] for answer in answers] == ["exact", "default"]


def test_two_sets_of_options_share_a_service(service, store):
    plain, tuned = question(1024), replace(question(1024).toolchain, options="xla_a=1 xla_b=2")
    publish(service, store, record(replace(plain, toolchain=tuned), bm=128))
    for options, match, block in (
        ("xla_a=1 xla_b=2", "exact", 128),
        ("--xla_b=2 --xla_dump_to=/tmp/x --xla_a=1", "exact", 128),
        ("xla_a=1", "toolchain", 128),
        ("", "exact", 256),
    ):
        toolchain = {**to_data(plain.toolchain), "options": options}
        _, answer = service.post("/v1/lookup", {"questions": [asked(plain, toolchain=toolchain)]})
        (found,) = answer["answers"]
        assert (found["match"], found["config"]["axes"]["bm"]) == (match, block)
        (by_client,) = ServiceAnswers(service.url).lookup(
            [replace(plain, toolchain=replace(plain.toolchain, options=options))]
        )
        assert by_client.kind == match
    bad = {**to_data(plain.toolchain), "options": "'"}
    _, answer = service.post("/v1/lookup", {"questions": [asked(plain, toolchain=bad)]})
    assert answer["answers"][0]["error"]["field"] == "questions[0].toolchain.options"
    status, config = service.get(f"/v1/configs/mm?{QUERY}&shape=1024x128&options=xla_a%3D1")[:2]
    assert (status, config["match"]) == (200, "toolchain")


def of_problem(**changes):
    """A question of another problem."""
    problem = {"dims": {"m": 1024, "k": 128}, "dtype": "bfloat16"} | changes
    return asked(question(), problem=problem)


BAD = {
    "no object": (7, "invalid_field", ""),
    "kernel": (asked(question(), kernel="nope"), "unknown_kernel", ".kernel"),
    "no kernel": (asked(question(), kernel=None), "missing_field", ".kernel"),
    "kernel type": (asked(question(), kernel=[1]), "invalid_field", ".kernel"),
    "long": (asked(question(), kernel="x" * 999), "invalid_field", ".kernel"),
    "control": (asked(question(), kernel="a\nb"), "invalid_field", ".kernel"),
    "chip": (asked(question(), chip="h100"), "unknown_chip", ".chip"),
    "no chip": (asked(question(), chip=None), "missing_field", ".chip"),
    "toolchain": (asked(question(), toolchain={"jax": "1"}), "missing_field", ".toolchain.jaxlib"),
    "no problem": (asked(question(), problem=None), "missing_field", ".problem"),
    "dimension": (of_problem(dims={"m": 1, "z": 1}), "invalid_problem", ".problem"),
    "missing": (of_problem(dims={"m": 1}), "invalid_problem", ".problem"),
    "fraction": (of_problem(dims={"m": 1.0, "k": 1}), "invalid_dimension", ".problem.dims.m"),
    "true": (of_problem(dims={"m": True, "k": 1}), "invalid_dimension", ".problem.dims.m"),
    "zero": (of_problem(dims={"m": 0, "k": 1}), "invalid_dimension", ".problem.dims.m"),
    "huge": (of_problem(dims={"m": 10**400, "k": 1}), "invalid_dimension", ".problem.dims.m"),
    "empty": (of_problem(dims={"": 1}), "invalid_dimension", ".problem.dims."),
    "unknown": (asked(question()) | {"no": 1}, "invalid_field", ".no"),
    "dtype": (of_problem(dtype="int8"), "invalid_problem", ".problem"),
    "option": (of_problem(options={"causal": "perhaps"}), "invalid_problem", ".problem"),
    "option type": (
        of_problem(options={"causal": [1]}),
        "invalid_option",
        ".problem.options.causal",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_question_fails_alone(service, name):
    """With the same code where it is long."""
    bad, code, field = BAD[name]
    field = f"questions[1]{field}"
    good, short = json.dumps(asked(question(1024))), json.dumps(bad)
    long = short.replace("{", "{" + " " * questions._MOST_EXPLAINED_BYTES, 1)
    body = f'{{"questions": [{good}, {short}, {good}, {long}]}}'.encode()
    status, _, content = service.raw("POST", "/v1/lookup", body)
    assert status == 200
    answers = json.loads(content)["answers"]
    assert [answer.get("match") for answer in answers] == ["exact", None, "exact", None]
    error, of_long = answers[1]["error"], answers[3]["error"]
    assert (error["code"], error["field"], of_long["code"]) == (code, field, code)
    assert field.startswith(of_long["field"].replace("[3]", "[1]"))
    for item in (error, of_long):
        assert len(item["message"].splitlines()) == 1 and " at `" not in item["message"]


@pytest.mark.parametrize(
    "body, status, code",
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b"[]", 422, "invalid_field"),
        (b"{}", 422, "missing_field"),
        (b'{"questions": {}}', 422, "invalid_field"),
        (b'{"questions": [], "snapshto": 1}', 422, "invalid_field"),
        (b'{"questions": [], "snapshot": -1}', 422, "invalid_snapshot"),
        (b'{"questions": [], "snapshot": 1.5}', 422, "invalid_snapshot"),
        (b'{"questions": [], "snapshot": 99}', 404, "unknown_snapshot"),
        (json.dumps({"questions": [1] * (MAX_QUESTIONS + 1)}).encode(), 413, "too_many_questions"),
        (b" " * (MAX_BYTES + 1), 413, "body_too_large"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_call_is_one_sentence(service, body, status, code):
    answer, headers, content = service.raw("POST", "/v1/lookup", body)
    error = json.loads(content)["error"]
    assert (answer, error["code"], set(error)) == (status, code, {"code", "message", "field"})
    assert error["field"] == {"invalid_snapshot": "snapshot"}.get(code, error["field"])
    assert headers["content-type"] == "application/json"


def test_the_largest_call(service):
    data = asked(question(1024))
    _, answer = service.post("/v1/lookup", {"questions": [data] * MAX_QUESTIONS})
    assert [each["match"] for each in answer["answers"]] == ["exact"] * MAX_QUESTIONS


@pytest.mark.parametrize("shape", ["1024x128", "m=1024,k=128", "k=128,m=1024"])
def test_one_config(service, shape):
    status, answer = service.get(f"/v1/configs/mm?{QUERY}&shape={shape}&option=causal=false")
    assert (status, answer["snapshot"]) == (200, 2)
    assert {name: answer[name] for name in answer if name != "snapshot"} == (
        service.lookup(question(1024))[1][0]
    )


@pytest.mark.parametrize(
    "path, status, field",
    [
        (f"/v1/configs/nope?{QUERY}&shape=1x1", 404, "kernel"),
        (f"/v1/configs/mm?{QUERY}", 422, "shape"),
        (f"/v1/configs/mm?{QUERY}&shape=1x1x1", 422, "shape"),
        (f"/v1/configs/mm?{QUERY}&shape=1x1&option=x=1", 422, "shape"),
        (f"/v1/configs/mm?{QUERY}&shape=1x1&fingerprint=beef", 404, "fingerprint"),
        (f"/v1/configs/mm?{QUERY}&shape=1x1&snapshot=x", 422, "snapshot"),
        ("/v1/configs/mm?shape=1x1", 422, "chip"),
        ("/v1/configs/mm?chip=v5e&shape=1x1", 422, "jax"),
        ("/v1/misses?limit=0", 422, "limit"),
        ("/v1/nothing", 404, None),
    ],
)
def test_a_bad_address_is_one_sentence(service, path, status, field):
    answer, data = service.get(path)
    assert (answer, data["error"]["field"]) == (status, field)


def test_a_bug_is_told_as_one(service, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("autotune_service.api.lookup.forms.known_identity", fail)
    status, answer = service.post("/v1/lookup", {"questions": [asked(question())]})
    assert (status, answer["error"]["code"]) == (500, "bug")
    assert "secret" not in str(answer)


def test_a_body_in_pieces(service):
    """Chunks without a length, and more of them than are allowed."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    body = json.dumps({"questions": [asked(question(1024))]}).encode()
    connection.request(
        "POST",
        "/v1/lookup",
        iter([body[:9], body[9:]]),
        encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )
    answer = connection.getresponse()
    assert json.loads(answer.read())["answers"][0]["match"] == "exact"
    connection.close()


def test_a_config_that_the_caller_has(service, store):
    path = f"/v1/configs/mm?{QUERY}&shape=512x128"
    _, headers, _ = service.raw("GET", path)
    again = {"If-None-Match": headers["etag"]}
    assert service.raw("GET", path, **again)[::2] == (304, b"")
    store.save_record(record(question(512)))
    until(lambda: service.raw("GET", path, **again)[0] == 200)


def test_a_config_that_its_kernel_cannot_have_is_never_answered(service, store):
    """However it came into the database; nor is the one that stood there before."""
    wrong = replace(record(question(1024)), config=replace(record().config, axes=(("bm", -9),)))
    publish(service, store, wrong)
    (answers,) = service.lookup(question(1024))[1]
    assert answers["match"] != "exact" and answers["config"] != to_data(wrong.config)
