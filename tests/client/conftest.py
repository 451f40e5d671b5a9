"""Lets the tests here start services, and lie to the client."""

from collections.abc import Iterator

import pytest

from autotune_db import open_store
from tests.samples.matching import SPEC, question, record
from tests.servers.service import Running, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    database = str(tmp_path_factory.mktemp("service") / "client.db")
    with open_store(database, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(question(1024)))
        store.save_record(record(question(4096, 256)))
    with running(database) as service:
        yield service
