"""Results, jobs, pins and roll-backs over HTTP."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from autotune.answering.push import result_to_data
from autotune.domain.codec import to_data
from autotune.domain.job import Ability, Progress, Request, State
from autotune.domain.outcome import Illegal
from autotune.domain.record import Trial
from autotune.domain.store import KeyResult
from tests.samples.database import latest_snapshot
from tests.samples.matching import SPEC, question, record
from tests.servers.service import until

LACKING = {"dims": {"m": 1}, "dtype": "bfloat16"}
ABLE = Ability(kernels={"mm": "f00d"}, toolchain=question().toolchain)


def body(*records, trials=(), **changes):
    results = [result_to_data(KeyResult(record=record, trials=trials)) for record in records]
    return {"kernels": [to_data(SPEC)], "results": results, **changes}


def changed(**parts):
    return {"config": replace(record().config, **parts)}


def of_problem(**parts):
    return {"key": replace(question(), problem=replace(question().problem, **parts))}


def trial(number, bm):
    config = replace(record().config, axes=(("bm", bm), ("unroll", True)))
    outcome = Illegal(reason="no")
    return Trial(
        number=number, config=config, outcome=outcome, seconds=1.5, created_at=record().created_at
    )


class TestResults:
    def test_they_are_published_at_once(self, service, store, writer):
        pushed = body(record(question(512)), trials=(trial(0, 8), trial(1, 16)))
        status, answer = service.post("/v1/results", pushed, writer)
        assert (status, answer) == (
            200,
            {"records": 1, "trials": 2, "lost": 0, "snapshot": 3, "trusted": True},
        )
        snapshot, (answer,) = service.lookup(question(512))
        assert (snapshot, answer["match"], answer["record"]["pushed_by"]) == (3, "exact", "ci")
        assert store.trials(question(512), pushed=True)[1] == replace(trial(1, 16), pushed_by="ci")
        again = service.post("/v1/results", pushed, writer)[1]
        assert again == {"records": 0, "trials": 0, "lost": 0, "snapshot": 3, "trusted": True}

    def test_what_older_clients_say_of_the_space_is_taken_and_left(self, service, writer):
        result = result_to_data(KeyResult(record=record(question(512))))
        result["refusals"] = {"values": [["bm", [8]]], "reasons": [], "cells": []}
        status, answer = service.post("/v1/results", {**body(), "results": [result]}, writer)
        assert (status, answer["records"]) == (200, 1)

    BAD: ClassVar[dict[str, tuple[dict[str, Any], str]]] = {
        "not verified": ({"verified": False, "verification": "no TPU"}, "not verified: no TPU"),
        "slower than the default": (
            {"default": replace(record().default, time_us=5.0)},
            "slower than the default",
        ),
        "not the default": ({"is_default": True}, "called the default"),
        "in the future": ({"created_at": datetime.now(UTC) + timedelta(days=2)}, "yet to come"),
        "other axes": (changed(axes=(("x", 1),)), "bm, unroll"),
        "other grid": (changed(grid_order=("q",)), "grid order"),
        "a negative block": ({"config": record(bm=-9).config}, "axis bm is a block size"),
        "a block above its dimension": ({"config": record(bm=1024).config}, "from 1 to 512"),
        "HTML as a block": (
            changed(axes=(("bm", "<b>1</b>"), ("unroll", True))),
            "axis bm is a block size",
        ),
        "another type": (
            changed(axes=(("bm", 128), ("unroll", "yes"))),
            "axis unroll must be of the type bool",
        ),
        "no semantics": (changed(dimension_semantics=("maybe",)), "must be parallel or arbitrary"),
        "a limit beyond every chip": (
            changed(vmem_limit_bytes=(128 << 20) + 1),
            "VMEM limit must be from 1",
        ),
        "too many semantics": (
            changed(dimension_semantics=("parallel",) * 2),
            "as many dimension semantics",
        ),
        "a limit of one byte": (changed(vmem_limit_bytes=1), "more VMEM"),
        "the default's own config": ({"config": record().default.config}, "the default's config"),
        "over VMEM": ({"estimate": replace(record().estimate, vmem_used_bytes=251)}, "more VMEM"),
        "another kernel": ({"key": question(kernel="other")}, "no description of other"),
        "another dtype": ({"key": question(dtype="int8")}, "dtype int8 is not supported"),
        "another option": (of_problem(options=()), "lacks the options causal"),
        "another value": ({"key": question(causal=7)}, "option causal"),
        "another dimension": (of_problem(dims=(("z", 1),)), "unknown dimension 'z'"),
    }

    @pytest.mark.parametrize("name", BAD)
    def test_what_cannot_be_true_is_refused_as_a_whole(self, service, store, writer, name):
        changes, says = self.BAD[name]
        bad = replace(record(question(512)), **changes)
        status, answer = service.post("/v1/results", body(record(question(256)), bad), writer)
        assert (status, answer["error"]["code"]) == (422, "contradiction")
        assert says in answer["error"]["message"]
        assert answer["error"]["field"] == "results[1]"
        assert latest_snapshot(store) == 2

    def test_a_trial_whose_config_cannot_be_is_refused_too(self, service, writer):
        pushed = body(record(question(512)), trials=(trial(0, bm=-9),))
        status, answer = service.post("/v1/results", pushed, writer)
        assert (status, answer["error"]["code"]) == (422, "contradiction")
        assert "axis bm is a block size" in answer["error"]["message"]

    @pytest.mark.parametrize(
        "path, value",
        [
            (("key", "chip"), "h100"),
            (("key", "kernel"), "../../etc/passwd"),
            (("key", "kernel"), "a' OR 1=1"),
            (("key", "problem", "dims", "m"), 0),
            (("key", "problem", "dims", "m"), 2**31),
            (("key", "problem", "dims", "m"), True),
            (("estimate", "time_us"), 0),
            (("estimate", "time_us"), 1e13),
            (("default", "time_us"), 0),
            (("config", "vmem_limit_bytes"), -1),
            (("config", "axes", "bm"), 10**400),
            (("config", "axes", "bm"), {"__class__": "x"}),
            (("created_at",), "yesterday"),
            (("created_at",), "0001-01-01T00:00:00+14:00"),
            (("method",), "guessed"),
            (("reason",), "x" * 100_001),
            (("extra",), 1),
        ],
        ids=str,
    )
    def test_every_field_is_checked(self, service, store, writer, path, value):
        pushed = body(record(question(512)))
        place = pushed["results"][0]["record"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        status, answer = service.post("/v1/results", pushed, writer)
        assert (status, answer["error"]["code"]) == (422, "invalid_field")
        assert answer["error"]["field"] == ".".join(("results[0].record", *path))
        assert latest_snapshot(store) == 2


class TestJobs:
    def ask(self, **changes):
        key = question(512)
        return {"kernel": "mm", "problem": to_data(key.problem), "chip": "v5e", **changes}

    def test_from_asking_to_done(self, service, store, writer):
        status, made = service.post("/v1/jobs", self.ask(trials=7), writer)
        assert (status, made["state"], made["created_by"]) == (201, "queued", "ci")
        assert service.post("/v1/jobs", self.ask(trials=7), writer) == (200, made)
        mine = store.jobs.claim("w1", ABLE, 60)
        assert mine is not None and mine.request.trials == 7
        assert mine.request.problem == question(512).problem
        store.jobs.heartbeat(mine, Progress(done=3, goal=7, best_us=1.5, note="compiling"))
        answer = service.get(f"/v1/jobs/{made['number']}")[1]
        assert (answer["state"], answer["worker"]) == ("running", "w1")
        assert answer["progress"]["done"] == 3
        store.jobs.finish(mine, State.DONE, "faster")
        (done,) = service.get("/v1/jobs?state=done")[1]["jobs"]
        assert done["message"] == "faster"
        assert service.get("/v1/jobs?state=queued")[1]["jobs"] == []
        number = service.post("/v1/jobs", self.ask(), writer)[1]["number"]
        status, answer = service.post(f"/v1/jobs/{number}/cancel", token=writer)
        assert (status, answer["state"]) == (200, "cancelled")

    @pytest.mark.parametrize("options", ["junk", "--flagfile=/etc/passwd", "--fromenv=HOME"])
    def test_options_that_are_none_reach_no_worker(self, service, writer, options):
        versions = {**to_data(question().toolchain), "options": options}
        status, answer = service.post("/v1/jobs", self.ask(toolchain=versions), writer)
        assert (status, answer["error"]["code"]) == (422, "invalid_field")
        assert service.get("/v1/jobs")[1]["jobs"] == []

    def test_from_a_miss_with_one_call(self, service, store, writer):
        service.lookup(question(2048), question(9, 9))
        until(lambda: len(service.get("/v1/misses")[1]["misses"]) == 2)
        listed = {miss["answer"]: miss for miss in service.get("/v1/misses")[1]["misses"]}
        assert set(listed) == {"nearest", "default"}
        status, answer = service.post("/v1/jobs", {"miss": 99}, writer)
        assert (status, answer["error"]["code"]) == (404, "unknown_miss")
        asked_for = {"miss": listed["nearest"]["number"]}
        assert service.post("/v1/jobs", asked_for, writer)[0] == 201
        mine = store.jobs.claim("w1", ABLE, 60)
        for part in ("problem", "chip", "toolchain", "fingerprint"):
            assert getattr(mine.request, part) == getattr(question(2048), part)

    @pytest.mark.parametrize(
        "changes, status, code, field",
        [
            ({"kernel": "nope"}, 404, "unknown_kernel", "kernel"),
            ({"kernel": None}, 422, "missing_field", "kernel"),
            ({"kernel": "/tmp/x.py:K"}, 422, "invalid_field", "kernel"),
            ({"fingerprint": "beef"}, 404, "unknown_kernel", "kernel"),
            ({"chip": "h100"}, 422, "invalid_field", "chip"),
            ({"problem": None}, 422, "missing_field", "problem"),
            ({"problem": LACKING}, 422, "invalid_problem", "problem"),
            ({"trials": 0}, 422, "invalid_field", "trials"),
            ({"miss": 99}, 422, "invalid_field", "miss"),
            ({"command": "rm"}, 422, "invalid_field", "command"),
        ],
    )
    def test_what_cannot_be_asked_for(self, service, writer, changes, status, code, field):
        answered, data = service.post("/v1/jobs", self.ask(**changes), writer)
        assert (answered, data["error"]["code"], data["error"]["field"]) == (status, code, field)

    @pytest.mark.parametrize(
        "path", ["/v1/jobs/99", "/v1/jobs/0", f"/v1/jobs/{2**70}", "/v1/jobs/x"]
    )
    def test_no_such_job(self, service, path):
        assert service.get(path)[0] in (404, 422)


class TestFleet:
    def test_pin_and_roll_back(self, service, store, admin):
        store.save_record(record(question(1024), 128))
        until(lambda: service.lookup(question(1024))[0] == 3)
        assert block(service) == 128
        listed = service.get("/v1/records?kernel=mm&chip=v5e")[1]["records"]
        assert [entry["number"] for entry in listed] == [3, 2, 1]
        assert service.post("/v1/records/1/pin", token=admin) == (200, {"snapshot": 4})
        assert block(service) == 256
        assert service.post("/v1/records/1/unpin", token=admin) == (200, {"snapshot": 5})
        assert block(service) == 128
        assert service.post("/v1/snapshots/1/rollback", token=admin) == (200, {"snapshot": 6})
        assert block(service) == 256
        assert service.lookup(question(4096, 256))[1][0]["match"] == "default"
        assert service.lookup(question(4096, 256), snapshot=5)[1][0]["match"] == "exact"
        made = service.get("/v1/snapshots")[1]["snapshots"][0]
        assert (made["note"], made["made_by"]) == ("rolled back to snapshot 1", "boss")

    @pytest.mark.parametrize("path", ["/v1/records/99/pin", "/v1/snapshots/99/rollback"])
    def test_what_is_not_there(self, service, admin, path):
        assert service.post(path, token=admin)[0] == 404


def block(service):
    return int(service.lookup(question(1024))[1][0]["config"]["axes"]["bm"])


class TestAudit:
    def test_every_write_says_whose_it_is_and_what_changed(self, service, store, writer, admin):
        service.post("/v1/results", body(record(question(512))), writer)
        service.post("/v1/results", body(record(question(512))), writer)  # changes nothing
        service.post("/v1/records/1/pin", {}, admin)
        service.post("/v1/records/99/pin", {}, admin)
        pin, push, *before = store.audit.entries()
        said = f"records: 1, trials: 0, snapshot 3: {question(512)}"
        assert (push.action, push.change) == ("push", said)
        assert (push.author.name, push.author.token, push.author.address) == ("ci", 1, "127.0.0.1")
        assert (pin.author.name, pin.change) == ("boss", f"pinned record 1, {question(1024)}: 4")
        assert {entry.action for entry in before} == {"publish", "token"}
        assert {entry.author.token for entry in before} == {None}

    def test_pages_of_it_over_http(self, service, store, admin):
        for number in range(3):
            store.pin(1 + number % 2)
        assert service.get("/v1/audit")[0] == 401
        until(lambda: service.get("/v1/audit", admin)[0] == 200)
        numbers, cursor = [], ""
        while cursor is not None:
            page = service.get(f"/v1/audit?limit=2{cursor and '&cursor='}{cursor}", admin)[1]
            numbers += [entry["number"] for entry in page["entries"]]
            cursor = page["next"]
        assert numbers == [entry.number for entry in store.audit.entries()]

    def test_only_administrators_see_the_page(self, service, writer, admin):
        def status(**headers):
            return service.raw("GET", "/audit", **headers)[0]

        assert status() == 401
        until(lambda: status(Authorization=f"Bearer {writer}") == 403)
        until(lambda: status(Authorization=f"Bearer {admin}") == 200)
        page = service.raw("GET", "/audit", Authorization=f"Bearer {admin}")[2].decode()
        assert "made token 1, ci, writer" in page and writer not in page


class TestPages:
    """Cursors: each page begins behind the one before, and together they are all."""

    def numbers(self, service, path, name):
        numbers = []
        cursor = ""
        while cursor is not None:
            page = service.get(f"{path}?limit=2{cursor and f'&cursor={cursor}'}")[1]
            assert len(page[name]) <= 2 and len(numbers) < 10  # it ends
            numbers += [entry["number"] for entry in page[name]]
            cursor = page["next"]
        return numbers

    def test_records_snapshots_and_jobs(self, service, store):
        for number in range(3):
            store.save_record(record(question(512 * (number + 1)), 64))
            problem = question(64 * (number + 1)).problem
            store.jobs.add(Request(kernel="mm", problem=problem, chip=question().chip))
        for name in ("records", "snapshots"):
            assert self.numbers(service, f"/v1/{name}", name) == [5, 4, 3, 2, 1]
        assert self.numbers(service, "/v1/jobs", "jobs") == [3, 2, 1]

    def test_misses_that_come_and_go_meanwhile_shift_nothing(self, service, store):
        """What was there all the time is seen once, in its order."""
        store.save_misses({(question(8 * n), "default"): 10 - n for n in range(1, 7)})
        numbers = [miss.number for miss in store.misses()]
        first = service.get("/v1/misses?limit=3")[1]
        store.save_misses({(question(8 * n), "default"): 90 for n in range(20, 25)})  # before it
        store.save_record(record(question(8), 8))  # of the first page: it is missed no more
        second = service.get(f"/v1/misses?limit=3&cursor={first['next']}")[1]
        seen = [miss["number"] for page in (first, second) for miss in page["misses"]]
        assert (seen, second["next"]) == (numbers, None)
