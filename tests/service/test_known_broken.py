"""A config that is known not to work under a toolchain is handed out there by no door."""

from dataclasses import replace

import pytest

from autotune.answering.client import ServiceAnswers
from autotune.declaring.fingerprint import fingerprint
from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.codec import to_data
from autotune.domain.key import KernelRef, Toolchain
from autotune.domain.record import CheckVerdict
from autotune.domain.store import KeyResult
from autotune.python.tuned import Tuned
from autotune_db import open_store
from tests.samples.matching import SPEC, question, record
from tests.servers.doors import DOORS, bundle, client_without_the_service, read
from tests.servers.service import running, until
from tests.service.test_checks_routes import check

KERNEL = Kernel(
    name="mm",
    dims=("m", "k"),
    dtypes=("bfloat16",),
    options=SPEC.problems.options,
    axes=(Axis(name="bm", choices=lambda _: [64], dim="m"),),
    default=lambda _: {"bm": 64},
    inputs=lambda _: [],
    grid=("m",),
    build=lambda *_: lambda: None,
    reference=lambda _: lambda: None,
)
OWN = fingerprint(KernelRef(path=__file__, attribute="KERNEL"))
DECLARED = replace(SPEC, fingerprint=OWN)
NEW, OLD = (Toolchain(jax=jax, jaxlib=jax, libtpu="9") for jax in ("9.0", "0.1"))
TUNED = record(replace(question(1024), fingerprint=OWN))
ASKED = replace(TUNED.key, toolchain=NEW)
BETTER = replace(TUNED, config=TUNED.config.replace(vmem_limit_bytes=1 << 20))


def proven_bundle(*asked):
    """What is downloaded where nobody asks for claims is another file."""
    return bundle(*asked, everything=False)


def client_with_what_is_proven(*asked):
    return client_without_the_service(*asked, everything=False)


def batch(service, *_):
    other = replace(ASKED, problem=question(77).problem)
    return read(service.lookup(TUNED.key, ASKED, other, ASKED)[1][3]["config"])


def model(service, *_):
    source = ServiceAnswers(service.url, strict=True)
    local = Tuned(KERNEL, declared_in=__file__, source=source, chip="v5e", toolchain=NEW)
    return local.config(local.problem(m=1024, k=128))


@pytest.fixture
def store(database):
    with open_store(database, create=True) as store:
        store.save_kernel(DECLARED)
        store.save_record(TUNED)
        yield store


@pytest.fixture
def service(store, database):
    with running(database, trust_writers=True, recheck=False) as service:
        yield service


def nothing(_): ...


def pin(store):
    store.save_record(BETTER)
    assert store.pin(1)


def roll_back(store):
    store.save_record(BETTER)
    assert store.roll_back(1)


def push_again(store):
    again = replace(TUNED, created_at=TUNED.created_at.replace(hour=23))
    assert store.push([], [KeyResult(record=again)], by="ci").records


def publish_it_for_another_toolchain(store):
    store.save_record(replace(TUNED, key=replace(TUNED.key, toolchain=OLD)))


def publish_it_for_a_near_shape(store):
    near = replace(ASKED, problem=question(2048).problem)
    store.save_record(replace(TUNED, key=near))


@pytest.mark.parametrize("verdict", [CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT])
@pytest.mark.parametrize(
    "then",
    [
        nothing,
        pin,
        roll_back,
        push_again,
        publish_it_for_another_toolchain,
        publish_it_for_a_near_shape,
    ],
)
def test_by_no_door(service, store, writer, tmp_path, verdict, then):
    doors = (*DOORS, proven_bundle, client_with_what_is_proven, batch, model)
    before = [door(service, tmp_path, ASKED, False) for door in doors]
    assert before[:-1] == [TUNED.config] * (len(doors) - 1)  # Tuned takes exact answers only
    known = check(verdict, key=TUNED.key, config=TUNED.config, toolchain=NEW)
    pushed = {"kernels": [to_data(DECLARED)], "results": [], "checks": [to_data(known)]}
    assert service.post("/v1/results", pushed, writer)[0] == 200
    then(store)
    number = store.snapshots(1)[0].number
    until(lambda: service.lookup(ASKED)[0] == number)
    for door in doors:
        assert door(service, tmp_path, ASKED, False) != TUNED.config, door.__name__
