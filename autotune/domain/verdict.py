"""The answer of the gate, as it crosses from the child."""

from dataclasses import dataclass
from enum import StrEnum


class FailedCheck(StrEnum):
    """Which check of the gate a result did not pass; the empty one is false."""

    NONE = ""
    VALUES = "values"
    """An element is too far off."""
    PRECISION = "precision"
    """All elements together are."""
    UNINITIALISED = "uninitialised memory"
    BOUNDS = "out of bounds"
    RACE = "race"
    REVISITED = "output visited again"
    """After others."""
    OUTPUTS = "outputs"
    """Another shape or dtype."""
    RUN = "run"
    """It raised."""


class Standard(StrEnum):
    """What a right result agrees with."""

    REFERENCE = "reference"
    DEFAULT = "default config"
    """Less: what is wrong in the kernel itself is wrong in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made; ``reason`` says why, or what was run.

    ``check`` is the one that failed. ``error`` is the largest error in units of what is allowed and
    ``where`` the element that has it, such as ``output 0 at (3, 5)``; ``runs`` passed; ``seconds``:
    wall clock.
    """

    ok: bool | None
    reason: str
    check: FailedCheck = FailedCheck.NONE
    error: float | None = None
    where: str = ""
    runs: int = 0
    seconds: float = 0.0
    standard: Standard = Standard.REFERENCE
