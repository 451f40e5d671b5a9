"""Checks over HTTP: pushed, listed, and what lookups make of them."""

from dataclasses import replace

import pytest

from autotune.answering.client import ServiceAnswers
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip, Toolchain
from autotune.domain.outcome import Estimated, OutOfVmem
from autotune.domain.record import Check, CheckVerdict, RecordCheck, Unchecked
from autotune_db import open_store
from tests.samples.dashboard import EVIL
from tests.samples.matching import NOON, SPEC, question, record
from tests.servers.commands import autotune

NEW = Toolchain(jax="0.12.0.dev20261101+cpu.1", jaxlib="9.0", libtpu="9.0")


def check(verdict=CheckVerdict.BROKEN, **changes):
    """Of the record that the service has, under ``NEW``."""
    estimate = replace(record().estimate, time_us=27.2)
    no_room = OutOfVmem(reason="no room", used_bytes=32 << 20, allowed_bytes=16 << 20)
    winner = Estimated(estimate=estimate, program="p") if verdict.compiles else no_room
    usual = Check(
        key=question(1024),
        config=record(question(1024)).config,
        toolchain=NEW,
        chip=Chip.V5E,
        verdict=verdict,
        checked_at=NOON,
        winner=winner,
        after_us=27.2 if verdict.compiles else None,
        least_limit_bytes=24 << 20 if verdict is CheckVerdict.NEEDS_LIMIT else None,
        cause=Unchecked.NO_ANSWER if verdict is CheckVerdict.NOT_CHECKED else None,
    )
    return replace(usual, **changes)


def body(*checks):
    return {"kernels": [to_data(SPEC)], "results": [], "checks": list(map(to_data, checks))}


ASKED = replace(question(1024), toolchain=NEW)


class TestPush:
    def test_what_is_broken_is_no_answer_from_then_on(self, service, writer, admin):
        """Whoever has pushed the record, and although it is pinned."""
        assert service.lookup(ASKED)[1][0]["match"] == "toolchain"
        assert service.post("/v1/records/1/pin", {}, admin)[0] == 200
        status, pushed = service.post("/v1/results", body(check()), writer)
        assert (status, pushed["checks"], pushed["records"], pushed["snapshot"]) == (200, 1, 0, 4)
        snapshot, (answer,) = service.lookup(ASKED)
        assert (snapshot, answer["match"], answer["config"]) == (4, "default", None)
        assert "broken" in answer["why"] and "no room" in answer["why"]
        assert service.lookup(ASKED, snapshot=3)[1][0]["match"] == "toolchain"
        assert service.get("/v1/snapshots")[1]["snapshots"][0]["made_by"] == "ci"

    @pytest.mark.parametrize("verdict", [CheckVerdict.SAME, CheckVerdict.SLOWER])
    def test_what_holds_says_when_and_what_was_found(self, service, writer, verdict):
        assert service.post("/v1/results", body(check(verdict)), writer)[0] == 200
        (answer,) = service.lookup(ASKED)[1]
        assert answer["match"] == "toolchain"
        assert f"checked on 2026-01-02 with {NEW}: compiles, 27.2 µs, {verdict}" in answer["why"]
        known = from_data(RecordCheck, answer["check"])
        assert (known.verdict, known.time_us, known.toolchain) == (verdict, 27.2, NEW)
        assert ServiceAnswers(service.url, strict=True).lookup([ASKED])[0].check == known
        assert "check" not in service.lookup(question(1024))[1][0]

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            (check(checked_at=NOON.replace(year=2090)), "yet to come"),
            (check(toolchain=question().toolchain), "not checked where it was made"),
            (check(CheckVerdict.NEEDS_LIMIT, least_limit_bytes=None), "which limit"),
            (check(CheckVerdict.SAME, winner=None), "called same, and its winner has no time"),
            (check(winner=check(CheckVerdict.SAME).winner), "called broken, and its winner has"),
            (check(cause=Unchecked.NO_KERNEL), "a cause if, and only if"),
            (check(CheckVerdict.NOT_CHECKED, cause=None), "a cause if, and only if"),
            (check(config=replace(record().config, axes=(("x", 1),))), "bm, unroll"),
            (check(key=question(1024, kernel="other")), "no description of other"),
            (check(key=question(1024, dtype="int8")), "dtype int8 is not supported"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_cannot_be_is_refused_with_one_sentence(self, service, store, writer, wrong, why):
        status, answer = service.post("/v1/results", body(check(), wrong), writer)
        assert (status, answer["error"]["field"]) == (422, "checks[1]")
        assert why in answer["error"]["message"]
        assert not store.checks()

    def test_the_command_sends_what_was_checked_here(self, service, store, writer, tmp_path):
        """Of a record that only the service has, as from ``autotune check --bundle``."""
        here = str(tmp_path / "here.db")
        with open_store(here, create=True) as local:
            local.save_kernel(SPEC)
            local.save_check(check())
            local.save_check(check(CheckVerdict.SAME, chip=Chip.V6E))
        environment = {"AUTOTUNE_TOKEN": writer, "AUTOTUNE_DATABASE_URL": here}
        done = autotune("push", "--url", service.url, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        assert "in force there: 2 of 2 checks" in done.stdout
        assert {check.pushed_by for check in store.checks()} == {"ci"}
        assert service.lookup(ASKED)[1][0]["match"] == "default"


class TestList:
    @pytest.fixture(autouse=True)
    def _checked(self, store):
        for number, jax in enumerate(("1.0", "2.0", "3.0")):
            toolchain = Toolchain(jax=jax, jaxlib=jax, libtpu=jax)
            verdict = CheckVerdict.SAME if number else CheckVerdict.BROKEN
            store.save_check(check(verdict, toolchain=toolchain, detail=EVIL))
        store.save_check(check(CheckVerdict.NEEDS_LIMIT, chip=Chip.V6E))

    def test_by_what_is_asked_for(self, service):
        def jax(query):
            checks = service.get(f"/v1/checks{query}")[1]["checks"]
            return [check["check"]["toolchain"]["jax"] for check in checks]

        assert jax("") == [NEW.jax, "3.0", "2.0", "1.0"]
        assert jax("?verdict=same") == ["3.0", "2.0"]
        assert jax("?toolchain=2.0,2.0,2.0") == ["2.0"]
        assert jax("?chip=v6e&kernel=mm") == [NEW.jax]
        local = question().toolchain
        assert len(jax(f"?made_with={local.jax},{local.jaxlib},{local.libtpu}")) == 4
        assert jax("?made_with=1,1,1") == jax("?kernel=other") == []

    @pytest.mark.parametrize(
        "query",
        [
            "verdict=fine",
            "toolchain=1",
            "cursor=x",
            "limit=0",
            "limit=1001",
            "more=1",
            "chip=v5e&chip=v6e",
        ],
    )
    def test_what_cannot_be_asked(self, service, query):
        status, answer = service.get(f"/v1/checks?{query}")
        assert (status, answer["error"]["field"]) == (422, query.partition("=")[0])
