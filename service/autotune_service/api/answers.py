"""Answers as JSON text, encoded once for each record."""

import json
from dataclasses import replace
from typing import Any

from autotune.answering.matching import Match
from autotune.domain.codec import to_data
from autotune.domain.key import Key
from autotune.wording.match import known_finding, why
from autotune.wording.publication import in_words


def encode(match: Match, key: Key) -> bytes:
    """The answer to ``key`` as one JSON object: match, config, why, the record with its evidence
    and its own key, and where it was checked with the toolchain that was asked for, what was found.
    Without its rule, which is large."""
    data: dict[str, Any] = {
        "match": match.kind,
        "config": match.config and to_data(match.config),
        "why": why(match, key),
        "record": match.record and to_data(replace(in_words(match.record), rule=None)),
        "standing": match.record and match.record.standing,
    }
    if match.check is not None:
        data["check"] = to_data(replace(match.check, finding=known_finding(match.check)))
    if match.expected_regret is not None:
        data["expected_regret"] = match.expected_regret
    return json.dumps(data, separators=(",", ":")).encode()
