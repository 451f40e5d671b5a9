"""What a field of a call may hold: names, texts, sizes and times, each with its range."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from autotune.domain.limits import LEAST_US, MAX_DIMENSION, MOST_CHARACTERS, MOST_NAMES, MOST_US

_MOST_BYTES = 10**18
_FIRST_YEAR = 1970


def _no_number(given: Any) -> Any:
    """Pydantic would take seconds since 1970 for a time."""
    if isinstance(given, int | float):
        raise ValueError("must be a text such as 2026-01-31T12:00:00Z")
    return given


def _in_the_calendar(given: datetime) -> datetime:
    """At the ends of the calendar a time has no day in other zones."""
    if given.year < _FIRST_YEAR:
        raise ValueError(f"must be of {_FIRST_YEAR} or later")
    return given


def whole(given: Any) -> Any:
    """JSON has one kind of number: 2.0 is 2."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _printable(given: str) -> str:
    if not given.isprintable():
        raise ValueError("must have printable characters only")
    return given


Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$")]
Text = Annotated[str, Field(strict=True, max_length=MOST_CHARACTERS)]
Word = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_printable)]
Size = Annotated[int, Field(strict=True, ge=1, le=MAX_DIMENSION)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=_MOST_BYTES)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**9), BeforeValidator(whole)]
Flag = Annotated[bool, Field(strict=True)]
Micros = Annotated[float, Field(strict=True, ge=0, le=1e18, allow_inf_nan=False)]
Time = Annotated[float, Field(strict=True, ge=LEAST_US, le=MOST_US, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
_Whole = Annotated[int, Field(strict=True, ge=-_MOST_BYTES, le=_MOST_BYTES)]
Choice = Flag | Annotated[_Whole, BeforeValidator(whole)] | Word
When = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_the_calendar)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
