"""The client against a real service, against none, and against liars."""

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations, count

import pytest

from autotune.answering.bundle import bundle_to_bytes, new_bundle, read_bundle
from autotune.answering.client import MAX_QUESTIONS
from autotune.answering.generation import GENERATION
from autotune.answering.http import Remote
from autotune.answering.matching import DEFAULT, EXACT, NEAREST, TOOLCHAIN
from autotune.answering.sources import ACCEPT
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError, ServiceError
from autotune.domain.problem import make_config
from autotune.domain.record import Record
from autotune.python.explained_client import Client
from autotune.python.sources import BundleSource, StoreSource
from tests.fakes.lying_service import http, lying
from tests.samples.database import new_store, two_records
from tests.samples.matching import SPEC, older, question, record, ruled
from tests.servers.service import running, until

NOBODY = "http://127.0.0.1:9"
QUESTIONS = [question(1024), question(2048), question(9, 9)]


@pytest.fixture
def cache(tmp_path):
    """An older snapshot on disk: another block than the service has."""
    path = tmp_path / "configs.bundle"
    path.write_bytes(bundle_to_bytes(new_bundle([record(question(1024), 128)], 1, [SPEC])))
    return path


def test_a_busy_service_is_asked_again(tmp_path):
    database = str(tmp_path / "busy.db")
    new_store(database, two_records).close()
    with running(database, reads_per_second=1) as service:
        for _ in range(3):
            (answer,) = Client(service.url, timeout_s=60).lookup([question(1024)])
            assert answer.kind == EXACT


def test_a_busy_service_is_not_left_alone(cache):
    """It has not failed: the next call may ask it again."""
    refusal = http(b"{}", "429 Too Many Requests")
    with lying(refusal) as url:
        client = Client(url, cache=cache, timeout_s=0.3)
        assert words(client) == [EXACT, NEAREST, DEFAULT]
        assert client._retry_after == 0


def words(client):
    return [answer.kind for answer in client.lookup(QUESTIONS)]


def test_more_than_one_call_may_hold(service):
    keys = [question(1024 + n % 7) for n in range(2 * MAX_QUESTIONS + 1)]
    answers = Client(service.url, timeout_s=20).lookup(keys)
    assert len(answers) == len(keys)
    assert [answer.kind == EXACT for answer in answers] == [n % 7 == 0 for n in range(len(keys))]


def test_a_snapshot_that_is_asked_for(service):
    client = Client(service.url, snapshot=1)
    assert client.lookup([question(4096, 256)])[0].kind == DEFAULT
    assert client.snapshot == 1


def test_the_snapshot_is_kept_on_disk(service, tmp_path):
    path = tmp_path / "new.bundle"
    online = Client(service.url, cache=path).lookup(QUESTIONS)
    until(lambda: path.exists() and path.with_name("new.bundle.note").exists())
    assert read_bundle(path).snapshot == 2
    offline = Client(NOBODY, cache=path)
    answers = offline.lookup(QUESTIONS)
    assert all("cannot be used" in answer.why for answer in answers)
    said = [
        replace(answer, why=before.why, unreachable="")
        for answer, before in zip(answers, online, strict=True)
    ]
    assert said == online  # the same question, the same answer
    assert offline.snapshot == 2
    assert not offline.keeps_proofs  # another service wrote it
    own = Client(service.url, cache=path)
    assert own._disk_index().match(question(1024)).kind == EXACT and own.keeps_proofs


def test_what_is_kept_already_is_not_fetched_again(service, tmp_path):
    path = tmp_path / "new.bundle"
    client = Client(service.url, cache=path)
    client.lookup(QUESTIONS)
    assert client.refresh()
    path.write_bytes(b"seen")
    assert client.refresh()
    assert path.read_bytes() == b"seen"
    path.unlink()
    assert client.refresh()
    assert read_bundle(path).snapshot == 2


def test_a_snapshot_that_cannot_be_read_does_not_replace_what_is_there(cache):
    before = cache.read_bytes()
    with lying(http(b"nonsense")) as url, pytest.raises(InvalidInputError):
        Client(url, cache=cache).refresh()
    assert cache.read_bytes() == before
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def _answers(*answers):
    return http(json.dumps({"snapshot": 3, "answers": answers}).encode())


def _answer(of, **changes):
    return {
        "match": "exact",
        "config": to_data(of.config),
        "why": "",
        **changes,
        "record": to_data(of),
    }


GOOD = _answer(record(question(1024)))
NOTHING = {"match": "default", "config": None, "why": "", "record": None}


def _lie(answer):
    """Only the first of three answers is wrong."""
    return _answers(answer, NOTHING, NOTHING)


