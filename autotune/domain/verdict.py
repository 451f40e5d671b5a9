"""The answer of the gate, as it crosses from the child."""

from dataclasses import dataclass

VALUES = "values"
PRECISION = "precision"
UNINITIALISED = "uninitialised memory"
BOUNDS = "out of bounds"
RACE = "race"
REVISITED = "output visited again"
OUTPUTS = "outputs"
RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made; ``reason`` says why, or what was run.

    ``check`` is which check failed: *values* (an element is too far off), *precision* (all
    elements together are), *uninitialised memory*, *out of bounds*, *race*, *output visited again*
    (after others), *outputs* (another shape or dtype), *run* (it raised). ``error`` is the largest
    error in units of what is allowed and ``where`` the element that has it, such as ``output 0 at
    (3, 5)``; ``runs`` passed; ``seconds``: wall clock.
    """

    ok: bool | None
    reason: str
    check: str = ""
    error: float | None = None
    where: str = ""
    runs: int = 0
    seconds: float = 0.0
