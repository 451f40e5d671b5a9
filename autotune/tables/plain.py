"""Our own plain form: JSON lines, or CSV with named columns, a row for each config.

Or a Python file that says the same as a dictionary to paste.

``kernel``, ``problem`` and ``config`` as `autotune estimate` takes them (``m=4096,…,dtype=bf16``,
``block_m=256,order=n>m,semantics=PA``); ``chip`` and ``time_us`` may be empty. ``kind`` says
whether a time was measured or estimated: an estimate is not taken over as a time.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import starmap
from math import isfinite
from pprint import pformat
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, parse_chip
from autotune.domain.known_config import KnownConfig, named
from autotune.domain.problem import parsed_parts
from autotune.tables.description import Description
from autotune.tables.python_source import entries
from autotune.tables.table import UNTYPED, Named, TableRow, UnreadRow

COLUMNS = ("kernel", "chip", "problem", "config", "time_us", "kind")
_NEEDED = ("kernel", "problem", "config")
VARIABLE = "TUNED_CONFIGS"


class PlainTable(Description):
    """``name`` and ``syntax``: *json*, *csv* or *python*."""

    __slots__ = ()

    def known(self, row: TableRow) -> list[KnownConfig]:
        try:
            return [self.own(row)]
        except UNTYPED as error:
            raise ValueError(f"its values are not those of {self.name}: {error!s:.200}") from error

    def own(self, row: TableRow) -> KnownConfig:
        return KnownConfig(
            kernel=row.key["kernel"],
            problem=row.key["problem"],
            chips=self.chips_of(row.key),
            axes=tuple(row.value.items()),
            source=f"{self.name} {row.place}",
            time_us=row.time_us,
        )

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
    return starmap(_row, _LINES[table.name](text, file))


def write_plain(table: Description, rows: Sequence[TableRow]) -> str:
    lines = [_columns(row) for row in rows]
    if table.name == "json":
        return "".join(json.dumps(line) + "\n" for line in lines)
    if table.name == "python":
        configs: dict[str, Any] = {}
        for line in lines:
            by_problem = configs.setdefault(line["kernel"], {}).setdefault(line["chip"], {})
            by_problem[line["problem"]] = line["config"]
        return f"{VARIABLE} = {pformat(configs, sort_dicts=False, width=200)}\n"
    out = io.StringIO(newline="")
    columns = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    columns.writeheader()
    columns.writerows(lines)
    return out.getvalue()


def _columns(row: TableRow) -> Named:
    return {
        "kernel": row.key["kernel"],
        "chip": row.key["chip"],
        "problem": named(row.key["problem"]),
        "config": named(row.value.items()),
        "time_us": row.time_us,
        "kind": "" if row.time_us is None else "measured",
    }


def _json_lines(text: str, file: str) -> Iterator[tuple[int, Any]]:  # noqa: ARG001 (as each reader takes it)
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                data = f"it is no JSON: {error}"
            yield number, data if isinstance(data, (dict, str)) else "it is no object"


def _csv_lines(text: str, file: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        lacking = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if lacking:
            raise InvalidInputError(
                f"{file} has no column {', '.join(lacking)}: its first line must be "
                f"{','.join(COLUMNS)}"
            )
        for row in reader:
            extra = None in row or None in row.values()
            yield reader.line_num, "it has more or fewer columns than the first" if extra else row
    except csv.Error as error:
        raise InvalidInputError(f"{file} is no CSV: {error}") from error


def _python_lines(text: str, file: str) -> Iterator[tuple[int, Any]]:
    leaves, unread = entries(text, VARIABLE, file)
    for entry in leaves:
        key = dict(zip(("kernel", "chip", "problem"), entry.path, strict=False))
        yield entry.line, {**key, "config": entry.value}
    for row in unread:
        yield int(row.place.rpartition(" ")[2]), row.reason


_LINES = {"json": _json_lines, "csv": _csv_lines, "python": _python_lines}


def is_own(text: str) -> bool:
    """Whether it is JSON lines as they are written here, whatever the file is called."""
    first = next(_json_lines(text.lstrip().partition("\n")[0], ""), (0, None))[1]
    return isinstance(first, dict) and set(_NEEDED) <= set(first)


def _row(line: int, data: Named | str) -> TableRow | UnreadRow:
    """``data``: the columns of a line, or why it has none."""
    place = f"line {line}"
    row = data if isinstance(data, str) else _row_of(place, data)
    return UnreadRow(place=place, reason=row) if isinstance(row, str) else row


def _row_of(place: str, data: Named) -> TableRow | str:
    lacking = [name for name in _NEEDED if not isinstance(data.get(name), str) or not data[name]]
    if lacking:
        return f"it lacks {', '.join(lacking)}"
    try:
        problem = parsed_parts(data["problem"], "problem")
        config = parsed_parts(data["config"], "config")
        chip = parse_chip(data["chip"]).value if data.get("chip") else ""
        time = data.get("time_us")
        time_us = None if time in (None, "") else float(time)
    except (InvalidInputError, *UNTYPED) as error:
        return str(error)
    if time_us is not None and not (isfinite(time_us) and time_us > 0):
        return f"time_us={time_us} is no time"
    if data.get("kind") == "estimated":
        time_us = None
    key = {"kernel": data["kernel"], "chip": chip, "problem": tuple(problem.items())}
    return TableRow(place=place, key=key, value=dict(config), time_us=time_us)
