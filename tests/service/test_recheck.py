"""What is pushed is claimed until a worker of the service has checked it."""

import json
from dataclasses import replace
from unittest import mock

import pytest

from autotune.cli.job_watch import JobWatch
from autotune.domain.job import Ability, Request, State
from autotune.domain.key import KernelRef
from autotune.domain.store import CandidateDecision, CandidateState, KeyResult, Rechecked
from autotune.publishing.jobs.worker import Worker
from autotune_db import candidates
from tests.fakes.compiler import FakeCompilers
from tests.samples.database import key_id, new_store
from tests.samples.matching import SPEC, question, record
from tests.servers.commands import autotune_here
from tests.servers.service import asked, running, until
from tests.service.test_checks_routes import check
from tests.service.test_writing_routes import body, trial


class SameToolchain(FakeCompilers):
    toolchain = question().toolchain


@pytest.fixture
def service(store, database):
    with running(database) as service:
        yield service


def check_all(store, decide):
    """A worker with the database, with ``decide`` in the place of compiling."""

    def recheck(_, given, ref, by):
        return decide(replace(given, checked_by=by))

    compilers, ref = SameToolchain(spec=SPEC), KernelRef(path="k.py", attribute="K")
    refs = {"mm": ref}
    worker = Worker(
        compilers, store, store.jobs, refs, name="own", watching=JobWatch, recheck=recheck
    )
    worker.run(drain=True)


def accepted(given):
    faster = replace(given, estimate=replace(given.estimate, time_us=5.0))
    decision = CandidateDecision(state=CandidateState.ACCEPTED)
    return Rechecked(decision=decision, check=check(), record=faster)


def decided(state, finding):
    decision = CandidateDecision(state=state, finding=finding)
    return lambda _: Rechecked(decision=decision, check=check())


def decision(store):
    """On the first candidate."""
    candidate = store.candidate(1)
    assert candidate is not None
    return candidate.decision


def answer(service):
    (match,) = service.lookup(question(512))[1]
    return match["match"], match["record"]


def test_a_candidate_is_not_handed_out(service, store, writer):
    pushed = body(record(question(512), 64))
    status, content = service.post("/v1/results", pushed, writer)
    waiting = {"records": 1, "trials": 0, "lost": 0, "snapshot": 3, "candidates": 1}
    assert (status, content) == (200, waiting)
    again = service.post("/v1/results", pushed, writer)[1]
    assert again == {**waiting, "records": 0}
    assert answer(service)[0] == "nearest"
    (newest, *_) = service.get("/v1/records")[1]["records"]
    assert (newest["standing"], newest["record"]["pushed_by"]) == ("claimed", "ci")
    (job,) = service.get("/v1/jobs")[1]["jobs"]
    assert job["state"] == "queued"
    candidate = store.candidate(job["request"]["candidate"])
    assert candidate is not None and candidate.record.pushed_by == "ci"
    assert candidate.decision == CandidateDecision(state=CandidateState.UNVERIFIED)


def test_what_its_worker_accepts_is_published_with_both_names(service, store, writer):
    service.post("/v1/results", body(record(question(512), 64)), writer)
    check_all(store, accepted)
    service.post("/v1/results", body(), writer)  # takes over what is newer
    match, stored = answer(service)
    assert match == "exact" and stored is not None
    assert (stored["pushed_by"], stored["checked_by"]) == ("ci", "own")
    assert stored["estimate"]["time_us"] == 5.0
    assert decision(store).state is CandidateState.ACCEPTED


def test_what_it_refuses_stays_away_however_often_it_comes(service, store, writer):
    pushed = body(record(question(512), 64))
    service.post("/v1/results", pushed, writer)
    check_all(store, decided(CandidateState.REFUSED, "out of VMEM"))
    service.post("/v1/results", pushed, writer)
    assert answer(service)[0] == "nearest"
    assert decision(store) == CandidateDecision(state=CandidateState.REFUSED, finding="out of VMEM")
    assert [job.state for job in store.jobs.list()] == [State.DONE]


