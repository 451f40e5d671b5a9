"""What a writer says of its records: nobody is answered with it who does not ask for claims."""

import json
from dataclasses import replace

import pytest

from autotune.answering.bundle import bundle_from_bytes
from autotune.answering.client import ServiceAnswers
from autotune.answering.push import result_to_data
from autotune.answering.sources import BundleAnswers, StoreAnswers
from autotune.domain.codec import to_data
from autotune.domain.key import KernelSpec
from autotune.domain.outcome import Illegal
from autotune.domain.problem import PARALLEL, Config, Problem, ProblemSpec
from autotune.domain.record import CheckVerdict, Evidence, Trial
from autotune.domain.store import CandidateDecision, CandidateState, KeyResult, as_record_check
from autotune.domain.token import WRITER
from autotune.wording.match import why
from autotune_db import open_store
from tests.samples.database import by_hand
from tests.samples.matching import NOON, question, record
from tests.servers.commands import autotune_here
from tests.servers.doors import DOORS, read
from tests.servers.service import running, until
from tests.service.test_checks_routes import check

MATMUL = KernelSpec(
    name="cube_matmul",
    fingerprint="f00d",
    problems=ProblemSpec(dims=("m", "k", "n"), dtypes=("bfloat16",)),
    axes=("bm", "bk", "bn"),
    grid=("m", "n", "k"),
    cuts=(("bm", "m"), ("bk", "k"), ("bn", "n")),
)
CUBE = Problem(dims=(("m", 1024), ("k", 1024), ("n", 1024)), dtype="bfloat16")
KEY = replace(question(), kernel="cube_matmul", problem=CUBE)
GOOD = Config(axes=(("bm", 512), ("bk", 512), ("bn", 512)), grid_order=("m", "n", "k"))
RACING = GOOD.replace(grid_order=("k", "m", "n"), dimension_semantics=(PARALLEL,) * 3)
RAGGED = GOOD.replace(axes=(("bm", 3), ("bk", 7), ("bn", 5)))
DEFAULT = Evidence(config=GOOD.replace(axes=(("bm", 128), ("bk", 128), ("bn", 128))), time_us=9.25)
HONEST = replace(record(KEY), config=GOOD, default=DEFAULT)
VERSIONS = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42"}


def snapshot(service, _, key, claimed):
    path = "/v1/snapshots/latest" + "?accept_claimed=true" * claimed
    records = bundle_from_bytes(service.raw("GET", path)[2]).records
    return next((item.config for item in records if item.key == key), None)


def given(service, store, folder, claimed):
    """The config that each way gives, by its name."""
    versions = ",".join(f"{name}={value}" for name, value in VERSIONS.items())
    asked = ["--shape", "1024x1024x1024", "--chip", "v5e", "--toolchain", versions, "--json"]
    asked += ["--db", store.url] + ["--accept-claimed"] * claimed
    said = json.loads(autotune_here("lookup", "cube_matmul", *asked, cwd=folder).stdout)
    found = {door.__name__: door(service, folder, KEY, claimed) for door in (*DOORS, snapshot)}
    found["database"] = StoreAnswers(store, accept_claimed=claimed).match(KEY).config
    return found | {"command": read(said.get("config"))}


@pytest.fixture
def store(database):
    with open_store(database, create=True) as store:
        yield store


@pytest.fixture
def service(store, database):
    with running(database) as service:
        yield service


def push(service, token, *records):
    results = [result_to_data(KeyResult(record=item)) for item in records]
    return service.post("/v1/results", {"kernels": [to_data(MATMUL)], "results": results}, token)


def number_of(service, store):
    """Waits until the service answers from the newest snapshot."""
    newest = store.snapshots(1)[0].number
    until(lambda: service.get("/healthz")[1]["snapshot"] == newest)


@pytest.mark.parametrize("config", [RACING, RAGGED], ids=["racing", "ragged"])
def test_a_claim_is_handed_out_by_no_door_to_who_does_not_ask_for_it(
    service, store, writer, tmp_path, config
):
    assert push(service, writer, replace(HONEST, config=config))[0] == 200
    assert set(given(service, store, tmp_path, False).values()) == {None}
    assert set(given(service, store, tmp_path, True).values()) == {config}


