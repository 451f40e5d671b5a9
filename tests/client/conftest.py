"""Lets the tests here start services, and lie to the client."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("service", "matching", "cli"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from matchingsamples import SPEC, question, record  # noqa: E402
from serving import Running, running  # noqa: E402

from db import open_store  # noqa: E402


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    database = str(tmp_path_factory.mktemp("service") / "client.db")
    with open_store(database, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(question(1024)))
        store.save_record(record(question(4096, 256)))
    with running(database) as service:
        yield service
