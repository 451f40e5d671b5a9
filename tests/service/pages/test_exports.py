"""The tables to take away, and the scripts and styles that pages need."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest

import autotune_service.pages
from autotune import wording
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Illegal
from autotune.domain.profile import Cause
from tests.samples.dashboard import OUTCOMES, html, trial
from tests.samples.matching import question
from tests.samples.records import save_trial

# --- exports ------------------------------------------------------------------------------------


def test_trials_as_csv_and_json(service):
    _, headers, body = service.raw("GET", "/export/keys/1/trials.csv")
    lines = body.decode().splitlines()
    assert headers["content-disposition"] == 'attachment; filename="trials.csv"'
    assert lines[0].startswith("trial,number,config,outcome,reason,estimated_us,error")
    assert len(lines) == 1 + len(OUTCOMES)
    trials = service.get("/export/keys/1/trials.json")[1]
    assert [trial["outcome"]["kind"] for trial in trials] == [o.kind for o in OUTCOMES]
    crashed = service.get("/export/keys/1/trials.json?kind=crashed")[1]
    assert [trial["number"] for trial in crashed] == [7]


def test_the_same_configs_under_each_toolchain(service):
    trials = service.get("/export/toolchains/1.json")[1]
    outcomes = {(line["key"], line["number"]): line["outcome"] for line in trials}
    assert outcomes[2, 2] == "compile failed"
    assert {line["jax"] for line in trials} == {"0.10.2", "0.12.0"}
    assert service.get("/export/toolchains/99.csv")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/export/coverage",
        "/export/misses",
        "/export/kernel",
        "/export/keys/3/trials",
        "/export/jobs",
        "/export/toolchains/1",
    ],
)
def test_every_table_can_be_taken_away(service, path):
    query = "?name=mm" if path.endswith("kernel") else ""
    rows = service.get(f"{path}.json{query}")[1]
    assert rows
    text = service.raw("GET", f"{path}.csv{query}")[2].decode()
    assert text.count("\r\n") > len(rows)
    assert service.raw("GET", f"{path}.xml{query}")[0] == 404


def test_every_export_of_a_page_is_there(service):
    for page in ("/", "/misses", "/kernels/mm", "/keys/1", "/toolchains/1", "/trials/1"):
        links = re.findall(r'href="(/export/[^"]+)"', html(service, page))
        assert links
        for path in links:
            assert service.raw("GET", path.replace("&amp;", "&"))[0] == 200, path


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("jobs", "state=quued"),
        ("toolchains/1", "kind=crashed"),
        ("upgrades", "verdict=brokne"),
        ("kernel", "name=mm&chip=v9"),
        ("kernel", "order=slowest"),
        ("kernel", "name=mm&name=mx"),
        ("keys/1/trials", "kind=crahsed"),
        ("keys/1/trials", "is.bm=77"),
        ("misses", "order=chips"),
        ("trials/7", "kind=crashed"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused(service, path, given):
    """In a file nobody sees a note: the whole table would be taken for what was asked for."""
    status, answer = service.get(f"/export/{path}.json?{given}")
    assert (status, answer["error"]["code"]) == (422, "invalid_field")
    assert answer["error"]["field"] == given.rpartition("&")[2].partition("=")[0]


def test_a_file_has_what_its_page_lists(service):
    """With its filters, in its order."""
    trials = service.get("/export/keys/1/trials.json?is.unroll=1&order=-time")[1]
    page = html(service, "/keys/1?is.unroll=1&order=-time")
    assert [t["trial"] for t in trials] == [
        int(number) for number in re.findall(r'name="trial" value="(\d+)"', page)
    ]
    assert 0 < len(trials) < len(OUTCOMES)
    assert 'href="/export/keys/1/trials.csv?is.unroll=1&amp;order=-time"' in page
    assert service.get("/export/jobs.json?state=failed")[1] == []
    covered = service.get("/export/coverage.json?toolchain=0.12.0,0.12.0,0.0.42")[1]
    assert {line["jax"] for line in covered} == {"0.12.0"}


def test_a_spreadsheet_gets_no_formula(fresh, store):
    save_trial(store, question(), trial(40, Illegal(reason="=cmd|' /C calc'!A0")))
    text = fresh.raw("GET", "/export/keys/1/trials.csv?kind=illegal")[2].decode()
    assert ",'=cmd|" in text


def test_one_trial_as_json(service):
    answer = service.get("/export/trials/7.json")[1]
    assert answer["outcome"]["message"].endswith("second line")
    listed = service.get("/export/keys/1/trials.json")[1][6]
    assert answer.pop("key")["kernel"] == "mm"
    assert answer == listed
    assert "finished_at" in answer and "created_at" not in answer
    assert service.get("/export/trials/99.json")[0] == 404


# --- scripts and styles -------------------------------------------------------------------------


def test_plotly_is_served_compressed_and_kept_for_ever(service):
    path = re.search(r"/static/\w+/plotly-cartesian\.min\.js", html(service, "/keys/1"))
    status, headers, body = service.raw("GET", path[0], **{"Accept-Encoding": "gzip"})
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert gzip.decompress(body).startswith(b"/**\n* plotly.js")
    assert service.raw("GET", path[0], **{"If-None-Match": headers["etag"]})[0] == 304
    stale = service.raw("GET", "/static/0/plotly-cartesian.min.js")[1]
    assert stale["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["none.js", "..%2fpages.py", "pages.py"])
def test_no_other_file_is_served(service, name):
    assert service.raw("GET", f"/static/0/{name}")[0] == 404


STATIC = Path(autotune_service.pages.__file__).parent / "static"


def test_each_part_of_a_time_has_a_colour():
    page, profile = STATIC / "dashboard.css", Path(wording.__file__).parent / "profile.css"
    for number in range(len(PARTS)):
        assert f".part{number} {{" in page.read_text()
    for cause in Cause:
        assert f".autotune-profile .{cause.replace(' ', '-')}" in profile.read_text()


@pytest.mark.parametrize(
    ("name", "licence"), [("swagger-ui", "Apache License"), ("plotly", "MIT License")]
)
def test_files_of_others_are_as_they_were_published(name, licence):
    folder = STATIC / name
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    for file, digest in sums.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
    assert set(sums) == {file.name for file in folder.iterdir()} - {"SHA256SUMS"}
    assert licence in (folder / "LICENSE").read_text()


@pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "swagger-ui.css", "docs.js"])
def test_the_page_loads_nothing_from_elsewhere(service, name):
    status, headers, page = service.raw("GET", "/docs")
    assert status == 200 and "script-src 'self'" in headers["content-security-policy"]
    (address,) = (
        part for part in page.decode().split('"') if part.endswith(name) and "/static/" in part
    )
    assert address.startswith("/static/") and service.raw("GET", address)[0] == 200
