"""Work that a caller can have done as often as they like: little at a time, and a bound in all."""

import copy
import json
from dataclasses import replace

import pytest

from autotune.answering.http import Remote
from autotune.answering.push import RemoteJobs
from autotune.domain.codec import to_data
from autotune.domain.job import Ability, Request, State
from autotune_db import open_store, query
from tests.samples.matching import SPEC, question, record
from tests.servers.service import running
from tests.service.test_writing_routes import body, trial


@pytest.fixture
def local(tmp_path):
    """A worker's own database."""
    with open_store(str(tmp_path / "local.db"), create=True) as opened:
        opened.save_kernel(SPEC)
        yield opened


def test_nobody_describes_kernels_without_end(service, store, writer, monkeypatch, caplog):
    monkeypatch.setattr(query, "MOST_KERNELS", 5)
    versions = {"jax": "1", "jaxlib": "1", "libtpu": "1"}
    for start in range(0, 20, 4):
        names = [f"made_up_{start + number}" for number in range(4)]
        kernels = [to_data(replace(SPEC, name=name)) for name in names]
        asked = {"worker": "w", "kernels": kernels, "toolchain": versions, "lease_s": 60}
        status, said = service.post("/v1/claims", asked, writer)
        assert status == 200, said
    assert len(store.kernels()) == 5
    assert "kernels are not described" in caplog.text


@pytest.mark.parametrize("lease_s", ["60", True, "inf", None, [60], 0.5, 3601])
def test_a_lease_is_a_number_of_seconds(service, writer, lease_s):
    claim = {"kernels": [], "toolchain": to_data(question(7).toolchain), "worker": "a"}
    status, said = service.post("/v1/claims", claim | {"lease_s": lease_s}, writer)
    assert (status, said["error"]["field"]) == (422, "lease_s")


@pytest.mark.parametrize("report", ["heartbeat", "finish", "give-back", "log"])
@pytest.mark.parametrize("secret", ["", "guessed"])
def test_a_colleague_with_the_same_token_reports_nothing_of_another_workers_job(
    service, store, local, writer, report, secret
):
    store.jobs.add(Request(kernel=SPEC.name, problem=question(7).problem, chip=question(7).chip))
    remote = Remote(service.url, 30.0, writer)
    able = Ability(kernels={SPEC.name: SPEC.fingerprint}, toolchain=question(7).toolchain)
    mine = RemoteJobs(remote, local).claim("a", able, 60.0)
    said = {
        "heartbeat": {"progress": {}},
        "finish": {"state": "failed", "message": "no"},
        "give-back": {"message": "", "counts": True},
        "log": {"text": "it was me"},
    }[report]
    whose = {"worker": mine.worker, "attempt": mine.attempt}
    shown = service.raw("GET", f"/v1/jobs/{mine.number}")[2] + service.raw("GET", "/v1/jobs")[2]
    assert mine.claim.encode() not in shown and b"claim" not in shown
    headers = {"Autotune-Claim": secret} if secret else {}
    path = f"/v1/jobs/{mine.number}/{report}"
    answer = remote.call("POST", path, json.dumps(whose | said).encode(), **headers)
    assert json.loads(answer) == {"holds": False}
    job = store.jobs.get(mine.number)
    assert job is not None and (job.state, job.attempt) == (State.RUNNING, 1)


def test_a_job_is_not_done_by_a_word(service, store, writer):
    """Nor failed without one. A worker of yesterday sends no claim."""
    store.jobs.add(Request(kernel=SPEC.name, problem=question(7).problem, chip=question(7).chip))
    claim = {"kernels": [to_data(SPEC)], "toolchain": to_data(question(7).toolchain)}
    service.post("/v1/results", body(record(question(9))), writer)  # of another problem
    job = service.post("/v1/claims", claim | {"worker": "a"}, writer)[1]["job"]
    end = {"worker": job["worker"], "attempt": 1, "state": "done", "message": "twice as fast"}
    path = f"/v1/jobs/{job['number']}/finish"
    for state, code in (("done", "no_record"), ("failed", "no_reason")):
        status, answer = service.post(path, end | {"state": state, "message": " "}, writer)
        assert (status, answer["error"]["code"]) == (422, code)
    assert service.post("/v1/results", body(record(question(7))), writer)[0] == 200
    assert service.post(path, end, writer) == (200, {"holds": True})


@pytest.mark.parametrize("when", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_at_the_end_of_the_calendar_is_refused(service, writer, when):
    pushed = body(record(question(7)), trials=(trial(1, 8),))
    for part in ("record", "trial"):
        sent = copy.deepcopy(pushed)
        (result,) = sent["results"]
        changed = result["record"] if part == "record" else result["trials"][0]
        changed["created_at"] = when
        status, answer = service.post("/v1/results", sent, writer)
        assert status == 422, answer
        assert answer["error"]["field"].endswith("created_at")


@pytest.mark.parametrize("recheck", [False, True])
def test_nor_by_a_push(store, database, writer, monkeypatch, recheck):
    monkeypatch.setattr(query, "MOST_KERNELS", 2)
    others = [to_data(replace(SPEC, name=f"made_up_{number}")) for number in range(2)]
    with running(database, recheck=recheck) as service:
        assert service.post("/v1/results", body(record(question(7))), writer)[0] == 200
        pushed = body(record(question(9))) | {"kernels": [to_data(SPEC), *others]}
        status, answer = service.post("/v1/results", pushed, writer)
        assert (status, answer["error"]["field"]) == (422, "kernels")
        assert "2 kernels are described there" in answer["error"]["message"]
    assert len(store.kernels()) == 1 and question(9) not in {
        record.key for record in store.records()
    }
