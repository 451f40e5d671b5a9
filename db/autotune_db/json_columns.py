"""JSON text that keeps the order of names, and a digest that does not depend on it."""

import hashlib
import json
from typing import Any


def to_text(data: Any) -> str:
    """Pure ASCII: PostgreSQL refuses NUL and lone surrogates as characters, not as escapes.

    Raises ``ValueError`` for NaN and infinity, which are no JSON.
    """
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def from_text(text: str) -> Any:
    return json.loads(text)


def digest(data: Any) -> str:
    """32 hexadecimal digits, the same for the same names and values in any order of names."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
