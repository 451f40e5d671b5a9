"""Which tables there are, where they lie, and what they hold."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.domain.errors import InvalidInputError
from autotune.tables.cache import read_cache, read_flags
from autotune.tables.description import Description, descriptions
from autotune.tables.levels import read_python
from autotune.tables.plain import PlainTable, is_own, read_plain
from autotune.tables.table import TableRow, UnreadRow

FORMATS: Sequence[Description] = (
    *descriptions(),
    *(PlainTable(name=name, file="", syntax="plain") for name in ("json", "csv")),
)
ENDINGS = {
    ".json": "tokamax",
    ".jsonl": "json",
    ".csv": "csv",
    ".yml": "maxtext",
    ".yaml": "maxtext",
}
_READERS = {"python": read_python, "cache": read_cache, "flags": read_flags, "plain": read_plain}
_MOST_BYTES = 64 << 20
_PATHS = "import sys; sys.stdout.write('\\0'.join(sys.path))"  # nothing of a package is imported


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """``unread``: what of it cannot be read. ``folder``: that its package stands in, where it was
    found by its format."""

    format: Description
    path: Path
    rows: Sequence[TableRow] = ()
    unread: Sequence[UnreadRow]
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
    return _installed(_begins(name), python)


def formats_named(name: str) -> list[Description]:
    """That of the name, or those whose names begin with it. Raises ``InvalidInputError``."""
    if not (formats := _begins(name)):
        raise InvalidInputError(f"unknown format {name!r}: choose bundle, {_names()}")
    return formats


def _begins(name: str) -> list[Description]:
    return [form for form in FORMATS if form.name == name or form.name.startswith(f"{name}-")]


def format_named(name: str) -> Description:
    form = next((form for form in FORMATS if form.name == name), None)
    if form is None:
        raise InvalidInputError(f"unknown format {name!r}: choose one of {_names()}")
    return form


def _names() -> str:
    return ", ".join(form.name for form in FORMATS)


def _of_file(path: Path, form: str | None) -> FoundTable:
    if form is not None:
        return read_table(format_named(form), path)
    if path.suffix == ".json" and is_own(_text(path)):
        return read_table(format_named("json"), path)
    if path.suffix in ENDINGS:
        return read_table(format_named(ENDINGS[path.suffix]), path)
    for table in descriptions():
        if table.module and path.as_posix().endswith(table.file):
            return read_table(table, path)
    raise InvalidInputError(f"{path} is called like no table: say with --format which it is like")


def read_table(form: Description, path: Path, folder: Path | None = None) -> FoundTable:
    """Raises ``InvalidInputError``."""
    parts = list(_READERS[form.syntax](form, _text(path), str(path)))
    rows = [part for part in parts if isinstance(part, TableRow)]
    unread = [part for part in parts if isinstance(part, UnreadRow)]
    return FoundTable(format=form, path=path, rows=rows, unread=unread, folder=folder)


def _read_or_say(form: Description, path: Path, folder: Path | None = None) -> FoundTable:
    """One of several files: that it cannot be read is said beside what the others hold."""
    try:
        return read_table(form, path, folder)
    except InvalidInputError as error:
        why = UnreadRow(place="the whole file", reason=str(error))
        return FoundTable(format=form, path=path, unread=[why], folder=folder)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")  # spreadsheets begin a CSV with a BOM
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is no text: {error.reason}") from error


def _installed(formats: Sequence[Description], python: str) -> list[FoundTable]:
    folders = _folders(python)
    tables: list[FoundTable] = []
    for form in formats:
        if not form.file:
            raise InvalidInputError(f"{form.name} is a form of files: give the path of one")
        where = next((folder for folder in folders if any(folder.glob(form.file))), None)
        tables += [] if where is None else tables_in(form, where)
    if not tables:
        wanted = ", ".join(dict.fromkeys(form.file.partition("/")[0] for form in formats))
        raise InvalidInputError(
            f"{python} has no {wanted} with such a table: name another with --python, or give the "
            "path of a file"
        )
    return tables


def tables_in(form: Description, folder: Path) -> list[FoundTable]:
    """All of a format in a folder of packages, but for YAML that sets none of the flags."""
    tables = [_read_or_say(form, file, folder) for file in sorted(folder.glob(form.file))]
    return [table for table in tables if form.syntax != "flags" or table.rows]


def _folders(python: str) -> list[Path]:
    """Where an interpreter looks for packages."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", _PATHS], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", error)
        raise InvalidInputError(f"the interpreter {python} cannot be started: {why}") from error
    return [Path(folder) for folder in done.stdout.split("\0") if folder]