def test_what_could_not_be_checked_is_checked_again_when_it_comes_again(service, store, writer):
    pushed = body(record(question(512), 64))
    service.post("/v1/results", pushed, writer)
    check_all(store, decided(CandidateState.UNVERIFIED, "timed out"))
    assert decision(store).finding == "timed out"
    service.post("/v1/results", pushed, writer)
    check_all(store, accepted)
    assert [job.state for job in store.jobs.list()] == [State.DONE, State.FAILED]
    assert store.record(question(512)) is not None


def test_the_command_says_what_waits_and_which_checks_are_not_taken(service, writer, tmp_path):
    here = str(tmp_path / "here.db")
    with new_store(here) as local:
        local.save_kernel(SPEC)
        for m in (512, 256):
            local.save_record(record(question(m), 64))
        local.save_check(check())
    ask = ("push", "--url", service.url, "--token", writer, "--db", here)
    done = autotune_here(*ask, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 records and 0 trials are new there; 0 there already" in done.stdout
    assert "2 records claimed: answers who accepts claims, until a worker" in done.stdout
    assert "left out: 1 check: " in done.stderr and "--trust-writers" in done.stderr
    done = autotune_here(*ask, "--json", cwd=tmp_path)
    assert (json.loads(done.stdout)["candidates"], done.returncode) == (2, 0)
    with new_store(here + "2") as local:
        local.save_kernel(SPEC)
        local.save_check(check())
    done = autotune_here(*ask[:-1], here + "2", cwd=tmp_path)
    assert done.returncode == 2 and "--trust-writers" in done.stderr


def test_claimed_and_proven_are_told_apart_wherever_records_are_shown(
    service, store, writer, tmp_path
):
    service.post("/v1/results", body(record(question(512), 64), trials=(trial(0, 8),)), writer)
    ask = {"questions": [asked(question(512)), asked(question(1024))], "accept_claimed": True}
    claimed, proven = service.post("/v1/lookup", ask)[1]["answers"]
    assert (claimed["standing"], proven["standing"]) == ("claimed", "proven")
    assert "not proven" in claimed["why"] and "claimed" not in proven["why"]
    until(lambda: b"autotune_claimed_records 1.0" in service.raw("GET", "/metrics")[2])
    for page in ("/kernels/mm", f"/keys/{key_id(store, question(512))}"):
        assert b">claimed</span>" in service.raw("GET", page)[2]
    history = autotune_here("history", "--db", store.url, "--json", cwd=tmp_path)
    assert [key["standing"] for key in json.loads(history.stdout)] == ["claimed"]
    trials = autotune_here("show", "1", "--db", store.url, cwd=tmp_path)
    assert "claimed, not proven" in trials.stdout
    check_all(store, accepted)
    history = autotune_here("history", "--db", store.url, "--json", cwd=tmp_path)
    assert [key["standing"] for key in json.loads(history.stdout)] == ["proven"]


@pytest.mark.parametrize("trusts", [False, True])
def test_serve_says_how_many_claims_nobody_is_answered_with(store, database, tmp_path, trusts):
    store.save_record(replace(record(question(512)), pushed_by="ci"))
    with mock.patch("uvicorn.run"):
        flags = ["--trust-writers"] * trusts
        done = autotune_here("serve", "--db", database, *flags, cwd=tmp_path)
    said = "1 key with claimed" in done.stderr and "--trust-writers" in done.stderr
    assert (done.returncode, said) == (0, not trusts)


def test_a_search_waits_for_no_check_and_old_claims_are_checked_by_and_by(store, monkeypatch):
    """Whoever pushes ten thousand records."""
    monkeypatch.setattr(candidates, "_AT_ONCE", 2)
    store.push([], [KeyResult(record=record(question(m))) for m in range(1, 6)], "ci")
    assert [store.check_claims() for _ in range(4)] == [2, 2, 1, 0]
    asked = question(512)
    job, _ = store.jobs.add(Request(kernel=SPEC.name, problem=asked.problem, chip=asked.chip))
    able = Ability(kernels={SPEC.name: SPEC.fingerprint}, toolchain=asked.toolchain, checks=True)
    taken = [store.jobs.claim(f"w{n}", able, 60) for n in range(2)]
    assert taken[0] is not None and taken[0].number == job.number
    assert taken[1] is not None and taken[1].request.candidate is not None
