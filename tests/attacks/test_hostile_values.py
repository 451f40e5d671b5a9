"""Descriptions of kernels, rows and bundles that somebody has made up: others are answered as
before, and what cannot be read costs itself."""

import gzip
import html
import json
import re
import shlex
from dataclasses import replace

import pytest

from autotune.answering.bundle import bundle_from_bytes, bundle_to_bytes, new_bundle
from autotune.answering.sources import BundleAnswers
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import Request
from tests.samples.database import by_hand
from tests.samples.matching import SPEC, older, question, record
from tests.servers.service import asked, running
from tests.service.test_writing_routes import body

OTHER = replace(SPEC, fingerprint="0dd")
OTHER_DIMS = replace(OTHER, problems=replace(SPEC.problems, dims=("q",)), cuts=(("bm", "q"),))
JOB = {"kernel": "mm", "chip": "v5e", "problem": to_data(question(2048).problem)}


def pushed(spec, **problem):
    key = replace(question(), kernel=spec.name, fingerprint=spec.fingerprint)
    key = replace(key, problem=replace(key.problem, **problem))
    return body(record(key)) | {"kernels": [to_data(spec)]}


@pytest.mark.parametrize("spec", [OTHER, OTHER_DIMS], ids=["same problem", "another"])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_claimed_version_does_not_hide_a_proven_one(store, database, writer, spec, trusted):
    """Where a question names no version."""
    dims = tuple((name, 1024 if name != "k" else 128) for name in spec.problems.dims)
    with running(database, trust_writers=trusted) as service:
        said = service.post("/v1/results", pushed(spec, dims=dims), writer)
        assert (said[0], said[1]["records"]) == (200, 1), said
        question_of_any = asked(question(), fingerprint=None)
        call = {"questions": [question_of_any], "accept_claimed": True}
        (answer,) = service.post("/v1/lookup", call)[1]["answers"]
        assert (answer["match"], answer["standing"]) == ("exact", "proven"), answer


def test_what_was_never_proven_has_its_newest_claim(service, writer):
    for version in ("1", "2"):
        spec = replace(SPEC, name="own", fingerprint=version)
        assert service.post("/v1/results", pushed(spec), writer)[0] == 200
    call = {"questions": [asked(replace(question(), kernel="own"), fingerprint=None)]}
    (answer,) = service.post("/v1/lookup", call)[1]["answers"]
    assert answer["record"]["key"]["fingerprint"] == "2"


def test_who_describes_another_version_takes_no_job_from_others(service, writer):
    claim = {"worker": "w", "toolchain": to_data(question().toolchain)}
    service.post("/v1/claims", claim | {"kernels": [to_data(OTHER_DIMS)]}, writer)
    status, job = service.post("/v1/jobs", JOB, writer)
    assert (status, job["request"]["problem"]) == (201, JOB["problem"])
    own = JOB | {"problem": {"dims": {"q": 8}, "dtype": "bfloat16", "options": {}}}
    assert service.post("/v1/jobs", own, writer)[0] == 201
    unknown = JOB | {"problem": {"dims": {"z": 8}, "dtype": "bfloat16", "options": {}}}
    assert service.post("/v1/jobs", unknown, writer)[0] == 422
    assert service.post("/v1/jobs", JOB | {"fingerprint": "0dd"}, writer)[0] == 422


DAMAGE = {
    "a text for a number": (
        "UPDATE autotune_records SET evidence = "
        """replace(evidence, '"vmem_used_bytes":100', '"vmem_used_bytes":"x"') WHERE id = 1"""
    ),
    "a text for a count": "UPDATE autotune_records SET trials = 'x' WHERE id = 1",
    "bytes for a name": "UPDATE autotune_keys SET kernel = x'ff00' WHERE id = 1",
    "a progress in words": """UPDATE autotune_jobs SET progress = '{"done":"all"}'""",
    "a version of 5,000 digits": f"UPDATE autotune_keys SET jax = '{'9' * 5_000}' WHERE id = 1",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
def test_a_value_of_another_type_costs_its_row(store, database, statement):
    store.jobs.add(Request(kernel=SPEC.name, problem=question(7).problem, chip=question(7).chip))
    assert by_hand(database, statement) == 1
    with running(database) as service:
        keys = question(2048), question(1024, jax="0.11")
        assert all("match" in answer for answer in service.lookup(*keys)[1])
        for path in ("/", "/problems", "/jobs", "/v1/records", "/v1/jobs", "/export/kernel.csv"):
            assert service.raw("GET", path)[0] == 200, path


def bundle(**changes):
    """Of two records of one problem; ``changes`` are of the data of the second."""
    records = [record(), older(record(), "0.9.0")]
    data = json.loads(gzip.decompress(bundle_to_bytes(new_bundle(records, 3, [SPEC]))))
    data["records"][1] |= changes
    return gzip.compress(json.dumps(data).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"created_at": "2026-01-01T00:00:00"},
        {"trials": "x"},
        {"estimate": {**to_data(record().estimate), "time_us": [1]}},
        {"estimate": {**to_data(record().estimate), "vmem_used_bytes": "x"}},
    ],
    ids=["no zone", "count", "time", "bytes"],
)
def test_a_bundle_with_a_value_of_another_type_is_refused(changes):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        bundle_from_bytes(bundle(**changes))


def test_a_bundle_with_a_version_that_is_none_is_answered_from(tmp_path):
    key = to_data(record().key)
    key["toolchain"]["jax"] = "9" * 5_000
    (tmp_path / "x.bundle").write_bytes(bundle(key=key))
    match = BundleAnswers(tmp_path / "x.bundle").match(question(1024, jax="0.11"))
    assert match.kind == "toolchain" and match.record is not None
    assert match.record.key.toolchain.jax == "0.10.2"


def test_what_a_kernels_author_writes_runs_in_no_page_or_shell(service, writer):
    evil = "\"><script>alert(1)</script>';touch x;'$(touch y)`touch z`"
    option = replace(SPEC.problems.options[0], name="o", choices=(), default=evil)
    spec = replace(SPEC, name="evil", problems=replace(SPEC.problems, options=(option,)))
    assert service.post("/v1/results", pushed(spec, options=(("o", evil),)), writer)[0] == 200
    job = JOB | {"kernel": "evil", "problem": {"dims": {"m": 8, "k": 8}, "dtype": "bfloat16"}}
    job["problem"]["options"] = {"o": evil}
    assert service.post("/v1/jobs", job, writer)[0] == 201
    commands = []
    for path in ("/", "/problems", "/kernels/evil", "/keys/3", "/jobs", "/jobs/1"):
        status, _, page = service.raw("GET", path)
        assert status == 200 and b"<script>alert" not in page, path
        found = re.findall(r"autotune search [^<]*(?=</code>)", page.decode())
        commands += [shlex.split(html.unescape(command)) for command in found]
    assert any(evil in word for command in commands for word in command)
    assert not any(word.startswith(("touch", "$(")) for command in commands for word in command)
