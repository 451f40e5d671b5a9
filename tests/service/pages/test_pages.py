"""Every page over HTTP: what it says, what it refuses, and that no text is taken for code."""

import gzip
import json
import re
import urllib.request
from dataclasses import replace
from urllib.parse import quote

import pytest

from autotune.domain.job import Progress
from autotune.domain.outcome import Estimated, Illegal
from autotune.domain.record import Evidence
from autotune.domain.token import WRITER
from autotune_service.pages import event_stream, problem
from tests.samples.dashboard import (
    EVIL,
    HTML,
    OUTCOMES,
    config,
    estimated,
    evil_key,
    html,
    plain,
    published,
    running_job,
    trial,
)
from tests.samples.database import key_id, latest_snapshot
from tests.samples.matching import question
from tests.samples.records import save_trial
from tests.servers.service import Failing, publish, running, until

PAGES = (
    "/",
    "/problems",
    "/problems?q=mm+m%3D1024",
    "/kernels/mm",
    "/keys/1",
    "/toolchains/1",
    "/trials/1",
    "/compare?key=1&key=2&trial=3",
    "/jobs",
    "/jobs/1",
    "/misses",
    "/workloads",
    "/workloads/model",
    "/snapshots",
    "/snapshots?from=1&to=2",
    "/upgrades",
)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_brings_its_own_policy(service, path):
    status, headers, body = service.raw("GET", path, **HTML)
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert b"http://" not in body.replace(service.url.encode(), b"")
    assert b"https://" not in body


SAY = {
    "/": (
        'href="/kernels/mm?chip=v5e&amp;toolchain=0.10.2%2C0.10.2%2C0.0.42"',
        ">1/1</a>",  # published of searched
        ">0/1</a>",
        "asked for 5 times, answered with: nearest",
        '<span data-fact="snapshot/in force">2</span></a>',
        '<a href="/keys/1" tabindex="-1"><circle class="default"',
        "jax 0.10.2: 10.53× its default",
        "jax 0.10.2: 0.80× plain XLA",
        "1 published; on average 10.53× the default, 0.80× plain XLA",
        "1 job waits for a worker",
    ),
    "/kernels/mm": (
        "10.53×",  # 100 / 9.5 of the default
        "plain XLA is likely faster",
        'title="jaxlib 0.10.2, libtpu 0.0.42">jax 0.10.2</abbr>',
    ),
    "/keys/1": (
        '<abbr tabindex="0" title="parallel">P</abbr>',
        "Plain XLA is likely faster: it needs at least 4.8 µs",
    ),
    "/trials/1": (
        "&lt;/td&gt;&lt;script&gt;alert",
        "trial 1: the kernel was estimated at 100.0 µs, the simulator that made this profile says",
    ),
    "/trials/2": ("autotune explain 2 --keep",),
    "/compare?trial=1&trial=3": ("first µs", "<td>1.54</td><td>3.54</td><td>+2.00</td>"),
    "/compare?trial=1&trial=2": ("autotune explain 1 2 --keep",),
    "/trials/7": (
        "second line",
        "autotune estimate mm --shape m=1024,k=128 --dtype bfloat16 --option causal=false "
        "--chip v5e --config",
    ),
    "/toolchains/1": ("fails under one", "no longer supported"),
    "/problems?q=mm": ('<a href="/kernels/mm">mm</a>',),
    "/problems?q=zzz": ("No problem was searched",),
    "/compare": ("Choose two or more",),
    "/jobs": ("No worker is at work. It needs a worker with bad",),
    "/workloads": ('href="/workloads/model"',),
}


@pytest.mark.parametrize("path", SAY)
def test_what_a_page_says(service, path):
    text = html(service, path)
    for words in SAY[path]:
        assert words in text
    answer = plain(text).partition("Best so far")[0]  # a chart says the bound, too
    assert ("Sign out" in text, "≥" in answer, evil_key().kernel in text) == (False,) * 3


