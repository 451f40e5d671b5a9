"""Answers as JSON text, encoded once for each record."""

import json

from autotune.domain.codec import to_data
from autotune.lookups.matching import Match


def encode(match: Match) -> bytes:
    """One JSON object: match, config, why, and the record with its evidence and its own key."""
    data = {
        "match": match.kind,
        "config": match.config and to_data(match.config),
        "why": match.why,
        "record": match.record and to_data(match.record),
    }
    return json.dumps(data, separators=(",", ":")).encode()
