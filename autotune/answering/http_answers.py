"""An answer of a service, as it stands in its JSON: it may be newer, or lie."""

import logging
from collections.abc import Mapping
from typing import Any

from autotune.answering.matching import DEFAULT, EXACT, KINDS, RULE, Match, MatchKind, default_match
from autotune.domain.codec import from_data
from autotune.domain.errors import ServiceError
from autotune.domain.key import Key, may_be_same
from autotune.domain.problem import Config
from autotune.domain.record import Record, RecordCheck

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
