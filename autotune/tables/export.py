"""Published records as rows of tables of others, looked up by the library before they are given
out."""

import difflib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig
from autotune.domain.problem import Config, semantics_text
from autotune.domain.record import Method, Record
from autotune.publishing.checking.selection import selected
from autotune.tables import formats
from autotune.tables.asking import LookupAnswer, ask_lookup, ask_tokamax
from autotune.tables.cache import compact, filled, write_flags, yaml_of
from autotune.tables.description import Description, NotInCatalogueError
from autotune.tables.levels import path_of, valued, write_python
from autotune.tables.plain import write_plain
from autotune.tables.table import Named, TableRow

_NOT_SOURCE = {"build", "site-packages"}
_NO_END = "\\ No newline at end of file\n"
_FLAGS = """\
# Tuned for sequences of {max_target_length} on {chips}: MaxText cuts every block to
# min(block, sequence), so shorter ones run with other blocks than these.
"""

_MANUAL: Named = {"manual_axis_type": {"varying": [], "unreduced": [], "reduced": []}}
"""So tokamax's own gradients ask, and no row that it ships says."""

Refused = list[tuple[str, str]]
"""Which record, and why it is not written."""
_Rows = Sequence[tuple[Record, TableRow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file, relative to the folder of its packages or to its repository, and its text.
    ``formatter``: that its project names, if any."""

    file: str
    before: str
    after: str
    formatter: str = ""
    is_formatted: bool = False

    @property
    def patch(self) -> str:
        before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (self.before, self.after))
        changes = difflib.unified_diff(before, after, f"a/{self.file}", f"b/{self.file}")
        return "".join(c if c.endswith("\n") else f"{c}\n{_NO_END}" for c in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """``text``: what to write; empty where nothing could be. ``changes``: of files, where they are
    changed in place. ``records``: those that are in it."""

    text: str
    records: Sequence[Record]
    refused: Refused
    changes: Sequence[FileChange] = ()


def packages_folder(repository: Path, form: Description) -> Path | None:
    """Where a checked-out project has the packages with such a table; none of what is installed in
    it, or built."""
    for file in sorted(repository.rglob(form.file)):
        parts = file.relative_to(repository).parts
        if not any(part in _NOT_SOURCE or part.startswith(".") for part in parts):
            return next(folder for folder in file.parents if any(folder.glob(form.file)))
    return None


@dataclass(slots=True, kw_only=True)
class TableExport:
    """``name``: of a format, or what the names of a package's begin with. ``table``: the source to
    change, where it is not the one that is installed for ``python``; ``repository``: a checked-out
    project that has it."""

    name: str
    python: str
    table: str | None = None
    repository: Path | None = None
    _refused: Refused = field(default_factory=list)

    def of(self, records: Sequence[Record], *, exact: bool = False) -> Export:
        """The newest of each kernel, problem and chip. ``exact``: of no other format whose name
        begins so. Raises ``AutotuneError`` where the whole cannot be written."""
        records = selected(records)
        forms = [formats.format_named(self.name)] if exact else formats.formats_named(self.name)
        text, written, changes = "", dict[int, Record](), list[FileChange]()
        for form in forms:
            of_form = [record for record in records if form.takes(record.key.kernel)]
            rows: _Rows = [row for record in of_form for row in self._rows(form, record)]
            if not rows:
                continue
            if form.syntax in _TEXTS and self.repository is None:
                text += _TEXTS[form.syntax](form, rows)
            else:
                changes += self._changes(form, rows)
            written |= {id(record): record for record, _ in rows}
        for record in records:
            if not any(form.takes(record.key.kernel) for form in forms):
                self._refuse(record, f"{self.name} has no table of {record.key.kernel}")
        text += "".join(change.patch for change in changes)
        refused = dict(self._refused)
        done = [record for record in written.values() if known_config(record).source not in refused]
        return Export(text=text, records=done, refused=self._refused, changes=changes)

    def _refuse(self, record: Record, why: str) -> None:
        self._refused.append((known_config(record).source, why))

    def _rows(self, form: Description, record: Record) -> Iterator[tuple[Record, TableRow]]:
        known = known_config(record, whole=form.syntax == "plain")
        why = "" if form.syntax == "plain" else _without_place(record.config, record.default.config)
        try:
            rows = [] if why else form.rows_of(known)
            if len(rows) > 1 and form.syntax == "flags" and self.repository is None:
                rows, why = [], "a run says which it is of, up or down: `autotune apply` writes it"
            for key, value in rows:
                path = path_of(form, key) if form.module else ()
                row = TableRow(place=known.source, key=key, value=value, path=path)
                yield record, replace(row, time_us=known.time_us)
        except (NotInCatalogueError, KeyError) as error:
            why = str(error)
        if why:
            self._refuse(record, why)

    def _changes(self, form: Description, rows: _Rows) -> Iterator[FileChange]:
        if not form.device:
            _only_chip(rows, f"the keys of {form.name} name no TPU")
        sources = self._sources(form)
        if form.syntax != "python":
            yield from (self._runs if form.syntax == "flags" else self._caches)(sources, rows)
            return
        for source in sources[:1]:
            before = source.path.read_text(encoding="utf-8")
            yield self._change(source, self._looked_up(source, rows, before))

    def _sources(self, form: Description) -> list[formats.FoundTable]:
        if self.table is not None:
            return [formats.read_table(form, Path(self.table))]
        if self.repository is None:
            return formats.find_tables(form.name, None, self.python)
        folder = packages_folder(self.repository, form)
        return [] if folder is None else formats.tables_in(form, folder)

    def _change(self, source: formats.FoundTable, after: str) -> FileChange:
        """With the line ends of the file."""
        before, file = source.path.read_bytes().decode(), source.format.file
        if source.folder is not None:
            file = source.path.relative_to(self.repository or source.folder).as_posix()
        after = after.replace("\n", "\r\n") if "\r\n" in before else after
        return FileChange(file=file, before=before, after=after)

    def _runs(self, sources: Sequence[formats.FoundTable], rows: _Rows) -> Iterator[FileChange]:
        """Of runs that have the problem and set flags, but not of what all runs are based on."""
        left = {id(record): record for record, _ in rows}
        for source in sources:
            before = source.path.read_text(encoding="utf-8")
            key, data = source.rows[0].key, yaml_of(before, str(source.path))
            fits = [pair for pair in rows if pair[1].key.items() <= key.items()]
            fits = [pair for pair in fits if source.format.is_for(key, pair[0].key.chip)]
            if fits and data.get("base_config"):
                _only_chip(fits, f"{source.path} has one set of flags")
                left = {n: r for n, r in left.items() if all(r is not record for record, _ in fits)}
                after = write_flags(before, [replace(row, key={}) for _, row in fits])
                data |= {n: v for _, row in fits for n, v in row.value.items()}
                if yaml_of(after, f"the changed {source.path}") != data:
                    raise _lost(source, fits[0][1].place)
                yield self._change(source, after)
        for record in left.values():
            self._refuse(record, "no run here that sets flags is of its problem and TPU")

    def _looked_up(self, source: formats.FoundTable, rows: _Rows, before: str) -> str:
        """The changed source of a table, in which its library finds each row, under the key that it
        asks for."""
        form, packages = source.format, source.folder if self.repository else None
        ask = partial(ask_lookup, form, python=self.python, packages=packages)
        by_chip: dict[Chip, list[TableRow]] = {}
        for record, row in rows:
            by_chip.setdefault(record.key.chip, []).append(row)
        for chip, of_chip in by_chip.items():
            answers = ask(of_chip, chip)
            by_chip[chip] = [_asked(form, r, a) for r, a in zip(of_chip, answers, strict=True)]
        all_rows = [row for of_chip in by_chip.values() for row in of_chip]
        _no_two(form, all_rows)
        after = write_python(form, before, all_rows)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / source.path.name
            file.write_text(after, encoding="utf-8")
            for chip, of_chip in by_chip.items():
                for row, answer in zip(of_chip, ask(of_chip, chip, file=file), strict=True):
                    if not _says(form, answer):
                        raise _lost(source, row.place)
        return after

    def _caches(self, sources: Sequence[formats.FoundTable], rows: _Rows) -> Iterator[FileChange]:
        """Of each TPU and op, in which tokamax finds each call: those that its file has of the kind
        with other sizes, with residuals and without."""
        files: dict[Path, dict[str, tuple[Named, TableRow]]] = {}
        kinds: dict[tuple[object, ...], dict[str, formats.FoundTable]] = {}
        for record, row in rows:
            options = record.key.problem.options
            kind = record.key.kernel, options, *row.key, row.key["op"], row.key["device"]
            if kind not in kinds:
                kinds[kind] = self._alike(sources, record, row)
            is_backward = dict(options).get("mode") in ("dlhs", "drhs")
            for text, source in kinds[kind].items():
                call, calls = filled(json.loads(text), row.key), files.setdefault(source.path, {})
                for form in (call, {**call, **_MANUAL})[: 1 + is_backward]:
                    calls[compact(form)] = {compact(row.value): _data(record)}, row
            if not kinds[kind]:
                self._refuse(record, "its file has no call of this kind, whose key could be taken")
        packages = sources[0].folder if sources and self.repository else None
        before = {path: path.read_text(encoding="utf-8") for path in files}
        after = {
            path: json.dumps(json.loads(text) | {k: c[0] for k, c in files[path].items()}, indent=2)
            + "\n" * text.endswith("\n")
            for path, text in before.items()
        }
        answers = ask_tokamax(after, self.python, packages) if after else {}
        for source in [source for source in sources if source.path in files]:
            path = source.path
            for key, (_, row) in files[path].items():
                answer = answers[path][key]
                if not answer.is_reached or not row.value.items() <= dict(answer.taken).items():
                    raise _lost(source, row.place)
            yield self._change(source, after[path])

    def _alike(
        self, sources: Sequence[formats.FoundTable], record: Record, row: TableRow
    ) -> dict[str, formats.FoundTable]:
        """Calls of its op, TPU and kernel, without sizes, and where they are."""
        options = dict(record.key.problem.options).items()
        sizes = {name: 0 for name, value in row.key.items() if type(value) is int}
        file, alike = f"{row.key['device']}/{row.key['op']}.json", dict[str, formats.FoundTable]()
        for source, other in ((s, r) for s in sources if s.path.match(file) for r in s.rows):
            try:
                for known in source.format.configs(other)[0]:
                    if known.kernel == record.key.kernel and options <= dict(known.problem).items():
                        alike[compact(filled(json.loads(other.path[0]), sizes))] = source
            except ValueError as error:
                bad = other.place, str(error)
                self._refused += [bad] * (bad not in self._refused)
        return alike


def known_config(record: Record, *, whole: bool = False) -> KnownConfig:
    """A record as a table says it; its time where it was measured. ``whole``: its config with the
    grid order and what else every kernel has."""
    key = record.key
    problem = {**dict(key.problem.dims), "dtype": key.problem.dtype, **dict(key.problem.options)}
    return KnownConfig(
        kernel=key.kernel,
        problem=tuple(problem.items()),
        chips=(key.chip,),
        axes=_whole(record.config) if whole else record.config.axes,
        source=f"{key.kernel} {key.problem} {key.chip}",
        time_us=record.time_us if record.method is Method.MEASURED else None,
    )


def _whole(config: Config) -> tuple[tuple[str, Any], ...]:
    """As ``autotune estimate`` takes it."""
    limit = config.vmem_limit_bytes
    more = {
        "order": ">".join(config.grid_order),
        "semantics": semantics_text(config.dimension_semantics),
        "vmem": "" if limit is None else f"{limit}B",
    }
    return (*config.axes, *((name, text) for name, text in more.items() if text))


def _without_place(config: Config, default: Config | None) -> str:
    """What a config says beside the values of its axes, or empty where it says nothing else."""
    if config.vmem_limit_bytes is not None:
        return f"there is no place for vmem_limit_bytes={config.vmem_limit_bytes}"
    if default is not None and default.grid_order not in ((), config.grid_order):
        return f"there is no place for the grid order {'>'.join(config.grid_order)}"
    if default is not None and default.dimension_semantics not in ((), config.dimension_semantics):
        return "there is no place for dimension semantics that are not the default's"
    return ""


def _flags(_: Description, rows: _Rows) -> str:
    head = _FLAGS.format(**rows[0][1].key, chips=_only_chip(rows, "MaxText has one set of flags"))
    return head + write_flags("", [row for _, row in rows])


_TEXTS: dict[str, Callable[[Description, _Rows], str]] = {
    "plain": lambda form, rows: write_plain(form, [row for _, row in rows]),
    "flags": _flags,
}


def _only_chip(rows: _Rows, why: str) -> Chip:
    """The chip of all records. Raises ``InvalidInputError``, which says ``why`` there may be no
    other one."""
    chips = sorted({record.key.chip for record, _ in rows})
    if len(chips) > 1:
        raise InvalidInputError(
            f"{why}, these records are for {', '.join(chips)}: choose one with --chip"
        )
    return chips[0]


def _asked(form: Description, row: TableRow, answer: LookupAnswer) -> TableRow:
    """Under the key that the lookup asks for."""
    if not answer.path:
        why = answer.error or "it asks its table for nothing"
        raise InvalidInputError(f"the lookup of {form.name} fails for {row.place}: {why}")
    return replace(row, path=answer.path)


def _no_two(form: Description, rows: Sequence[TableRow]) -> None:
    seen: dict[tuple[Any, ...], TableRow] = {}
    for row in rows:
        if (first := seen.setdefault(row.path, row)).value != row.value:
            raise InvalidInputError(
                f"{first.place} and {row.place} have one key of {form.name} and different blocks: "
                "write one with `autotune export --shape`"
            )


def _says(form: Description, answer: LookupAnswer) -> bool:
    """Whether the lookup takes from the file what the row says; it may add defaults of more
    fields."""
    try:
        taken = valued(form, answer.taken, made=True)
        wanted = valued(form, answer.made, made=True)
    except ValueError:  # it makes something else of a row
        return False
    return answer.is_reached and wanted.items() <= taken.items()


def _lost(source: formats.FoundTable, place: str) -> InvalidInputError:
    return InvalidInputError(
        f"the lookup of {source.format.name} does not find {place} in the changed {source.path}: "
        "nothing was written"
    )


def _data(record: Record) -> Named:
    """What tokamax keeps of a config. An estimate does not pose as a measurement."""
    said: Named = {"source": "pallas-autotune", "toolchain": str(record.key.toolchain)}
    if record.method is not Method.MEASURED:
        said["estimated"] = True
    return {
        "compile_time_ms": 0.0,
        "lower_time_ms": 0.0,
        "evaluation_times_ms": [record.time_us / 1000],
        "metadata": said,
        "peak_memory_mb": None,
    }
