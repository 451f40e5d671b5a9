"""What the compiler made of one candidate, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.domain.codec import OmitDefault
from autotune.domain.operation import ScheduledOperation
from autotune.domain.outcome import Failure
from autotune.domain.trace import Trace

ASSEMBLED = "a-"
"""Begins the hash of a program whose listing was put together and not printed by libtpu."""


def is_another_program(one: str, other: str) -> bool:
    """By their hashes; False where they cannot tell, being hashes of two kinds of listing."""
    return one != other and one.startswith(ASSEMBLED) == other.startswith(ASSEMBLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """``program`` is a hash of the final listings. ``simulation`` holds the fields of
    ``simulator.Simulation``, or is None with the ``refusal`` why. ``more``: what became of
    the further calls of the function, in the order of ``Trace.more``. ``schedule``: all that the
    chip runs for the function, its calls among it."""

    seconds: float
    vmem_used_bytes: int
    program: str
    simulation: Mapping[str, Any] | None
    refusal: str
    simulate_s: float
    more: OmitDefault[tuple["Compiled", ...]] = ()
    schedule: OmitDefault[tuple[ScheduledOperation, ...]] = ()

    @property
    def calls(self) -> tuple["Compiled", ...]:
        """The first call and those after it."""
        return (self, *self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What compilers made of a candidate, and the wall clock that it took, the start of a compiler
    among it where one was needed."""

    answer: tuple[Trace, Compiled] | Failure
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaCost:
    """What is known of the plain-XLA version of a problem: its operations by XLA's own count, and
    all that the chip runs for it."""

    flops: float
    schedule: tuple[ScheduledOperation, ...]