LIES = {
    "silence": None,
    "nothing": b"",
    "no HTTP": b"\0\xff" * 100,
    "a page": http(b"<html>hello</html>"),
    "an error": http(b"{}", "500 Oops"),
    "busy": http(b'{"error": {"message": "later"}}', "503 Later"),
    "moved": http(b"", "302 Found"),
    "a list": http(b"[]"),
    "null": http(b"null"),
    "nested": http(b"[" * 100_000),
    "cut": http(b"x" * 100)[:-50],
    "too few": _answers(GOOD),
    "too many": _answers(GOOD, GOOD, GOOD, GOOD),
    "another record": _lie(_answer(record(question(512)))),
    "another kernel": _lie(_answer(record(question(kernel="x")), match="nearest")),
    "another config": _lie(GOOD | {"config": to_data(make_config({"bm": 8}))}),
    "no record": _lie(GOOD | {"record": None}),
    "no snapshot": http(json.dumps({"snapshot": "x", "answers": [NOTHING] * 3}).encode()),
}


def test_a_newer_service_may_say_more():
    """Services are upgraded before their hosts: these must not fall back to defaults. The other
    side of the lies: each is refused for its one wrong part."""
    more = GOOD["record"] | {"new": 1, "estimate": GOOD["record"]["estimate"] | {"new": 1}}
    with lying(_lie(GOOD | {"record": more, "new": 1})) as url:
        answers = Client(url, timeout_s=2, strict=True).lookup(QUESTIONS)
    assert answers[0].record == from_data(Record, GOOD["record"])


def test_a_new_word_is_a_default_and_the_other_answers_hold():
    better = GOOD | {"match": "better", "record": {"made": "anew"}}
    with lying(_answers(better, NOTHING, GOOD)) as url:
        asked = [question(512), question(512), question(1024)]
        answers = Client(url, timeout_s=2, strict=True).lookup(asked)
    assert [answer.kind for answer in answers] == [DEFAULT, DEFAULT, EXACT]
    assert answers[0].config is None and "'better'" in answers[0].why


