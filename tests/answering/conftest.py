"""Lets the tests here start services, and lie to the client."""

from collections.abc import Iterator

import pytest

from tests.samples.database import new_store, two_records
from tests.servers.service import Running, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    database = str(tmp_path_factory.mktemp("service") / "client.db")
    new_store(database, two_records).close()
    with running(database) as service:
        yield service
