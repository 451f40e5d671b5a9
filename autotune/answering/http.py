"""Calls to a service over HTTP, with the standard library only: it runs before models start."""

import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from autotune.answering.matching import DEFAULT, EXACT, KINDS, RULE, Match, MatchKind, default_match
from autotune.domain.codec import from_data
from autotune.domain.errors import InvalidInputError, ServiceError
from autotune.domain.key import Key, may_be_same
from autotune.domain.problem import Config
from autotune.domain.record import Record, RecordCheck

if TYPE_CHECKING:
    from http.client import HTTPResponse


TOKEN_VARIABLE = "AUTOTUNE_TOKEN"  # noqa: S105 (the name of a variable)

_MOST_BYTES = 1 << 28


class Remote:
    """A service at ``url``. Each call is bounded as a whole, name lookup and slow bodies included.

    ``token``: by default what ``AUTOTUNE_TOKEN`` holds.
    """

    def __init__(self, url: str, timeout_s: float, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise InvalidInputError(f"{url!r} is not an address: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(f"{url!r} is not an address: give http://host:port")
        self._https, self._host = parts.scheme == "https", parts.hostname
        self._path, self.timeout_s = parts.path.rstrip("/"), timeout_s
        self._token = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()
        if not (self._token.isascii() and self._token.isprintable()):
            raise InvalidInputError("the token must have printable ASCII characters only")

    def __str__(self) -> str:
        port = f":{self._port}" if self._port else ""
        return f"{'https' if self._https else 'http'}://{self._host}{port}{self._path}"

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        timeout_s: float | None = None,
        **headers: str,
    ) -> bytes:
        """Raises ``ServiceError`` for a refusal, ``TimeoutError``, and what the network raises."""
        limit_s = timeout_s or self.timeout_s
        done: list[bytes | BaseException] = []

        def work() -> None:
            try:
                done.append(self._call(method, path, body, limit_s, headers))
            except BaseException as error:
                done.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(limit_s)
        if not done:
            raise TimeoutError(f"no answer within {limit_s:g} s")
        if isinstance(done[0], BaseException):
            raise done[0]
        return done[0]

    def _call(
        self, method: str, path: str, body: bytes | None, limit_s: float, more: dict[str, str]
    ) -> bytes:
        from http.client import HTTPConnection, HTTPSConnection  # a bundle alone needs none

        kind = HTTPSConnection if self._https else HTTPConnection
        connection = kind(self._host, self._port, timeout=limit_s)
        try:
            headers = {"Content-Type": "application/json", "Connection": "close", **more}
            headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
            connection.request(method, self._path + path, body, headers)
            return _content(connection.getresponse())
        finally:
            connection.close()


def _content(response: "HTTPResponse") -> bytes:
    content = response.read(_MOST_BYTES + 1)
    if not 200 <= response.status < 300:
        why = f"it answered with status {response.status}: {_sentence(content)}"
        later = response.getheader("Retry-After", "")  # or a date, which is not waited for
        raise ServiceError(why, response.status, float(later) if later.isdecimal() else 0.0)
    if len(content) > _MOST_BYTES:
        raise ServiceError("its answer does not end")
    return content


def _sentence(content: bytes) -> str:
    """The message in an error envelope, else the beginning of whatever it is."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return repr(content[:80])


_log = logging.getLogger("autotune")


def read_answer(key: Key | None, data: Mapping[str, Any]) -> Match:
    """``key``: what was asked, where that is known. Raises ``ServiceError`` for an answer to
    something else."""
    if "error" in data:
        return _default(str(data["error"]["message"]))
    kind = data["match"]
    if kind not in KINDS:  # a newer service has words that cannot be judged here
        word = repr(str(kind)[:50])
        return _default(
            f"the service answered {word}, which this version does not know: upgrade it"
        )
    record = data["record"] and from_data(Record, data["record"])
    if (record is None) != (kind == DEFAULT) or not _fits(key, kind, record):
        raise ServiceError(f"it answered {kind!r} with a record that does not fit the question")
    config: Config | None = record.config if record else None
    if record is not None and data["config"] != data["record"]["config"]:
        config = from_data(Config, data["config"])
        if config != record.config and kind != RULE:
            raise ServiceError("it answered with a config that is not the one of its record")
    check = from_data(RecordCheck, data["check"]) if data.get("check") else None
    return Match(
        kind=MatchKind(kind),
        config=config,
        record=record,
        why=str(data["why"]),
        check=check,
        expected_regret=data.get("expected_regret"),
    )


def _default(why: str) -> Match:
    _log.warning("autotune: a kernel takes its default: %s", why)
    return default_match(why=why)


def _fits(key: Key | None, kind: str, record: Record | None) -> bool:
    if record is None or key is None:
        return True
    if kind == EXACT:
        return may_be_same(record.key, key)
    recorded, asked = (
        (k.kernel, k.fingerprint, k.chip, k.problem.dtype) for k in (record.key, key)
    )
    return recorded == asked