@pytest.mark.parametrize("name", LIES)
def test_a_service_that_is_of_no_use(name, cache, caplog):
    with lying(LIES[name]) as url:
        client = Client(url, cache=cache, timeout_s=0.3)
        answers = client.lookup(QUESTIONS)
        client.lookup(QUESTIONS)
    assert [answer.kind for answer in answers] == [EXACT, NEAREST, DEFAULT]
    assert answers[0].config["bm"] == 128  # from the disk
    assert client.snapshot == 1
    warnings = [entry.message for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert url in warnings[0]


def test_after_an_outage_the_answers_come_without_a_restart(service, monkeypatch):
    """Found out in the background: who holds an answer asks again."""
    monkeypatch.setattr("autotune.answering.generation.RETRY_AFTER_S", 0.05)
    monkeypatch.setattr("autotune.answering.client.RETRY_AFTER_S", 0.05)
    client, call, calls = Client(service.url), Remote.call, count()

    def flaky(self, *args):
        if next(calls) < 3:
            raise OSError("no route to host")
        return call(self, *args)

    monkeypatch.setattr(Remote, "call", flaky)
    generation = GENERATION.number
    answer = client.match(question(1024))
    assert (answer.kind, "no route to host" in answer.why) == (DEFAULT, True)
    assert "nothing is published" not in answer.why
    until(lambda: GENERATION.number > generation)
    assert client.match(question(1024)).kind == EXACT


@pytest.mark.parametrize("name", ["silence", "nothing", "a page", "busy"])
def test_strict_says_so_instead(name, cache):
    with lying(LIES[name]) as url, pytest.raises(ServiceError):
        Client(url, cache=cache, timeout_s=0.3, strict=True).lookup(QUESTIONS)


@pytest.mark.parametrize("content, pause_s", [(None, 0.0), (http(b"x" * 1000), 0.1)])
def test_a_call_is_bounded_as_a_whole(content, pause_s):
    """A byte now and then resets the timeout of a socket."""
    with lying(content, pause_s=pause_s) as url:
        begun = time.monotonic()
        assert words(Client(url, timeout_s=0.3)) == [DEFAULT] * 3
        assert time.monotonic() - begun < 20  # all bytes take 100 s, silence lasts 30


def test_a_process_that_is_forked_in_an_outage_asks_again():
    """The threads that would are those of its parent."""
    client = Client(NOBODY)
    client.lookup(QUESTIONS)
    before = GENERATION.number
    child = os.fork()
    if not child:
        os._exit(GENERATION.number == before or bool(GENERATION._waiting))
    assert os.waitpid(child, 0)[1] == 0 and GENERATION._waiting


def test_without_anything_there_are_defaults(tmp_path):
    assert words(Client(NOBODY)) == [DEFAULT] * 3
    assert words(Client(NOBODY, cache=tmp_path / "missing")) == [DEFAULT] * 3
    (tmp_path / "broken").write_bytes(b"\x1f\x8bnonsense")
    assert words(Client(NOBODY, cache=tmp_path / "broken")) == [DEFAULT] * 3


def test_a_bundle_needs_no_service(cache, caplog):
    client = Client(None, cache=cache)
    assert words(client) == [EXACT, NEAREST, DEFAULT]
    assert not caplog.records
    assert not client.refresh()


def test_a_question_that_is_refused_is_a_default(service):
    answers = Client(service.url).lookup([question(kernel="nope"), question(1024)])
    assert [answer.kind for answer in answers] == [DEFAULT, EXACT]
    assert "unknown kernel" in answers[0].why


@pytest.mark.parametrize("url", ["", "tuning:8700", "ftp://x", "http://", "http://x:y", "file:/x"])
def test_no_address(url):
    with pytest.raises(InvalidInputError):
        Client(url)


@pytest.mark.parametrize("module", ["answering.client", "python.tuned"])
def test_it_imports_nothing_heavy(module):
    probe = (
        f"import sys, autotune.{module} as _;"
        " print(sorted({name.partition('.')[0] for name in sys.modules} & {'jax', 'pydantic',"
        " 'httpx', 'sqlalchemy', 'optuna', 'click', 'numpy', 'fastapi', 'asyncio'}))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_by_shape(service):
    toolchain = question().toolchain
    client = Client(service.url)
    answer = client.lookup_shape(
        "mm", ProblemWords(shape="1024x128"), chip="v5e", toolchain=toolchain
    )
    assert (answer.kind, answer.record) == (EXACT, record(question(1024)))
    words = ProblemWords(shape="1024x128", dtype="bf16", options=("causal=true",))
    answer = client.lookup_shape("mm", words, chip="v5e", toolchain=toolchain)
    assert answer.kind == DEFAULT
    with pytest.raises(ServiceError, match="unknown kernel 'nö pe'"):
        client.lookup_shape("nö pe", ProblemWords(shape="1"), chip="v5e", toolchain=toolchain)
    with pytest.raises(ServiceError, match="cannot be used"):
        Client(NOBODY).lookup_shape("mm", ProblemWords(shape="1"), chip="v5e", toolchain=toolchain)


def all_kinds(store):
    """Of one problem: a record, one of another toolchain, a rule, and a record of a near shape."""
    near = replace(record(question(1024)), rule=ruled())
    store.save_kernel(SPEC)
    for published in (record(question(2048), 128), older(record(question(2048)), "0.9.0"), near):
        store.save_record(published)
    store.save_rule([near.key], ruled())


def test_what_is_not_accepted_leaves_the_question_to_the_next(tmp_path):
    path, database = tmp_path / "kinds.bundle", str(tmp_path / "kinds.db")
    older_one = question(jax="0.9.0").toolchain
    with new_store(database, all_kinds) as store, running(database) as service:
        path.write_bytes(bundle_to_bytes(new_bundle(store.records(), 1, store.kernels())))
        asked = Client(service.url)
        asked.lookup([question(2048)])
        for size in range(len(ACCEPT) + 1):
            for accept in combinations(ACCEPT, size):
                expected = accept[0] if accept else DEFAULT
                sources = (StoreSource(store), BundleSource(path), Client(None, cache=path))
                for source in (*sources, Client(service.url, strict=True), asked):
                    for given in (accept, accept[::-1]):
                        answer = source.match(question(2048), given)
                        assert answer.kind == expected, source
                        assert accept or answer.why == "exact is not accepted", source
                        toolchain = answer.record and answer.record.key.toolchain
                        assert (toolchain == older_one) == (expected == TOOLCHAIN)
                (of_many,) = Client(service.url).lookup([question(2048)], accept)
                assert of_many.kind == expected


@pytest.mark.parametrize("strict", [True, False])
def test_a_kind_that_there_is_not_is_the_callers_mistake(service, strict):
    client = Client(service.url, strict=strict)
    for ask in (client.match, lambda key, kinds: client.lookup([key], kinds)):
        with pytest.raises(InvalidInputError, match="'near': choose among exact, toolchain, rule"):
            ask(question(1024), ["near"])
    assert client.match(question(2048), ["nearest"]).kind == "nearest"
    assert client.match(question(1024), "exact").kind == "exact"
