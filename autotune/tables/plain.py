"""Our own plain form: JSON lines, or CSV with named columns, a row for each config.

Or a Python file that says the same as a dictionary to paste.

``kernel``, ``problem`` and ``config`` as `autotune estimate` takes them (``m=4096,…,dtype=bf16``,
``block_m=256,…``); ``chip`` and ``time_us`` may be empty. ``kind`` says whether a time was measured
or estimated: an estimate is not taken over as a time.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from math import isfinite
from pprint import pformat
from typing import Any

from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.key import Chip, parse_chip
from autotune.domain.known_config import KnownConfig, named
from autotune.domain.problem import parsed_parts
from autotune.tables.python_source import entries
from autotune.tables.table import UNTYPED, Table, TableRow, UnreadRow

COLUMNS = ("kernel", "chip", "problem", "config", "time_us", "kind")
_NEEDED = ("kernel", "problem", "config")
VARIABLE = "TUNED_CONFIGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """Implements ``TableFormat``. ``name``: *json*, *csv* or *python*."""

    name: str
    file: str = ""

    def read(self, text: str, file: str) -> Table:
        return Table.of(file, starmap(_row, _LINES[self.name](text, file)))

    def known(self, row: TableRow) -> KnownConfig | str:
        chips = (Chip(row["chip"]),) if row["chip"] else ()
        return KnownConfig(
            kernel=row["kernel"],
            problem=row["problem"],
            chips=chips,
            axes=row.value,
            source=f"{self.name} {row.place}",
            time_us=row.time_us,
        )

    def row(self, known: KnownConfig) -> TableRow | str:
        chip = known.chips[0].value if known.chips else ""
        key = (("kernel", known.kernel), ("chip", chip), ("problem", known.problem))
        return TableRow(place=known.source, key=key, value=known.axes, time_us=known.time_us)

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        lines = [_columns(row) for row in rows]
        if self.name == "json":
            return text + "".join(json.dumps(line) + "\n" for line in lines)
        if self.name == "python":
            configs: dict[str, Any] = {}
            for line in lines:
                by_problem = configs.setdefault(line["kernel"], {}).setdefault(line["chip"], {})
                by_problem[line["problem"]] = line["config"]
            return f"{text}{VARIABLE} = {pformat(configs, sort_dicts=False, width=200)}\n"
        out = io.StringIO(newline="")
        table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
        return out.getvalue()


def _columns(row: TableRow) -> dict[str, Any]:
    return {
        "kernel": row["kernel"],
        "chip": row["chip"],
        "problem": named(row["problem"]),
        "config": named(row.value),
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


def _row(line: int, data: dict[str, Any] | str) -> TableRow | UnreadRow:
    """``data``: the columns of a line, or why it has none."""
    place = f"line {line}"
    row = data if isinstance(data, str) else _row_of(place, data)
    return UnreadRow(place=place, reason=row) if isinstance(row, str) else row


def _row_of(place: str, data: dict[str, Any]) -> TableRow | str:
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
    key = (("kernel", data["kernel"]), ("chip", chip), ("problem", tuple(problem.items())))
    return TableRow(place=place, key=key, value=tuple(config.items()), time_us=time_us)


_BLOCKS = {
    "sa_block_q": "block_q",
    "sa_block_kv": "block_kv",
    "sa_block_kv_compute": "block_kv_compute",
}
_SHAPE = {
    "base_num_query_heads": "heads",
    "base_num_kv_heads": "kv_heads",
    "max_target_length": "seq",
    "head_dim": "head_dim",
}
_TYPES = ("bfloat16", "float32")
_HARDWARE = "compile_topology"  # v5e-16: where a run is compiled ahead of time, or our own comment


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextFlags:
    """Implements ``TableFormat``. Its attention is tokamax's splash attention, copied; every block
    is cut to the sequence when it runs."""

    name: str = "maxtext"
    file: str = ""

    def read(self, text: str, file: str) -> Table:
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise InvalidInputError(f"{file} is YAML: pip install pyyaml") from error
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, *UNTYPED) as error:
            raise InvalidInputError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
        if not isinstance(data, dict):
            raise InvalidInputError(f"{file} holds no flags")
        value = {name: data[name] for name in _BLOCKS if name in data}
        if not value:
            raise InvalidInputError(f"{file} sets none of {', '.join(_BLOCKS)}")
        bad = [f"{n}={v!r}" for n, v in value.items() if type(v) is not int or v < 1]
        if bad:
            unread = UnreadRow(place="flags", reason=f"{', '.join(bad)} is no block size")
            return Table(file=file, rows=(), unread=(unread,))
        names = (*_SHAPE, "dtype", "attention_type", _HARDWARE)
        key = tuple((name, data[name]) for name in names if name in data)
        row = TableRow(place="flags", key=key, value=tuple(value.items()))
        return Table(file=file, rows=(row,))

    def known(self, row: TableRow) -> KnownConfig | str:
        key, value = dict(row.key), dict(row.value)
        lacking = [name for name in _SHAPE if type(key.get(name)) is not int]
        if lacking:
            return f"it does not say {', '.join(lacking)}: add them to the file"
        if key.get("attention_type", "global") != "global":
            return f"attention_type={key['attention_type']} is not in the catalogue"
        dtype = str(key.get("dtype", "bfloat16"))
        if dtype not in _TYPES:
            return f"{dtype} is not in the catalogue"
        try:
            chips = (parse_chip(str(key[_HARDWARE])),) if key.get(_HARDWARE) else ()
        except UnknownNameError as error:
            return str(error)
        problem = {ours: key[theirs] for theirs, ours in _SHAPE.items()}
        axes = {ours: min(value[n], problem["seq"]) for n, ours in _BLOCKS.items() if n in value}
        return KnownConfig(
            kernel="tokamax_splash_attention",
            problem=tuple({**problem, "dtype": dtype, "mask": "causal"}.items()),
            chips=chips,
            axes=tuple(axes.items()),
            source=f"{self.name} {row.place}",
        )

    def row(self, known: KnownConfig) -> TableRow | str:
        problem, axes = dict(known.problem), dict(known.axes)
        if known.kernel != "tokamax_splash_attention" or problem.get("mask") != "causal":
            return f"{self.name} has flags for causal tokamax_splash_attention only"
        key = {theirs: problem[ours] for theirs, ours in _SHAPE.items()}
        key |= {"dtype": problem["dtype"], _HARDWARE: known.chips[0].value}
        value = tuple((theirs, axes[ours]) for theirs, ours in _BLOCKS.items())
        return TableRow(place=known.source, key=tuple(key.items()), value=value)

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        if len(rows) != 1:
            raise InvalidInputError(
                f"MaxText has one set of flags for a run, these are {len(rows)}: name a problem "
                "with --shape and a --chip"
            )
        lines = [f"{name}: {value}" for name, value in (*rows[0].key, *rows[0].value)]
        seq = rows[0]["max_target_length"]
        head = (
            f"# Tuned for sequences of {seq} on {rows[0][_HARDWARE]}: MaxText cuts every block to\n"
            "# min(block, sequence), so shorter ones run with other blocks than these.\n"
        )
        return text + head + "\n".join(lines) + "\n"
