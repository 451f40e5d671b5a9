"""Finding, comparing, the queue and the snapshots."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from urllib.parse import quote_plus

import pytest

import autotune
from autotune.domain.codec import from_data
from autotune.domain.job import State
from autotune.domain.problem import Config
from autotune.domain.token import ADMIN, READER, WRITER
from autotune_service.pages.compare import MOST
from autotune_service.pages.problem import taken
from tests.samples.dashboard import (
    HTML,
    claimed_job,
    config,
    estimated,
    html,
    plain,
    published,
    trial,
    wanted,
)
from tests.samples.database import key_id
from tests.samples.matching import NOON, question
from tests.samples.records import save_trial
from tests.servers.service import publish, running, until


def listed(text):
    """The problems of a list, in order."""
    return [int(link) for link in re.findall(r'name="key" value="(\d+)"', text)]


class TestFind:
    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            ("mm m=1024", {1, 2}),
            ("0.12.0", {2}),
            ("1024x128 v5e bfloat16 0.10", {1}),
            ("causal=false 0.12", {2}),
            ("m=102", set()),
            ("m=%", set()),
            ("V5E MM 0.10.2", {1}),
        ],
    )
    def test_each_word_narrows(self, service, words, wanted):
        text = html(service, f"/problems?q={quote_plus(words)}&order=kernel")
        shown = set(listed(text)) & {1, 2}
        assert shown == wanted

    def test_so_many_words_are_looked_for(self, service):
        words = "+".join(["mm"] * 9 + [f"w{n}" for n in range(9)])
        assert "Only the first 6 words were looked for" in html(service, f"/problems?q={words}")
        assert listed(html(service, "/problems?q=" + "+".join(["bfloat16"] * 9 + ["v5e"]))) == (
            listed(html(service, "/problems?q=bfloat16+v5e"))
        )

    def test_a_token_is_found_by_what_it_brought(self, fresh, store):
        store.save_record(
            replace(published(question(5, 5)), pushed_by="night-ci", checked_by="own")
        )
        number = key_id(store, question(5, 5))
        status, headers, _ = fresh.raw("GET", "/problems?q=night-ci", **HTML)
        assert (status, headers["location"]) == (303, f"/keys/{number}")

    def test_limits_may_have_spaces_and_names_may_have_signs(self, fresh, store):
        unnamed = replace(question(6, 6), kernel="<lambda>")
        save_trial(store, unnamed, trial(0, estimated(44.0)))
        address = f"/keys/{key_id(store, unnamed)}"
        for words in ("<lambda> 6x6", "<lambda> time > 43"):
            status, headers, _ = fresh.raw("GET", f"/problems?q={quote_plus(words)}", **HTML)
            assert (status, headers.get("location")) == (303, address), words


def test_what_was_never_searched_says_so_and_its_button_makes_a_job(fresh, store):
    path = f"/keys/{key_id(store, store.misses()[0].key)}"
    text = html(fresh, path)
    assert "older version" not in text
    assert "Nobody has searched this yet" in text
    assert "autotune search mm --shape m=77,k=5" in text
    (body,) = re.findall('data-post="/v1/jobs" data-body="([^"]+)"', text)
    secret = store.tokens.create("ci", WRITER, None)[1]
    status, job = fresh.post("/v1/jobs", json.loads(unescape(body)), secret)
    assert status == 201, job
    assert f"job {job['number']}</a> is queued" in html(fresh, path)


class TestTaken:
    def test_each_form_is_the_config(self):
        record = replace(published(question()), config=config(2).replace(vmem_limit_bytes=1 << 20))
        stored = dict(taken(record, "http://host/v1/configs/mm?shape='m'"))
        assert eval(stored["Python"], {"autotune": autotune}) == record.config
        assert from_data(Config, json.loads(stored["JSON"])) == record.config
        assert stored["curl"].startswith("curl 'http://host/v1/configs/mm?shape='\"'\"'m'")
        assert stored["Tuned"] == (
            "TUNED.config(TUNED.problem(dtype='bfloat16', m=1024, k=128, causal=False))"
        )

    def test_the_page_has_them_beside_their_buttons(self, service):
        text = html(service, "/keys/1")
        for name in ("Python", "JSON", "curl", "Tuned"):
            assert f'data-copy="take-{name}"' in text
            assert f'id="take-{name}"' in text
        (call,) = re.findall(r'id="take-curl">curl (.*?)</pre>', text, re.S)
        path = unescape(call).strip("'").removeprefix(service.url)
        assert service.get(path)[1]["match"] == "exact"


class TestJobs:
    def test_it_waits_for_a_worker_that_is_busy(self, fresh, store):
        store.jobs.add(wanted(question()))
        claimed_job(store, question())
        assert "1 worker is busy with other jobs" in plain(html(fresh, "/jobs?state=queued"))

    def test_all_states_with_what_can_be_done(self, fresh, store):
        store.jobs.add(wanted(question(), trials=7))
        job = claimed_job(store, question())
        assert f'data-post="/v1/jobs/{job.number}/cancel"' in html(fresh, "/jobs?state=running")
        store.jobs.finish(job, State.FAILED, "no such luck")
        text = html(fresh, "/jobs?state=failed")
        lanes = re.findall(r"<li><span>w</span><svg.*?</svg>", text)
        assert len(lanes) == 1
        assert f'href="#job-{job.number}"' in lanes[0]
        assert 'class="failed" x="0.0%" width="100.0%"' in lanes[0]
        assert "no such luck" in text
        (again,) = re.findall('data-post="/v1/jobs" data-body="([^"]+)"', text)
        secret = store.tokens.create("ci", WRITER, None)[1]
        status, made = fresh.post("/v1/jobs", json.loads(unescape(again)), secret)
        assert (status, made["request"]["trials"]) == (201, 7)

    def test_what_workers_said_stands_with_the_job(self, fresh, store):
        """The newest attempt first; whatever they said, it is text."""
        made, _ = store.jobs.add(wanted(question()))
        path = f"/jobs/{made.number}"
        assert "No worker has it yet" in html(fresh, path)
        for said in ("<script>alert(1)</script>", "\u202e\x1b[31m"):
            job = claimed_job(store, question())
            assert ("Nothing yet" in html(fresh, path)) == (job.attempt == 1)
            assert store.jobs.write_log(job, said)
            assert 'data-poll="5"' in html(fresh, path)
            store.jobs.give_back(job, "it broke", counts=True)
        text = html(fresh, path)
        assert re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", text) == [
            r"\u202e\x1b[31m",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
        ]
        assert f'href="{path}"' in html(fresh, "/jobs")
        for unknown in ("/jobs/99", "/jobs/x", f"/jobs/{10**17}"):
            html(fresh, unknown, 404)


class TestSnapshots:
    def test_what_changed_from_one_to_another(self, fresh, store):
        other = replace(
            published(question()), config=config(3), pushed_by="night-ci", checked_by="own"
        )
        publish(fresh, store, replace(other, created_at=NOON))
        text = plain(html(fresh, "/snapshots?from=2&to=3"))
        assert "1 record differs" in text
        assert "bm=128 unroll=3" in text and "bm=256 unroll=1" in text
        assert "night-ci" in text
        assert "Nothing differs" in html(fresh, "/snapshots?from=3&to=3")
        back = plain(html(fresh, "/snapshots?from=3&to=2"))
        assert "1 record differs" in back and "bm=256 unroll=1" in back
        gone = plain(html(fresh, "/snapshots?from=2&to=1"))
        assert "1 record differs" in gone
        for pair in ("from=1&to=99", "from=99&to=1"):
            html(fresh, f"/snapshots?{pair}", 404)

    def test_a_problem_tells_who_published_and_offers_what_was_before(self, fresh, store):
        later = replace(
            published(question()), config=config(3), pushed_by="night-ci", checked_by="own"
        )
        publish(fresh, store, later)
        text = html(fresh, "/keys/1")
        assert "by <strong>night-ci</strong>" in text
        number = store.published("mm")[1][0]
        assert f'data-post="/v1/records/{number}/pin"' in text
        assert ">Unpin<" not in text  # nothing is pinned
        secret = store.tokens.create("boss", ADMIN, None)[1]
        assert fresh.post(f"/v1/records/{number}/pin", None, secret)[0] == 200
        until(lambda: fresh.get("/healthz")[1]["snapshot"] == 4)
        text = html(fresh, "/keys/1")
        assert "by <strong>night-ci</strong>" not in text  # it is not what is served
        assert ">Unpin<" in text


class TestCompare:
    def test_configs_and_times_stand_side_by_side(self, service):
        text = html(service, "/compare?trial=1&trial=3&trial=5")
        assert re.search(r'<tr class="differs"><th scope="row">unroll', text)
        assert not re.search(r'<tr class="differs"><th scope="row">chip', text)
        assert (
            "Trial 3 (verified) is 10.53 times as fast as trial 1 (not verified), by estimate."
            in text
        )
        assert "out of VMEM: needs 32 MiB" in text
        assert "issue 60.0 µs, 60.0% 5.7 µs, 60.0% –" in plain(text)  # where the cycles go

    def test_what_is_served_has_the_parts_that_its_trial_knows(self, fresh, store):
        """A record keeps none. Of another time its trial says nothing."""
        for time_us, known in ((9.5, True), (9.6, False)):
            record = published(question())
            bare = replace(record.estimate, explanation=None, time_us=time_us)
            store.save_record(replace(record, estimate=bare, created_at=datetime.now(UTC)))
            until(lambda time_us=time_us: f"{time_us} µs" in html(fresh, "/compare?key=1&key=2"))
            assert ("5.7 µs, 60.0%" in html(fresh, "/compare?key=1&key=2")) is known
            assert ("It needs 54.3 µs less" in html(fresh, "/keys/1")) is known
            assert f"{100 / time_us:.2f} times as fast as default" in html(fresh, "/keys/1")

    def test_what_is_not_there_is_said(self, service):
        text = html(service, "/compare?trial=99&trial=x&key=1")
        assert text.count("was ignored") == 2

    def test_no_more_are_looked_for_than_stand_side_by_side(self, service):
        text = html(service, "/compare?" + "&".join(f"trial={n}" for n in range(90, 99)))
        assert text.count("was ignored") == MOST
        assert f"Only the first {MOST} are compared" in text


def test_an_axis_matters_by_what_changing_it_alone_does(fresh, store):
    key = question(3, 3)
    for number in range(24):
        slow = 100.0 * (1 + number // 3 % 4)
        save_trial(store, key, trial(number, estimated(slow + number % 3)))
    text = html(fresh, f"/keys/{key_id(store, key)}")
    shown = plain(text[text.index('id="effects"') :])
    assert "takes 4.00 times as long (3." in shown and "no difference that can be told" in shown


class TestSignIn:
    def test_people_are_asked_in_their_words(self, store, database):
        with running(database, closed=True) as closed:
            text = html(closed, "/", 401)
            said = plain(text[text.index("<main") :])
            assert said.index("Sign in with a token") < said.index("Authorization")
            secret = store.tokens.create("r", READER, None)[1]
            until(lambda: closed.get("/v1/misses", secret)[0] == 200)
            mine = {"Cookie": f"autotune_token={secret}"}
            assert '<a href="/session/end">Sign out</a>' in html(closed, "/", **mine)
            status, headers, _ = closed.raw("GET", "/session/end", **mine)
            assert status == 303
            assert "Max-Age=0" in headers["set-cookie"]