def test_pages_are_compressed_for_those_who_say_so(service):
    plain = html(service, "/keys/1")
    _, headers, body = service.raw("GET", "/keys/1", **HTML, **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(body).decode() == plain


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("/kernels/mm?chip=v9", "chip=v9 was ignored: there is v5e, v6e."),
        ("/kernels/mm?toolchain=x", "toolchain=x was ignored"),
        ("/kernels/mm?page=0", "page=0 was ignored: it must be a number from 1."),
        ("/kernels/mm?page=7", "page=7 was ignored: there are 1."),
        ("/kernels/mm?page=%C2%B2", "page=² was ignored"),
        ("/kernels/mm?colour=red", "colour=red was ignored: there is no such filter."),
        ("/keys/1?x=bogus&y=9", "x=bogus was ignored"),
        ("/?toolchain=1,2", "toolchain=1,2 was ignored"),
        (f"/misses?{quote(EVIL)}=1", "was ignored"),
        ("/problems?order=slowest", "order=slowest was ignored"),
    ],
)
def test_bad_filters_are_ignored_with_a_note(service, path, note):
    text = html(service, path)
    assert note in text
    assert "<script>window" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/kernels/none",
        "/keys/99",
        "/keys/x",
        f"/keys/{2**64}",
        "/trials/99",
        "/nothing/here",
        "/keys/99/events",
        f"/kernels/{quote(EVIL)}",
    ],
)
def test_what_is_not_there_is_a_page_with_a_way_back(service, path):
    text = html(service, path, 404)
    assert '<a href="/">To the overview</a>' in text
    assert "<script>window" not in text


def test_a_program_gets_json_for_what_is_not_there(service):
    assert service.get("/keys/99")[1]["error"]["code"] == "unknown_key"
    status, headers, _ = service.raw("GET", "/v1/nothing", **HTML)
    assert (status, headers["content-type"]) == (404, "application/json")


def figures(text):
    drawn = re.findall(r'<script type="application/json" data-figure="(\w+)">(.*?)</script>', text)
    return {name: json.loads(data) for name, data in drawn}


def test_every_outcome_is_told_apart(service):
    text = html(service, "/keys/1")
    for outcome in OUTCOMES:
        count = 4 if outcome.kind == "estimated" else 1
        assert f"{count} {outcome.kind} : " in plain(text)
    names = [t["name"] for t in figures(text)["trials"]["data"]]
    wanted = ["estimated (4)", "out of VMEM (1)", "illegal (1)", "failed (3)", "wrong result (1)"]
    assert set(wanted) < set(names)


def test_big_tables_are_paged_and_links_keep_the_filters(fresh, store):
    for number in range(20, 140):
        save_trial(store, question(), trial(number, Illegal(reason=f"r{number}")))
    text = html(fresh, "/keys/1?kind=illegal&page=2")
    assert "rows 51–100 of 121" in text
    assert "r70" in text
    assert 'href="/keys/1?kind=illegal&amp;page=3"' in text


# --- what came from outside ---------------------------------------------------------------------


def test_a_default_that_was_not_compiled_is_called_predicted(fresh, store):
    of = question(kernel="untried")
    predicted = Evidence(
        config=None, time_us=None, expected_us=19.0, expected_error=0.25, note="not compiled"
    )
    save_trial(store, of, trial(2, OUTCOMES[0]))
    publish(fresh, store, replace(published(of), default=predicted))
    for path in ("/kernels/untried", f"/keys/{key_id(store, of)}"):
        shown = plain(html(fresh, path))
        assert "2.00× ± 25%" in shown and "predicted" in shown, path
    page = html(fresh, "/")
    assert "its default (predicted)" in page
    assert "by estimate unless measured (1 predicted)" in page
    assert "2.00× the default (predicted)</span>" in page


def evil_pages(store):
    number = key_id(store, evil_key())
    ids = [
        trial.id
        for trial in store.browse.trials(number or 0, None, fastest=False, offset=0, limit=9)
    ]
    return [
        *PAGES,
        f"/kernels/{quote(evil_key().kernel, safe='')}",
        f"/keys/{number}",
        f"/toolchains/{number}",
        *(f"/trials/{number}" for number in (*ids, *range(1, 12))),
    ]


def test_no_text_from_outside_becomes_markup(fresh, store):
    running_job(store, note=EVIL)
    seen = 0
    for path in evil_pages(store):
        text = html(fresh, path)
        assert "<script>window" not in text, path
        assert "<img" not in text, path
        assert "49" not in re.findall(r"\{\{.{0,9}", text)
        for figure in figures(text).values():
            plotted = json.dumps(figure)
            assert "<script" not in plotted, path
            assert "<img" not in plotted, path
        seen += text.count("window.evil=1")
    assert seen > 30  # it is shown, as text


