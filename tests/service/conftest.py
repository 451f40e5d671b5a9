"""Services over HTTP: in a thread for most tests, so that the store can be a fake."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("service", "matching", "cli"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from matchingsamples import SPEC, question, record  # noqa: E402
from serving import Running, running  # noqa: E402

from autotune.tokens import ADMIN, WRITER  # noqa: E402
from db import SqlStore, open_store  # noqa: E402


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "service.db")


@pytest.fixture
def store(database: str) -> Iterator[SqlStore]:
    """Two records of the sample kernel: snapshot 2."""
    with open_store(database, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(question(1024)))
        store.save_record(record(question(4096, 256)))
        yield store


@pytest.fixture
def writer(store: SqlStore) -> str:
    return store.tokens.create("ci", WRITER, None)[1]


@pytest.fixture
def admin(store: SqlStore) -> str:
    return store.tokens.create("boss", ADMIN, None)[1]


@pytest.fixture
def service(store: SqlStore, database: str) -> Iterator[Running]:
    with running(database) as service:
        yield service