def test_who_misses_a_claim_is_told_of_it_until_a_worker_has_refused_it(
    service, store, writer, tmp_path
):
    push(service, writer, replace(HONEST, config=RACING))
    number_of(service, store)

    def hints():
        (tmp_path / "all.bundle").write_bytes(
            service.raw("GET", "/v1/snapshots/latest?accept_claimed=true")[2]
        )
        files = BundleAnswers(tmp_path / "all.bundle"), StoreAnswers(store)
        whys = [why(source.match(KEY), KEY) for source in files]
        whys += [service.lookup(KEY)[1][0]["why"], ServiceAnswers(service.url).match(KEY).why]
        return ["claimed, not proven: `accept_claimed=True`" in text for text in whys]

    assert all(hints())
    assert "accept_claimed" not in service.lookup(KEY, accept_claimed=True)[1][0]["why"]
    counted = b"autotune_claims_not_answered_total 0.0"
    until(lambda: counted not in service.raw("GET", "/metrics")[2])
    store.decide(1, CandidateDecision(state=CandidateState.REFUSED))
    until(lambda: not any(hints()))


def test_a_claim_does_not_hide_what_is_proven_however_fast_it_says_it_is(
    service, store, writer, tmp_path
):
    store.save_record(HONEST)
    fast = replace(HONEST.estimate, time_us=1e-3)
    assert push(service, writer, replace(HONEST, config=RACING, estimate=fast))[0] == 200
    number_of(service, store)
    for claimed in (False, True):
        assert set(given(service, store, tmp_path, claimed).values()) == {GOOD}


def test_what_a_worker_refuses_is_gone_for_everybody_and_after_a_roll_back(
    service, store, writer, tmp_path
):
    for _ in range(2):  # again changes nothing
        assert push(service, writer, replace(HONEST, config=RACING))[0] == 200
    candidate = store.candidate(1)
    before = store.snapshots(1)[0].number
    store.decide(candidate.number, CandidateDecision(state=CandidateState.REFUSED))
    for make in (lambda: None, lambda: store.roll_back(before), lambda: store.pin(1)):
        make()
        number_of(service, store)
        push(service, writer, replace(HONEST, config=RACING))
        assert set(given(service, store, tmp_path, True).values()) == {None}
    assert service.lookup(KEY, snapshot=before, accept_claimed=True)[1][0]["match"] == "exact"


def test_a_writer_does_not_take_a_proven_record_away(service, store, writer):
    """By saying, in any way, that it is broken elsewhere."""
    store.save_record(HONEST)
    elsewhere = replace(KEY.toolchain, jax="9")
    says = check(CheckVerdict.BROKEN, key=KEY, config=GOOD, toolchain=elsewhere)
    pushed = {"kernels": [to_data(MATMUL)], "results": [], "checks": [to_data(says)]}
    assert service.post("/v1/results", pushed, writer)[0] == 403
    push(service, writer, HONEST.with_check(as_record_check(says)))
    number_of(service, store)
    asked = replace(KEY, toolchain=elsewhere)
    assert service.lookup(asked)[1][0]["match"] == "toolchain"


def test_what_contradicts_itself_is_no_claim_either(service, store, writer):
    impossible = Trial(
        number=1, config=GOOD, outcome=Illegal(reason="no"), seconds=1.0, created_at=NOON
    )
    says = result_to_data(KeyResult(record=HONEST, trials=(impossible,)))
    pushed = {"kernels": [to_data(MATMUL)], "results": [says]}
    assert service.post("/v1/results", pushed, writer)[1]["error"]["code"] == "contradiction"
    one_byte = replace(HONEST, config=GOOD.replace(vmem_limit_bytes=1))
    assert push(service, writer, one_byte)[0] == 422
    assert not store.published()


def test_a_token_whose_end_cannot_be_read_opens_nothing(service, store, database):
    _, secret = store.tokens.create("gone", WRITER, NOON.replace(year=2100))
    for column in ("expires_at", "revoked_at"):
        statement = f"UPDATE autotune_tokens SET {column} = 'soon' WHERE name = 'gone'"
        assert by_hand(database, statement) == 1
        assert store.tokens.find(secret) is None
        assert push(service, secret, HONEST)[0] == 401