def test_events_cannot_be_forged_by_a_text(fresh, store):
    running_job(store, note="a\n\nevent: progress\ndata: {}")
    number = key_id(store, evil_key())
    first = next(events(fresh, f"/keys/{number}/events"))
    assert first["job"]["note"] == "a\n\nevent: progress\ndata: {}"


# --- live ---------------------------------------------------------------------------------------


def events(service, path):
    """Each as it comes, for as long as the stream lives or somebody asks."""
    with urllib.request.urlopen(service.url + path, timeout=300) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def test_a_stream_tells_what_the_terminal_shows(fresh, store):
    progress = Progress(done=3, goal=9, note="compiling")
    store.searches.report(question(), "9 points", progress, over=False)
    assert "The space: 9 points." in html(fresh, "/keys/1")
    stream = events(fresh, "/keys/1/events")
    first = next(stream)
    store.searches.report(question(), "9 points", progress, over=True)
    save_trial(store, question(), trial(30, Illegal(reason="x")))
    second = next(stream)
    assert (first["trials"], second["trials"]) == (11, 12)
    assert first["best_us"] == 9.5
    assert first["times_default"] == pytest.approx(100 / 9.5)
    assert second["newest"] > first["newest"]
    assert first["search"] == {"done": 3, "goal": 9, "note": "compiling"}
    assert second["search"] is None


def test_a_stream_ends_by_itself(fresh, monkeypatch):
    monkeypatch.setattr(event_stream, "_LIFE_S", 1.0)
    assert len(list(events(fresh, "/keys/1/events"))) == 1


# --- closed, and gone ---------------------------------------------------------------------------


@pytest.fixture
def closed(store, database):
    with running(database, closed=True) as service:
        yield service


class TestClosed:
    def test_scripts_and_styles_are_open(self, closed):
        for path in re.findall(r"/static/\w+/[\w.]+", html(closed, "/", 401)):
            assert closed.raw("GET", path)[0] == 200

    def test_a_session_opens_pages_and_nothing_that_writes(self, closed, store):
        secret = store.tokens.create("boss", WRITER, None)[1]
        until(lambda: closed.get("/v1/misses", secret)[0] == 200)
        status, headers, _ = closed.raw("GET", "/session", Authorization=f"Bearer {secret}")
        assert status == 204
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        mine = {"Cookie": cookie.partition(";")[0]}
        assert "every" not in html(closed, "/", **mine)
        body = json.dumps({"miss": 1}).encode()
        assert closed.raw("POST", "/v1/jobs", body, **mine)[0] == 401
        assert closed.raw("POST", "/v1/lookup", b'{"questions": []}', **mine)[0] == 401
        assert closed.raw("GET", "/session", Authorization="Bearer no")[0] == 401
        assert closed.raw("GET", "/session")[0] == 401

    @pytest.mark.parametrize(
        "cookie", ["autotune_token=wrong", "autotune_token", "a=b", "=;;", "a/b=c"]
    )
    def test_no_other_cookie_does(self, closed, cookie):
        html(closed, "/", 401, Cookie=cookie)


class TestDatabaseGone:
    @pytest.fixture
    def gone(self, store):
        failing = Failing(store)
        with running("", opened=lambda: failing) as service:
            failing.gone = True
            yield service

    @pytest.mark.parametrize("path", [*PAGES, "/keys/1/events"])
    def test_a_page_says_so(self, gone, path):
        text = html(gone, path, 503)
        assert "The database cannot be used" in text
        assert "secret-host" not in text
        assert "Traceback" not in text
        assert gone.get("/export/keys/1/trials.json")[0] == 503


