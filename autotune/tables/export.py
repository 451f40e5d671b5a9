"""Published records as rows of a table of others, looked up by its library before they are given
out."""

import difflib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig
from autotune.domain.problem import Config
from autotune.domain.record import Method, Record
from autotune.tables.asking import LookupAnswer, ask_child, ask_lookup, kind_of
from autotune.tables.formats import FoundTable, find_tables, formats_named, read_table
from autotune.tables.python_table import PythonTable
from autotune.tables.table import TableFormat, TableRow
from autotune.tables.tokamax import TokamaxCache

_NO_END = "\\ No newline at end of file\n"

Refused = list[tuple[str, str]]
"""Which record, and why it is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """``text``: what to write; empty where nothing could be. ``rows``: how many are in it."""

    text: str
    rows: int
    refused: Refused


@dataclass(slots=True, kw_only=True)
class TableExport:
    """``name``: of a format, or what the names of a package's begin with. ``table``: the source to
    change, where it is not the one that is installed for ``python``."""

    name: str
    python: str
    table: str | None = None
    _refused: Refused = field(default_factory=list)

    def of(self, records: Sequence[Record]) -> Export:
        """Raises ``AutotuneError`` where the whole cannot be written."""
        forms = formats_named(self.name)
        records = [record for record in records if self._has_place(record)]
        parts, count = [], 0
        for form in forms:
            rows = self._rows(form, [record for record in records if _takes(form, record)])
            if rows:
                parts.append(self._written(form, rows))
                count += len(rows)
        for record in records:
            if not any(_takes(form, record) for form in forms):
                self._refuse(record, f"{self.name} has no table of {record.key.kernel}")
        return Export(text="".join(parts), rows=count, refused=self._refused)

    def _refuse(self, record: Record, why: str) -> None:
        self._refused.append((f"{record.key.kernel} {record.key.problem} {record.key.chip}", why))

    def _has_place(self, record: Record) -> bool:
        """No table has a place for more than the values of axes."""
        why = _without_place(record.config, record.default.config)
        if why:
            self._refuse(record, why)
        return not why

    def _rows(self, form: TableFormat, records: Sequence[Record]) -> list[tuple[Record, TableRow]]:
        rows: list[tuple[Record, TableRow]] = []
        for record in records:
            row = form.row(known_config(record))
            if isinstance(row, str):
                self._refuse(record, row)
            elif form.name == "python" and any(row.key == other.key for _, other in rows):
                self._refuse(record, "its place has the record of another toolchain")
            else:
                rows.append((record, row))
        if rows and isinstance(form, PythonTable) and not form.device:
            _only_chip(rows, f"the keys of {form.name} name no TPU")
        return rows

    def _written(self, form: TableFormat, rows: Sequence[tuple[Record, TableRow]]) -> str:
        if isinstance(form, TokamaxCache):
            return self._tokamax(rows)
        if isinstance(form, PythonTable):
            return self._patch(form, rows)
        return form.write("", [row for _, row in rows])

    def _patch(self, form: PythonTable, rows: Sequence[tuple[Record, TableRow]]) -> str:
        """Of the source of a table, and looked up in it by its library."""
        path = self._source(form).path
        old = path.read_text(encoding="utf-8")
        by_chip: dict[Chip, list[TableRow]] = {}
        for record, row in rows:
            by_chip.setdefault(record.key.chip, []).append(row)
        by_chip = {chip: self._rounded(form, of_chip, chip) for chip, of_chip in by_chip.items()}
        all_rows = list(chain.from_iterable(by_chip.values()))
        _no_two(form, all_rows)
        new = form.write(old, all_rows)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path.name
            file.write_text(new, encoding="utf-8")
            for chip, of_chip in by_chip.items():
                _looked_up(form, of_chip, chip, self.python, file)
        name = form.file
        before, after = (re.findall(r"[^\n]*\n|[^\n]+", source) for source in (old, new))
        changes = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(
            change if change.endswith("\n") else f"{change}\n{_NO_END}" for change in changes
        )

    def _source(self, form: PythonTable) -> FoundTable:
        if self.table is None:
            return find_tables(form.name, None, self.python)[0]
        return read_table(form, Path(self.table))

    def _rounded(self, form: PythonTable, rows: Sequence[TableRow], chip: Chip) -> list[TableRow]:
        """Under the keys that the lookup asks for."""
        answers = ask_lookup(form, rows, chip, self.python)
        for row, answer in zip(rows, answers, strict=True):
            if not answer.paths or not answer.paths[0]:
                why = answer.error or "it asks its table for nothing"
                raise InvalidInputError(f"the lookup of {form.name} fails for {row.place}: {why}")
        return [replace(row, path=a.paths[0]) for row, a in zip(rows, answers, strict=True)]

    def _tokamax(self, rows: Sequence[tuple[Record, TableRow]]) -> str:
        chip = _only_chip(rows, "tokamax has a file for each TPU")
        calls = [_call(record, row) for record, row in rows]
        written = ask_child("tokamax_cache.py", {"task": "write", "calls": calls}, self.python)
        asked = {"task": "look up", "calls": calls, "text": written["text"]}
        asked["device_kind"] = kind_of(chip)
        is_found = ask_child("tokamax_cache.py", asked, self.python)["found"]
        lost = next(
            (r for (r, _), is_there in zip(rows, is_found, strict=True) if not is_there), None
        )
        if lost is not None:
            raise InvalidInputError(
                f"this tokamax does not find {lost.key.problem} in the file that it wrote: "
                "nothing was written"
            )
        return str(written["text"])


def known_config(record: Record) -> KnownConfig:
    """A record as a table says it; its time where it was measured."""
    key = record.key
    problem = {**dict(key.problem.dims), "dtype": key.problem.dtype, **dict(key.problem.options)}
    return KnownConfig(
        kernel=key.kernel,
        problem=tuple(problem.items()),
        chips=(key.chip,),
        axes=record.config.axes,
        source=f"{key.kernel} {key.problem} {key.chip}",
        time_us=record.time_us if record.method is Method.MEASURED else None,
    )


def _without_place(config: Config, default: Config | None) -> str:
    """What a config says beside the values of its axes, or empty where it says nothing else."""
    if config.vmem_limit_bytes is not None:
        return f"there is no place for vmem_limit_bytes={config.vmem_limit_bytes}"
    if default is not None and default.grid_order not in ((), config.grid_order):
        return f"there is no place for the grid order {'>'.join(config.grid_order)}"
    if default is not None and default.dimension_semantics not in ((), config.dimension_semantics):
        return "there is no place for dimension semantics that are not the default's"
    return ""


def _takes(form: TableFormat, record: Record) -> bool:
    return not isinstance(form, PythonTable) or form.kernel == record.key.kernel


def _only_chip(rows: Sequence[tuple[Record, TableRow]], why: str) -> Chip:
    """The chip of all records. Raises ``InvalidInputError``, which says ``why`` there may be no
    other one."""
    chips = sorted({record.key.chip for record, _ in rows})
    if len(chips) > 1:
        raise InvalidInputError(
            f"{why}, these records are for {', '.join(chips)}: choose one with --chip"
        )
    return chips[0]


def _no_two(form: PythonTable, rows: Sequence[TableRow]) -> None:
    values: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        if values.setdefault(row.path, row.value) != row.value:
            raise InvalidInputError(
                f"two records have the key {row.path} of {form.name} and different blocks: choose "
                "one with --kernel, --chip or --shape"
            )


def _looked_up(
    form: PythonTable, rows: Sequence[TableRow], chip: Chip, python: str, file: Path
) -> None:
    """In the patched file, which is imported. Raises ``InvalidInputError``."""
    for row, answer in zip(rows, ask_lookup(form, rows, chip, python, file), strict=True):
        if not _says(form, row, answer):
            raise InvalidInputError(
                f"the lookup of {form.name} does not find {row.place} in the changed table: "
                "nothing was written"
            )


def _says(form: PythonTable, row: TableRow, answer: LookupAnswer) -> bool:
    """Whether the lookup takes from the file what the row says; it may add defaults of more
    fields."""
    if answer.from_file is None or answer.made is None:
        return False
    try:
        taken = dict(form.valued(row, answer.from_file).value)
        wanted = dict(form.valued(row, answer.made).value)
    except ValueError:  # it makes something else of a row
        return False
    return wanted.items() <= taken.items()


def _call(record: Record, row: TableRow) -> dict[str, Any]:
    problem = row["arguments"]
    measured = record.method is Method.MEASURED
    said = {"source": "pallas-autotune", "toolchain": str(record.key.toolchain)}
    return {
        **{name: problem[name] for name in ("m", "k", "n", "groups", "dtype", "mode")},
        "config": dict(row.value),
        "time_ms": record.time_us / 1000,
        "metadata": said if measured else {**said, "estimated": True},
    }
