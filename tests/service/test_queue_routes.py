"""Workers that take jobs over HTTP, and send what they find."""

from dataclasses import replace

import pytest

from autotune.answering.http import Remote
from autotune.answering.push import RemoteJobs
from autotune.domain.errors import ServiceError, StoreError
from autotune.domain.job import MOST_LOG, Ability, Progress, Request, State
from autotune.domain.token import READER, WRITER
from autotune_db import open_store
from tests.samples.matching import SPEC, question, record

ABLE = Ability(kernels={SPEC.name: SPEC.fingerprint}, toolchain=question().toolchain)
LEASE_S = 30.0


def wanted(m):
    key = question(m)
    return Request(kernel=key.kernel, problem=key.problem, chip=key.chip, trials=3)


@pytest.fixture
def local(tmp_path):
    """The worker's own database."""
    with open_store(str(tmp_path / "local.db"), create=True) as store:
        store.save_kernel(SPEC)
        yield store


@pytest.fixture
def jobs(service, local, writer):
    return RemoteJobs(Remote(service.url, 30.0, writer), local)


def claimed(jobs, worker="w-1", lease_s=LEASE_S):
    job = jobs.claim(worker, ABLE, lease_s)
    assert job is not None
    return job


def test_no_job_is_done_without_what_it_found(store, local, jobs):
    store.jobs.add(wanted(512))
    job = claimed(jobs)
    with pytest.raises(StoreError, match="no record"):
        jobs.finish(job, State.DONE, "")
    local.save_record(replace(record(question(512)), verified=False, verification="no TPU"))
    with pytest.raises(ServiceError, match="not verified"):
        jobs.finish(job, State.DONE, "")
    assert jobs.finish(job, State.FAILED, "nothing was right")
    assert store.jobs.counts() == {"failed": 1}


def test_a_job_is_that_of_the_token_that_claimed_it(service, store, local, jobs):
    store.jobs.add(wanted(512))
    job = claimed(jobs)
    stranger = store.tokens.create("stranger", WRITER, None)[1]
    others = RemoteJobs(Remote(service.url, 30.0, stranger), local)
    with pytest.raises(ServiceError, match="no worker with the token stranger") as refused:
        others.finish(job, State.FAILED, "")
    assert refused.value.status == 403
    with pytest.raises(StoreError, match="no worker with the token stranger"):
        others.write_log(job, "it was me")
    assert service.get(f"/v1/jobs/{job.number}/log")[1] == {"logs": []}
    assert jobs.heartbeat(job, Progress())


def test_what_ends_a_worker_and_what_it_waits_for(service, store, local):
    """A refusal ends it at its next claim; in the middle of a job the lease decides."""
    reader = store.tokens.create("r", READER, None)[1]
    refused = RemoteJobs(Remote(service.url, 30.0, reader), local)
    with pytest.raises(ServiceError, match="writer"):
        refused.claim("w", ABLE, LEASE_S)
    store.jobs.add(wanted(512))
    job = store.jobs.claim("r/w", ABLE, LEASE_S)
    assert job is not None
    with pytest.raises(StoreError):
        refused.heartbeat(job, Progress())
    nobody = RemoteJobs(Remote("http://127.0.0.1:9", 2.0, reader), local)
    with pytest.raises(StoreError, match="cannot be reached"):
        nobody.claim("w", ABLE, LEASE_S)


def test_an_unknown_job_and_a_log_without_an_end_are_refused(service, store, jobs, writer):
    ended = {"worker": "ci/w", "attempt": 1, "state": "done", "message": ""}
    status, answer = service.post("/v1/jobs/77/finish", ended, writer)
    assert (status, answer["error"]["code"]) == (404, "unknown_job")
    assert service.get("/v1/jobs/77/log")[0] == 404
    store.jobs.add(wanted(512))
    job = claimed(jobs)
    for size, refusal in ((MOST_LOG + 1, 422), (100_000_000, 413)):
        sent = {"worker": job.worker, "attempt": job.attempt, "text": "x" * size}
        assert service.post(f"/v1/jobs/{job.number}/log", sent, writer)[0] == refusal
    assert store.jobs.logs(job.number) == []
