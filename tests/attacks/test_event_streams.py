"""Pages that follow a search: nobody may follow so many that others wait."""

import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from autotune_db import SqlStore
from autotune_service.pages import live
from tests.servers.service import Running, until


@contextmanager
def following(service: Running, key: int) -> Iterator[int]:
    """The status of a stream that stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    with closing(connection):
        connection.request("GET", f"/keys/{key}/events")
        yield connection.getresponse().status


@pytest.mark.parametrize("limit", ["MOST_OF_ADDRESS", "MOST_STREAMS"])
def test_so_many_and_no_more(
    service: Running, store: SqlStore, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(live, limit, 3)
    with ExitStack() as stack:
        statuses = [stack.enter_context(following(service, 1)) for _ in range(6)]
    assert statuses == [200] * 3 + [429] * 3

    def there_is_room() -> bool:
        with following(service, 1) as status:
            return status == 200

    until(there_is_room)
