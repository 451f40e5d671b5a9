"""Pushes of megabytes, by a writer who may have meant no harm."""

import json
import threading

import pytest

from tests.samples.matching import question, record
from tests.servers.service import Running
from tests.service.test_writing_routes import body, trial


@pytest.mark.slow
def test_others_are_answered_meanwhile(service: Running, writer: str) -> None:
    """It is refused at its end, so that nothing but reading it takes the time."""
    trials = tuple(trial(number, 64) for number in range(40))
    (one,) = body(record(question(512), 64), trials=trials)["results"]
    pushed = json.dumps(body(results=[one] * 1_000, unknown=1)).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {writer}"}
    status = 0

    def push() -> None:
        nonlocal status
        status = service.raw("POST", "/v1/results", pushed, **headers)[0]

    pushing = threading.Thread(target=push)
    pushing.start()
    answered = 0
    while pushing.is_alive():
        assert service.get("/healthz")[0] == 200
        answered += 1
    pushing.join()
    assert (status, len(pushed) > 10e6) == (422, True)
    assert answered >= 30


def test_only_results_may_be_so_large(service: Running, writer: str) -> None:
    """What else is written is read in the event loop."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {writer}"}
    sent = b'{"miss": 1}'.ljust((1 << 20) + 1)
    for path in ("/v1/jobs", "/v1/claims"):
        assert service.raw("POST", path, sent, **headers)[0] == 413
