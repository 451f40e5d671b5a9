"""Who may do what, how often and how much; what every answer carries."""

import http.client
import json
import logging
import socket
from datetime import UTC, datetime, timedelta

import pytest

from autotune.domain.token import ADMIN, READER
from autotune_service.middleware.body import MAX_UPLOAD_BYTES
from tests.samples.database import latest_snapshot
from tests.samples.matching import question
from tests.servers.service import asked, running, until

SAFE_TO_ALL = {("POST", "/v1/lookup")}
READS = {"GET", "HEAD"}


def writing_routes(service):
    """All that the schema knows; numbers filled in."""
    paths = service.get("/openapi.json")[1]["paths"]
    routes = [
        (method.upper(), path.replace("{number}", "1"))
        for path, methods in paths.items()
        for method in methods
    ]
    return [route for route in routes if route[0] not in READS and route not in SAFE_TO_ALL]


class TestWriting:
    def test_every_writing_route_refuses_who_may_not(self, store, database, monkeypatch):
        monkeypatch.setattr("autotune_service.middleware.access._FAILURES_PER_SECOND", 0)
        with running(database) as service:
            self.refuses_who_may_not(service, store)

    def refuses_who_may_not(self, service, store):
        expired = datetime.now(UTC) - timedelta(seconds=1)
        _, reader = store.tokens.create("r", READER, None)
        _, old = store.tokens.create("old", ADMIN, expired)
        gone, revoked = store.tokens.create("gone", ADMIN, None)
        store.tokens.revoke(gone.number)
        routes = writing_routes(service)
        assert len(routes) >= 6
        tokens = {**dict.fromkeys((None, "", "autotune_x", "é", old, revoked), 401), reader: 403}
        for method, path in routes:
            for token, expected in tokens.items():
                bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
                status, headers, body = service.raw(method, path, b"{}", **bearer)
                assert (status, method, path, token) == (expected, method, path, token)
                assert ("www-authenticate" in headers) == (expected == 401)
                assert set(json.loads(body)["error"]) == {"code", "message", "field"}
        assert latest_snapshot(store) == 2 and store.jobs.list() == []

    @pytest.mark.parametrize(
        "path", ["/v1/snapshots/1/rollback", "/v1/records/1/pin", "/v1/records/1/unpin"]
    )
    def test_some_need_an_admin(self, service, writer, admin, path):
        status, answer = service.post(path, token=writer)
        assert (status, answer["error"]["code"]) == (403, "role_too_low")
        assert service.post(path, token=admin)[0] == 200

    def test_a_route_that_is_not_there_needs_a_token_too(self, service):
        assert service.post("/v1/nothing", {})[0] == 401
        assert service.raw("DELETE", "/v1/records/1")[0] == 401


def test_who_may_read_a_closed_service_may_so_until_the_token_is_revoked(store, database):
    made, reader = store.tokens.create("r", READER, None)
    with running(database, closed=True) as service:
        body = {"questions": [asked(question(1024))]}
        assert service.post("/v1/lookup", body)[0] == 401
        assert service.post("/v1/lookup", body, reader)[0] == 200
        for path in ("/v1/snapshots/1", "/v1/records", "/openapi.json"):
            assert service.raw("GET", path, Authorization=f"Bearer {reader}")[0] == 200
        store.tokens.revoke(made.number)
        until(lambda: service.post("/v1/lookup", body, reader)[0] == 401)


class TestLimits:
    def test_a_large_body_is_refused_before_it_is_read(self, service, writer):
        with socket.create_connection(("127.0.0.1", service.port), 10) as connection:
            head = (
                "POST /v1/results HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {writer}\r\n"
                f"Content-Length: {MAX_UPLOAD_BYTES + 1}\r\n\r\n"
            )
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 413")

    def test_a_large_body_without_a_length(self, service, writer):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
        parts = (b"x" * (1 << 20) for _ in range(MAX_UPLOAD_BYTES // (1 << 20) + 2))
        headers = {"Authorization": f"Bearer {writer}"}
        try:
            connection.request("POST", "/v1/results", parts, headers, encode_chunked=True)
            assert connection.getresponse().status == 413
        except OSError:
            pass  # it hung up while we were still sending
        finally:
            connection.close()
        assert service.get("/healthz")[0] == 200


class TestEveryAnswer:
    @pytest.mark.parametrize("path", ["/healthz", "/v1/nothing", "/v1/snapshots/99", "/v1/%0Ax"])
    def test_headers(self, service, path):
        _, headers, _ = service.raw("GET", path, **{"X-Request-ID": "abc-1"})
        assert headers["x-request-id"] == "abc-1"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "uvicorn" not in str(headers)

    def test_a_lookup_has_an_id_too_and_is_nothing_but_json(self, service):
        """So it needs no policy, which all other answers have."""
        for body, expected in ((b'{"questions": []}', 200), (b"{", 400)):
            status, headers, _ = service.raw("POST", "/v1/lookup", body)
            assert (status, len(headers["x-request-id"])) == (expected, 16)
            assert headers["content-type"] == "application/json"
            assert headers["x-content-type-options"] == "nosniff"
            assert ("content-security-policy" in headers) == (status != 200)

    @pytest.mark.parametrize("given", ["", "a b", "x" * 65, "é", '"; drop'])
    def test_an_id_of_another_form_is_not_taken(self, service, given):
        _, headers, _ = service.raw("GET", "/healthz", **{"X-Request-ID": given})
        assert headers["x-request-id"] != given and len(headers["x-request-id"]) == 16

    def test_what_is_logged(self, store, database, writer, caplog):
        caplog.set_level(logging.INFO, "autotune.service.calls")
        with running(database) as service:
            service.get("/healthz")
            service.get("/v1/snapshots/99")
            service.post("/v1/jobs/1/cancel", token=writer)
        calls = [record for record in caplog.records if record.message == "call"]
        assert [(call.path, call.status, call.by) for call in calls] == [
            ("/v1/snapshots/99", 404, None),
            ("/v1/jobs/1/cancel", 404, "ci"),
        ]
        assert writer not in caplog.text
