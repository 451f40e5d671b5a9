"""What a field may hold where a stranger sends it: the limits that stand beside its type.

The service checks them, and its description of the interface is made of them. What a database, a
bundle or another process of this machine holds is read without: it stays readable where a limit is
younger.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

LEAST_US, MOST_US = 1e-6, 1e12
MOST_CHARACTERS = 100_000  # of a text, such as a compiler's message
MOST_NAMES = 64
MAX_DIMENSION = 2**31 - 1  # TPU index arithmetic is 32-bit
_MOST_BYTES = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """``shortest``, ``longest``: characters of a text, or items. ``printable``: no character that
    acts on a terminal. ``finite``: *inf* and *nan* are not taken. ``integral``: 2.0 is taken for 2,
    as JSON has one kind of number."""

    least: float | None = None
    most: float | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None
    printable: bool = False
    finite: bool = True
    integral: bool = False


Name = Annotated[str, Limit(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$")]
Names = Annotated[tuple[Name, ...], Limit(longest=MOST_NAMES)]
Text = Annotated[str, Limit(longest=MOST_CHARACTERS)]
Word = Annotated[str, Limit(longest=200, printable=True)]
Size = Annotated[int, Limit(least=1, most=MAX_DIMENSION)]
Bytes = Annotated[int, Limit(least=0, most=_MOST_BYTES)]
Count = Annotated[int, Limit(least=0, most=10**9, integral=True)]
Micros = Annotated[float, Limit(least=0, most=1e18)]
Time = Annotated[float, Limit(least=LEAST_US, most=MOST_US)]
"""Microseconds that a call can take: from a picosecond, which no chip does, to eleven days."""
Share = Annotated[float, Limit(least=0, most=1e6)]
Positive = Annotated[float, Limit(least=0)]
_Whole = Annotated[int, Limit(least=-_MOST_BYTES, most=_MOST_BYTES, integral=True)]
Choice = bool | _Whole | Word
"""The value of an option or of an axis."""
When = Annotated[datetime, Limit(least=1970, most=9998)]
"""Years. At the ends of the calendar a time has no day in other zones."""


def is_time(time_us: float) -> bool:
    """Whether a call can take so many microseconds."""
    return LEAST_US <= time_us <= MOST_US
