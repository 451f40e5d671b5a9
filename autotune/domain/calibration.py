"""Programs that were estimated and timed, to say how far estimates are off on one chip with one
toolchain; and the file in which such rows travel. It names no machine, path or person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain.codec import OmitDefault, from_data, to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Key
from autotune.domain.limits import Count, Micros, Time, Word, is_time
from autotune.domain.problem import Config

SCHEMA = 1
MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProgram:
    """``config`` is None for plain XLA. ``measured_us``: the median of ``samples`` device times.
    ``relayout_us``: of the estimate, what copies take that change nothing but the layout.
    ``program``: a hash of the instructions. ``from_file``: somebody else's time."""

    key: Key
    config: Config | None
    program: Word
    measured_us: Time
    samples: Count
    estimate_us: Time
    relayout_us: Micros
    limited_by: Word
    model: Word
    from_file: OmitDefault[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBars:
    """``kernels`` and ``xla``: the shares that nine of ten measured times stay within, made without
    their own family; None where too few were measured to say anything. ``rows`` programs of
    ``families`` kernels were measured, ``from_file`` of them by somebody else."""

    rows: int
    families: int
    from_file: int
    kernels: float | None = None
    xla: float | None = None


def calibration_data(rows: Sequence[MeasuredProgram]) -> dict[str, Any]:
    """Plain JSON data of a file: what was timed here."""
    return {"schema": SCHEMA, "rows": [to_data(row) for row in rows if not row.from_file]}


def calibration_rows(data: Any, name: str) -> list[MeasuredProgram]:
    """The rows of a file, each config once, at least one. Raises ``InvalidInputError`` with a
    sentence that calls it ``name``."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InvalidInputError(
            f"{name} is no calibration of schema {SCHEMA}: have it written by this version"
        )
    try:
        rows = [from_data(MeasuredProgram, row) for row in data["rows"][: MOST_ROWS + 1]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"{name} holds a row that cannot be read: {error}") from error
    if not 0 < len(rows) <= MOST_ROWS:
        raise InvalidInputError(f"{name} has no rows, or more than {MOST_ROWS}")
    for number, row in enumerate(rows, 1):
        if not is_time(row.measured_us):
            us = str(row.measured_us)[:20]
            raise InvalidInputError(f"{name}, row {number}: {us} µs is no time")
    return list({(row.key, row.config): row for row in reversed(rows)}.values())[::-1]
