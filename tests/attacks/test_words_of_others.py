"""What is said with a token, written into the database by hand, or packed into a file: it is worth
no more than who says it."""

import gzip
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from autotune.answering.sources import BundleAnswers
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.record import Standing
from autotune.domain.store import CandidateDecision, CandidateState
from autotune.domain.token import ADMIN, WRITER
from tests.samples.database import by_hand
from tests.samples.matching import SPEC, question, record
from tests.servers.service import running
from tests.service.test_writing_routes import body

KEY = question(2048)


@pytest.fixture
def doubting(database, store):
    """A service that has what is pushed checked."""
    with running(database) as service:
        yield service


@pytest.fixture
def file(database):
    return Path(database.removeprefix("sqlite:///"))


def claim(store):
    return store.record(KEY, claimed=True)


def test_a_refused_config_does_not_come_back_with_another_time(doubting, store, writer):
    first = record(KEY)
    doubting.post("/v1/results", body(first), writer)
    store.decide(1, CandidateDecision(state=CandidateState.REFUSED))
    later = replace(first, created_at=first.created_at + timedelta(seconds=1), reason="but now")
    faster = replace(later, estimate=replace(first.estimate, time_us=first.estimate.time_us / 9))
    for again in (first, later, faster):
        assert doubting.post("/v1/results", body(again), writer)[0] == 200
        assert claim(store) is None
    for number in (1, 2, 3):
        assert store.candidate(number).decision.state is CandidateState.REFUSED
    honest = replace(later, config=later.config.replace(axes=(("bm", 128), ("unroll", True))))
    doubting.post("/v1/results", body(honest), writer)
    assert claim(store)


def test_nobody_says_that_a_worker_has_checked_it(doubting, store, writer):
    sent = body(record(KEY))
    sent["results"][0]["record"] |= {"pushed_by": "", "checked_by": "worker"}
    assert doubting.post("/v1/results", sent, writer)[0] == 200
    (pushed,) = (each for _, each in store.published() if each.key == KEY)
    assert (pushed.standing, pushed.checked_by) == (Standing.CLAIMED, "")
    assert doubting.lookup(KEY)[1][0]["match"] != "exact"


@pytest.mark.parametrize("said", [{"standing": "proven"}, {"rule": {}}, {"until_id": 0}])
def test_nor_what_is_for_this_database_alone(doubting, writer, said):
    sent = body(record(KEY))
    sent["results"][0]["record"] |= said
    assert doubting.post("/v1/results", sent, writer)[0] == 422


def test_a_worker_with_a_token_alone_checks_nothing(doubting, store, writer, admin):
    """Its word would prove its own claims."""
    doubting.post("/v1/results", body(record(KEY)), writer)
    assert store.jobs.counts() == {"queued": 1}
    asked = {"worker": "w", "kernels": [to_data(SPEC)], "toolchain": to_data(KEY.toolchain)}
    for token in (writer, admin):
        assert doubting.post("/v1/claims", asked, token) == (200, {"job": None})


@pytest.mark.parametrize("role", ["root", "", "ADMIN"])
def test_a_role_that_is_not_known_may_nothing(database, store, file, role):
    _, secret = store.tokens.create("of-tomorrow", ADMIN, None)
    by_hand(file, f"UPDATE autotune_tokens SET role = '{role}' WHERE name = 'of-tomorrow'")
    with running(database, closed=True) as service:
        assert service.get("/v1/snapshots", secret)[0] == 403
        assert service.post("/v1/snapshots/1/rollback", {}, secret)[0] == 403


def test_a_name_is_taken_in_whatever_letters(store):
    store.tokens.create("nightly", WRITER, None)
    with pytest.raises(InvalidInputError, match="already"):
        store.tokens.create("Nightly", WRITER, None)


@pytest.mark.parametrize("base", ["id", "id + 1", "999"])
def test_a_snapshot_that_rests_on_none_before_it_costs_what_it_rested_on(
    database, store, file, base
):
    store.roll_back(1)
    store.roll_back(1)
    by_hand(file, f"UPDATE autotune_snapshots SET base_id = {base} WHERE base_id IS NOT NULL")
    store.save_record(record(KEY))
    with running(database) as service:
        assert service.lookup(KEY)[1][0]["match"] == "exact"


@pytest.mark.slow
def test_a_database_is_rolled_back_however_often(database, store, file):
    """Each time to the last one."""
    before = store.roll_back(1)
    by_hand(
        file,
        "WITH RECURSIVE n(id) AS (VALUES(1) UNION ALL SELECT id + 1 FROM n WHERE id < 1100) "
        "INSERT INTO autotune_snapshots (id, base_id, record_id, floor, note, made_by, created_at) "
        f"SELECT {before} + n.id, {before} + n.id - 1, record_id, record_id, '', '', created_at "
        f"FROM n, autotune_snapshots WHERE autotune_snapshots.id = {before}",
    )
    with running(database) as service:
        assert service.lookup(question(1024))[1][0]["match"] == "exact"


@pytest.mark.parametrize("text", ["[" * 200_000, '{"records": ' + "[" * 200_000, "9" * 10_000])
def test_a_bundle_that_is_nested_without_end_is_none(tmp_path, text):
    (tmp_path / "deep.bundle").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InvalidInputError, match="is not a bundle of records"):
        BundleAnswers(tmp_path / "deep.bundle").match(KEY)
