"""A web page that gives the service's address a name of its own reads nothing."""

import pytest

from autotune_db import SqlStore
from autotune_service.middleware.hosts import allowed_hosts
from autotune_service.settings import Settings
from tests.servers.service import Running, running

FOREIGN = ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", "localhost.evil.example")
OWN = ("localhost:8700", "127.0.0.1", "[::1]:8700", "LOCALHOST.", "app.localhost", "10.0.0.7:80")


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/", "/v1/records", "/healthz", "/session"])
def test_a_foreign_name_is_answered_with_nothing(service: Running, path: str, host: str) -> None:
    status, _, body = service.raw("GET", path, Host=host)
    assert status == 421
    assert b"--hosts" in body and b"records" not in body


def test_nor_does_it_look_up(service: Running) -> None:
    assert service.raw("POST", "/v1/lookup", b'{"questions": []}', Host=FOREIGN[0])[0] == 421


@pytest.mark.parametrize("host", OWN)
def test_its_own_names_are_answered(service: Running, host: str) -> None:
    for _ in range(2):
        assert service.raw("GET", "/healthz", Host=host)[0] == 200


def test_what_is_named_is_answered_too(store: SqlStore, database: str) -> None:
    with running(database, hosts="tuning.example:8700, other.") as service:
        names = ("tuning.example:443", "Other", "evil.example")
        assert [service.raw("GET", "/", Host=name)[0] for name in names] == [200, 200, 421]


def test_where_others_can_call_any_name_is_answered_unless_some_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert allowed_hosts(Settings(host="0.0.0.0")) is None
    assert allowed_hosts(Settings(hosts="*")) is None
    assert allowed_hosts(Settings(host="0.0.0.0", hosts="a.example")) is not None
    assert allowed_hosts(Settings(host="::1")) is not None
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    assert allowed_hosts(Settings()) is None
