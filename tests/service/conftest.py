"""Services over HTTP: in a thread for most tests, so that the store can be a fake."""

import pytest

from autotune.domain.token import ADMIN, WRITER
from tests.samples.database import new_store, two_records
from tests.servers.service import running


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "service.db")


@pytest.fixture
def store(database):
    """Two records of the sample kernel: snapshot 2."""
    with new_store(database, two_records) as store:
        yield store


@pytest.fixture
def writer(store):
    return store.tokens.create("ci", WRITER, None)[1]


@pytest.fixture
def admin(store):
    return store.tokens.create("boss", ADMIN, None)[1]


@pytest.fixture
def service(store, database):
    with running(database, trust_writers=True, recheck=False) as service:
        yield service
