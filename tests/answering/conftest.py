"""Lets the tests here start services, and lie to the client."""

import pytest

from tests.samples.database import new_store, two_records
from tests.servers.service import running


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    database = str(tmp_path_factory.mktemp("service") / "client.db")
    new_store(database, two_records).close()
    with running(database) as service:
        yield service
