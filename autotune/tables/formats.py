"""Which formats there are, where a table is, and what it holds."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.domain.errors import InvalidInputError
from autotune.tables.plain import VARIABLE, MaxTextFlags, PlainTable, is_own
from autotune.tables.python_formats import PYTHON_FORMATS
from autotune.tables.python_table import generic
from autotune.tables.table import Table, TableFormat, UnreadRow
from autotune.tables.tokamax import TokamaxCache

FORMATS: Sequence[TableFormat] = (
    *PYTHON_FORMATS,
    TokamaxCache(),
    MaxTextFlags(),
    PlainTable(name="json"),
    PlainTable(name="csv"),
    PlainTable(name="python"),
)
ENDINGS = {
    ".json": "tokamax",
    ".jsonl": "json",
    ".csv": "csv",
    ".yml": "maxtext",
    ".yaml": "maxtext",
}
_MOST_BYTES = 64 << 20
_PATHS = "import sys; sys.stdout.write('\\0'.join(sys.path))"  # nothing of a package is imported


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """``folder``: that its package stands in, where it was found installed."""

    format: TableFormat
    path: Path
    table: Table
    folder: Path | None = None


def find_tables(name: str, form: str | None, python: str) -> list[FoundTable]:
    """``name`` is a file, a folder of tokamax's, or a format (or what its name begins with), whose
    tables are then those that are installed for ``python``. Nothing of them is executed. Raises
    ``InvalidInputError``."""
    path = Path(name)
    if path.is_dir():
        files = sorted(path.rglob("*.json"))
        if not files:
            raise InvalidInputError(f"there is no JSON file in {name}")
        return [_read_or_say(format_named(form or "tokamax"), file) for file in files]
    if path.is_file():
        return [_of_file(path, form)]
    if not _begins(name):
        raise InvalidInputError(
            f"{name} is neither a file nor a format: give one of {_names()}, or a path"
        )
    return list(_installed(_begins(name), python))


def formats_named(name: str) -> list[TableFormat]:
    """That of the name, or those whose names begin with it. Raises ``InvalidInputError``."""
    if not (formats := _begins(name)):
        raise InvalidInputError(f"unknown format {name!r}: choose bundle, {_names()}")
    return formats


def _begins(name: str) -> list[TableFormat]:
    return [form for form in FORMATS if form.name == name or form.name.startswith(f"{name}-")]


def format_named(name: str) -> TableFormat:
    for form in FORMATS:
        if form.name == name:
            return form
    raise InvalidInputError(f"unknown format {name!r}: choose one of {_names()}")


def _names() -> str:
    return ", ".join(form.name for form in FORMATS)


def _of_file(path: Path, form: str | None) -> FoundTable:
    if form is not None:
        return read_table(format_named(form), path)
    if path.suffix == ".json" and is_own(_text(path)):
        return read_table(format_named("json"), path)
    if path.suffix in ENDINGS:
        return read_table(format_named(ENDINGS[path.suffix]), path)
    if path.suffix != ".py":
        raise InvalidInputError(f"{path} may be anything: say which with --format")
    if f"\n{VARIABLE} = " in f"\n{_text(path)}":
        return read_table(format_named("python"), path)
    named = [form for form in PYTHON_FORMATS if path.as_posix().endswith(form.file)]
    if named:
        return read_table(named[0], path)
    whole = list(_whole(path))
    if len(whole) > 1:
        names = ", ".join(table.format.name for table in whole)
        raise InvalidInputError(f"{path} can be read as {names}: say which with --format")
    return whole[0] if whole else read_table(generic(_text(path), str(path)), path)


def _whole(path: Path) -> Iterator[FoundTable]:
    """As which formats all rows of a file can be read."""
    for form in PYTHON_FORMATS:
        try:
            candidate = read_table(form, path)
        except InvalidInputError:
            continue
        table = candidate.table
        if table.rows and not any("fields" in row.reason for row in table.unread):
            yield candidate


def read_table(form: TableFormat, path: Path, folder: Path | None = None) -> FoundTable:
    """Raises ``InvalidInputError``."""
    table = form.read(_text(path), str(path))
    return FoundTable(format=form, path=path, table=table, folder=folder)


def _read_or_say(form: TableFormat, path: Path, folder: Path | None = None) -> FoundTable:
    """One of several files: that it cannot be read is said beside what the others hold."""
    try:
        return read_table(form, path, folder)
    except InvalidInputError as error:
        why = UnreadRow(place="the whole file", reason=str(error))
        table = Table(file=str(path), rows=(), unread=(why,))
        return FoundTable(format=form, path=path, table=table, folder=folder)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")  # spreadsheets begin a CSV with a BOM
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is no text: {error.reason}") from error


def _installed(formats: Sequence[TableFormat], python: str) -> Iterator[FoundTable]:
    folders = _folders(python)
    anything = False
    for form in formats:
        if not form.file:
            raise InvalidInputError(f"{form.name} is a form of files: give the path of one")
        for folder in folders:
            files = sorted(folder.glob(form.file))
            for file in files:
                anything = True
                yield _read_or_say(form, file, folder)
            if files:
                break
    if not anything:
        wanted = ", ".join(dict.fromkeys(form.file.partition("/")[0] for form in formats))
        raise InvalidInputError(
            f"{python} has no {wanted} with such a table: name another with --python, or give the "
            "path of a file"
        )


def _folders(python: str) -> list[Path]:
    """Where an interpreter looks for packages."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", _PATHS], capture_output=True, text=True, timeout=60, check=True
        )
    except OSError as error:
        raise InvalidInputError(
            f"the interpreter {python} cannot be started: {error.strerror}"
        ) from error
    except subprocess.SubprocessError as error:
        raise InvalidInputError(f"the interpreter {python} does not start: {error}") from error
    return [Path(folder) for folder in done.stdout.split("\0") if folder]
