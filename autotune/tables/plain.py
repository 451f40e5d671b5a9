"""Our own plain form: JSON lines, or CSV with named columns, a row for each config.

``kernel``, ``problem`` and ``config`` as `autotune estimate` takes them (``m=4096,…,dtype=bf16``,
``block_m=256,order=n>m,semantics=PA``); ``chip`` and ``time_us`` may be empty. ``kind`` says
whether a time was measured or estimated: an estimate is not taken over as a time.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, parse_chip
from autotune.domain.known_config import KnownConfig, named
from autotune.domain.problem import parsed_parts
from autotune.tables.description import Description
from autotune.tables.table import UNTYPED, Named, TableRow, UnreadRow

COLUMNS = ("kernel", "chip", "problem", "config", "time_us", "kind")
_NEEDED = ("kernel", "problem", "config")


class PlainTable(Description):
    """``name``: *json* or *csv*."""

    __slots__ = ()

    def known(self, row: TableRow) -> list[KnownConfig]:
        kernel, problem = row.key["kernel"], dict(row.key["problem"])
        return [self._config(row, kernel, problem, row.value, row.time_us)]

    def chips_of(self, key: Named) -> tuple[Chip, ...]:
        return (Chip(key["chip"]),) if key["chip"] else ()

    def rows_of(self, config: KnownConfig) -> list[tuple[Named, Named]]:
        chip = config.chips[0].value if config.chips else ""
        key = {"kernel": config.kernel, "chip": chip, "problem": config.problem}
        return [(key, dict(config.axes))]

    def takes(self, kernel: str) -> bool:  # noqa: ARG002 (any kernel)
        return True


def read_plain(table: Description, text: str, file: str) -> Iterator[TableRow | UnreadRow]:
    """Raises ``InvalidInputError``."""
    for line, row in (_csv if table.name == "csv" else _json)(text, file):
        place = f"line {line}"
        try:
            yield _row(place, row)
        except (InvalidInputError, *UNTYPED) as error:
            yield UnreadRow(place=place, reason=str(error))


def write_plain(table: Description, rows: Sequence[TableRow]) -> str:
    lines = [_columns(row) for row in rows]
    if table.name == "json":
        return "".join(json.dumps(line) + "\n" for line in lines)
    out = io.StringIO(newline="")
    columns = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    columns.writeheader()
    columns.writerows(lines)
    return out.getvalue()


def _columns(row: TableRow) -> Named:
    kind = "" if row.time_us is None else "measured"
    said = {"problem": named(row.key["problem"]), "config": named(row.value.items())}
    return {**row.key, **said, "time_us": row.time_us, "kind": kind}


def _json(text: str, file: str) -> Iterator[tuple[int, Any]]:  # noqa: ARG001 (as each reader takes it)
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _csv(text: str, file: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        lacking = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if lacking:
            raise InvalidInputError(
                f"{file} has no column {', '.join(lacking)}: its first line must be "
                f"{','.join(COLUMNS)}"
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InvalidInputError(f"{file} is no CSV: {error}") from error


def is_own(text: str) -> bool:
    """Whether it is JSON lines as they are written here, whatever the file is called."""
    try:
        first = json.loads(text.lstrip().partition("\n")[0])
    except UNTYPED:
        return False
    return isinstance(first, dict) and set(_NEEDED) <= set(first)


def _row(place: str, data: Any) -> TableRow:
    """``data``: the columns of a line, or its JSON. Raises ``ValueError`` and its like."""
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is no JSON: {error}") from error
    if None in data or None in (data.get(name, "") for name in _NEEDED):
        raise ValueError("it has more or fewer columns than the first")
    lacking = [name for name in _NEEDED if not isinstance(data.get(name), str) or not data[name]]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    chip = parse_chip(data["chip"]).value if data.get("chip") else ""
    time = data.get("time_us")
    time_us = None if time in (None, "") else float(time)
    if time_us is not None and not (isfinite(time_us) and time_us > 0):
        raise ValueError(f"time_us={time_us} is no time")
    problem = tuple(parsed_parts(data["problem"], "problem").items())
    key = {"kernel": data["kernel"], "chip": chip, "problem": problem}
    value = dict(parsed_parts(data["config"], "config"))
    is_time = data.get("kind") != "estimated"
    return TableRow(place=place, key=key, value=value, time_us=time_us if is_time else None)