class TestBug:
    """An exception that no code expects, anywhere in a page or a route."""

    @pytest.fixture
    def broken(self, store, database, monkeypatch):
        def raises(*_, **__):
            raise ZeroDivisionError(f"a secret of {EVIL}")

        with running(database) as service:
            for of, name in (
                (type(store.browse), "latest"),
                (problem, "view"),
                (type(store), "misses"),
                (type(store.browse), "trial"),
            ):
                monkeypatch.setattr(of, name, raises)
            yield service

    @pytest.mark.parametrize("path", ["/", "/keys/1", "/trials/1"])
    def test_a_page_is_a_page_with_a_way_back_and_the_id(self, broken, path):
        status, headers, body = broken.raw("GET", path, **HTML, **{"X-Request-Id": "mine-7"})
        text = body.decode()
        assert (status, headers["content-type"]) == (500, "text/html; charset=utf-8")
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-request-id"] == "mine-7"
        assert "with the request id mine-7" in text
        assert '<a href="/">To the overview</a>' in text
        for said in ("Traceback", "ZeroDivisionError", "secret", "dashboard/pages"):
            assert said not in text
        html(broken, "/kernels/mm")  # the rest goes on

    @pytest.mark.parametrize("path", ["/v1/misses", "/"])
    def test_a_program_gets_the_envelope(self, broken, path):
        status, headers, body = broken.raw("GET", path, **{"X-Request-Id": "mine-8"})
        assert (status, headers["content-type"]) == (500, "application/json")
        error = json.loads(body)["error"]
        assert (error["code"], error["field"]) == ("bug", None)
        assert "mine-8" in error["message"] and "secret" not in error["message"]


def test_an_empty_database_says_what_to_do(tmp_path):
    from autotune_db import open_store

    file = str(tmp_path / "empty.db")
    open_store(file, create=True).close()
    with running(file) as service:
        assert "autotune search matmul" in html(service, "/")


@pytest.mark.parametrize("time_us", [0.0, 5e-324, 1e-9, 1e18])
@pytest.mark.parametrize("other", [0, 10**15])
def test_numbers_that_nobody_expects_break_no_page(fresh, store, time_us, other):
    """Older versions took a push with any numbers that are not below zero."""
    explained = replace(
        estimated(1.0).estimate.explanation,
        parts_us=(("HBM waits", time_us), ("another", 1.0)),
        roofline_us=time_us * 2,
        steps=other,
        vmem=(),
    )
    odd = replace(
        estimated(1.0).estimate,
        time_us=time_us,
        memory_us=time_us,
        hbm_bytes=other,
        flops=other * 10**15,
        vmem_used_bytes=other,
        vmem_allowed_bytes=other,
        error=None,
        explanation=explained,
        resolution=0.0,
    )
    of = question(3, 3)
    for number in (0, 1):
        save_trial(store, of, trial(number, Estimated(estimate=odd, program="p")))
    wild = replace(config(5), axes=(("bm", True), ("unroll", 1)))
    save_trial(store, of, replace(trial(2, Estimated(estimate=odd, program="p")), config=wild))
    evidence = Evidence(config=None, time_us=time_us, expected_us=time_us)
    odd_record = replace(published(of), estimate=odd, default=evidence, baseline=evidence)
    store.save_record(replace(odd_record, config=config(1)))
    number = key_id(store, of)
    last = store.browse.newest(number or 0)
    until(lambda: fresh.get("/healthz")[1]["snapshot"] == latest_snapshot(store))
    paths = ("/", "/kernels/mm", f"/keys/{number}", f"/toolchains/{number}", f"/trials/{last}")
    for path in paths:
        text = html(fresh, path)
        assert "NaN" not in text
        assert "Infinity" not in text
        figures(text)
    command = f"autotune explain {last} --keep"
    assert (command in text) == ('id="parts"' in text)
    assert fresh.raw("GET", f"/v1/snapshots/{latest_snapshot(store)}")[0] == 200


def test_a_key_without_trials_or_without_a_time_says_so(fresh, store):
    save_trial(store, question(6, 6), trial(0, OUTCOMES[4]))
    text = html(fresh, f"/keys/{key_id(store, question(6, 6))}")
    assert "No trial has a time: " in text and "No trial has a time yet." in text
    store.save_record(published(question(5, 5)))
    number = key_id(store, question(5, 5))
    until(lambda: "verified" in html(fresh, f"/keys/{number}"))
    text = html(fresh, f"/keys/{number}")
    assert "published without its trials" in text and "default 100.0 µs" in text
    assert "plotly" not in text and "older version" not in text
