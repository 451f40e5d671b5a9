"""What was asked for and is not published."""

from dataclasses import dataclass
from datetime import datetime

from autotune.domain.key import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How often a key that had no record was asked for. ``answer``: what was given instead, one
    of *toolchain*, *rule*, *nearest*, *default*."""

    number: int
    key: Key
    answer: str
    count: int
    first_at: datetime
    last_at: datetime
