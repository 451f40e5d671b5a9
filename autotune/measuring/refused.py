"""Something that could not be measured, and why."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """``reason``: one sentence. A refusal is an answer, never a number."""

    reason: str
