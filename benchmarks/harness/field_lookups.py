"""What packages read from their own tables, row by row, beside what we read."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.tables.asking import ask_lookup, ask_tokamax, is_used
from autotune.tables.description import Description
from autotune.tables.formats import FoundTable, find_tables
from autotune.tables.levels import valued
from autotune.tables.table import TableRow

CHIPS = (Chip.V6E, Chip.V7X, Chip.V5E, Chip.V5P)
_MAXTEXT = """
import json, sys
sys.path.insert(0, {child!r})
from table_lookup import _imported
pyconfig, flags = _imported("maxtext.configs.pyconfig"), {{}}
for file, names in json.load(sys.stdin).items():
    given = ["", file, "run_name=a", "skip_jax_distributed_system=true", "hardware=cpu"]
    config = pyconfig.initialize_pydantic(given)
    flags[file] = {{name: getattr(config, name) for name in names}}
json.dump(flags, sys.stdout)
"""


@dataclass(kw_only=True)
class Counts:
    """Rows of a table. ``known``: of a kernel of the catalogue; ``same``: for which the lookup
    returns what was read; ``why``: for the others."""

    name: str
    since: str
    read: int = 0
    known: int = 0
    same: int = 0
    is_used: bool = True
    unread: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return self.read + sum(self.unread.values())


def sources_of(table: Description, python: str) -> list[FoundTable]:
    """None where the interpreter does not have it."""
    try:
        return [t for t in find_tables(table.name, None, python) if t.format is table]
    except InvalidInputError:
        return []


def counted(table: Description, python: str) -> Counts | None:
    """None where the interpreter does not have it."""
    if not (sources := sources_of(table, python)):
        return None
    counts = Counts(name=table.name, since=table.since)
    for source in sources:
        counts.read += len(source.rows)
        counts.known += sum(_is_known(table, row) for row in source.rows)
        counts.unread.update(_short(row.reason) for row in source.unread)
        if table.module and source.folder is not None:
            folder = source.folder
            counts.is_used = is_used(table.file, table.lookup, folder, table.used_outside)
    for _, why in compared(sources, python):
        counts.same += not why
        counts.why.update([why] if why else [])
    return counts


def _is_known(table: Description, row: TableRow) -> bool:
    try:
        return not table.configs(row)[1]
    except ValueError:
        return False


def _short(reason: str) -> str:
    return "the same key stands in the table again" if "same key again" in reason else reason


def compared(sources: Sequence[FoundTable], python: str) -> Iterator[tuple[TableRow, str]]:
    """Each row, and what its library returns that was not read; empty where it is the same."""
    if sources[0].format.syntax == "cache":
        yield from _cached(sources, python)
        return
    for source in sources:
        if source.format.syntax == "flags":
            yield from _flags(source, python)
            continue
        for chip in CHIPS if source.format.device else CHIPS[:1]:
            yield from _looked_up(source, chip, python)


def _looked_up(source: FoundTable, chip: Chip, python: str) -> Iterator[tuple[TableRow, str]]:
    table = source.format
    rows = [
        row
        for row in source.rows
        if not table.device or chip is next(iter(table.chips_of(row.key)), None)
    ]
    for row, answer in zip(rows, ask_lookup(table, rows, chip, python), strict=True):
        if answer.error and not answer.is_reached:
            yield row, answer.error
        elif answer.path == ():
            yield row, "the lookup does not look into its table"
        elif not answer.is_reached:
            yield row, "the lookup asks for another key"
        else:
            taken = valued(table, answer.taken, made=True)
            alike = all(is_cut(taken.get(name, ...), size) for name, size in row.value.items())
            made = valued(table, answer.made, made=True)
            same = alike and made.items() <= taken.items()
            yield row, "" if same else f"{taken} is returned"


def is_cut(taken: object, size: object) -> bool:
    """Lookups cut blocks to what the problem has: never to more than the table says."""
    both = isinstance(taken, int) and isinstance(size, int)
    return taken == size or (both and 0 < taken < size)  # type: ignore[operator]


def _cached(sources: Sequence[FoundTable], python: str) -> Iterator[tuple[TableRow, str]]:
    """tokamax takes the fastest config of a key: each row of a key is compared with its own."""
    alone: dict[Path, str] = {}
    rows: list[tuple[TableRow, Path]] = []
    for source in sources:
        known, seen = json.loads(source.path.read_text(encoding="utf-8")), Counter[str]()
        folder, name = source.path.parent, source.path.name
        for row in source.rows:
            rows.append((row, folder / str(seen[row.path[0]]) / name))
            seen[row.path[0]] += 1
        for number in range(max(seen.values(), default=0)):
            nth = {k: dict([[*c.items()][number]]) for k, c in known.items() if len(c) > number}
            alone[folder / str(number) / name] = json.dumps(nth)
    answers = ask_tokamax(alone, python) if alone else {}
    for row, file in rows:
        answer = answers[file][row.path[0]]
        taken = answer.taken or {}
        other = {
            n: taken.get(n) for n, v in row.value.items() if type(v) is int and taken.get(n) != v
        }
        yield row, answer.error or (f"{other} is returned" if _differs(other) else "")


def _differs(other: dict[str, object]) -> bool:
    """Layouts are numbers in the file and enums in its classes."""
    return any(type(value) is int for value in other.values())


def _flags(source: FoundTable, python: str) -> Iterator[tuple[TableRow, str]]:
    child = (
        Path(sys.modules[Description.__module__].__file__ or "").parents[1] / "compiling" / "child"
    )
    (row,) = source.rows
    done = subprocess.run(
        [python, "-P", "-c", _MAXTEXT.format(child=str(child))],
        input=json.dumps({str(source.path): list(row.value)}),
        capture_output=True,
        text=True,
        cwd=source.path.parent,
        check=False,
    )
    if done.returncode:
        yield row, done.stderr.strip().rpartition("\n")[2]
        return
    flags = json.loads(done.stdout.rpartition("\n")[2])[str(source.path)]
    yield row, "" if flags == row.value else f"{flags} is returned"
