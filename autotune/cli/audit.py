"""``autotune audit``: what a table of tuned block sizes is worth, row by row.

And ``autotune import``: configs that others have tuned become known here.
"""

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from autotune.cli import shared
from autotune.declaring.discovery import catalogue, installed_kernels, named_kernel
from autotune.domain.codec import to_data
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.key import Chip, KernelSpec, parse_chip
from autotune.domain.known_config import KnownConfig, named
from autotune.searching.one_config import parts_of_text
from autotune.tables.audit import Contest, Reach, RowAudit, RowStanding, TableAudit
from autotune.tables.formats import FoundTable, find_tables
from autotune.tables.plain import PlainTable
from autotune.tables.table import TableRow
from autotune.wording.bars import terminal_observer
from autotune.wording.match import markdown_text
from autotune.wording.outcome import best_time, reason_of
from autotune.wording.output import echo
from autotune.wording.units import counted, micros

table_options = click.option(
    "--format",
    "form",
    metavar="FORMAT",
    help="What kind of table a file is, where its name does not say.",
)


@click.command("import")
@click.argument("table")
@table_options
@click.option("--chip", help="The TPU of rows whose table names none.")
@shared.interpreter_options
@shared.database_and_json
def import_table(
    table: str, form: str | None, chip: str | None, python: str, database: str | None, as_json: bool
) -> None:
    """Read TABLE, and start the next searches of its problems from its configs.

    TABLE is a file, or the name of a format, whose table is then the one that is installed for
    --python: jax-rpa, tpu-inference, tokamax. Nothing of it is executed. What a row says is known
    as tuned elsewhere, with an unknown toolchain. Exit code 1 when no row could be taken.
    """
    target = shared.chip_named(chip)
    tables = find_tables(table, form, python)
    known: list[KnownConfig] = []
    left: list[dict[str, str]] = []
    plain = {
        row.key["kernel"] for t in tables if isinstance(t.format, PlainTable) for row in t.rows
    }
    specs = _specs(plain & installed_kernels().keys(), python)
    for source in tables:
        for row in source.rows:
            known += _known(source, row, specs, left)
        left += [_left(source, unread.place, unread.reason) for unread in source.unread]
    known = [replace(c, chips=c.chips or ((target,) if target else ())) for c in known]
    new = 0
    if known:
        with shared.open_database(database, create=True) as store:
            new = store.save_known_configs(known)
    if as_json:
        shared.print_json(
            {"known": [to_data(config) for config in known], "new": new, "left": left}
        )
    else:
        _print(tables, known, new, left)
    sys.exit(0 if known else 1)


def _specs(kernels: Collection[str], python: str) -> dict[str, KernelSpec]:
    """Of those that can be imported there; all, where an interpreter was named."""
    specs: dict[str, KernelSpec] = {}
    if not kernels:
        return specs
    from autotune.domain.compilers import DescribeKernel

    with shared.one_compiler(python) as pool:
        for name in kernels:
            with suppress(*[AutotuneError] * (python == sys.executable)):
                specs[name] = pool.ask(DescribeKernel(ref=named_kernel(name)))
    return specs


def _known(
    source: FoundTable, row: TableRow, specs: Mapping[str, KernelSpec], left: list[dict[str, str]]
) -> list[KnownConfig]:
    try:
        configs = source.format.configs(row)[0]
        spec, sizes = specs.get(row.key.get("kernel", "")), {*dict(configs[0].problem)} - {"dtype"}
        if spec and (not sizes or sizes & {*spec.problems.dims}):  # else of a user's own function
            spec.problems.parse_call(named(configs[0].problem))
        return configs
    except (ValueError, AutotuneError) as error:
        left.append(_left(source, row.place, str(error)))
        return []


def _left(source: FoundTable, place: str, reason: str) -> dict[str, str]:
    return {"file": str(source.path), "place": place, "reason": reason}


def _print(
    tables: list[FoundTable], known: list[KnownConfig], new: int, left: list[dict[str, Any]]
) -> None:
    for source in tables:
        rows, unread = len(source.rows), len(source.unread)
        name = f"{source.format.name} {source.path}"
        echo(f"{name}: {counted(rows, 'row')}, {unread} that cannot be read")
    installed = catalogue()
    undeclared = "; it is not in the catalogue: they are for one of this name that you declare"
    for kernel, count in Counter(config.kernel for config in known).items():
        timed = sum(config.time_us is not None for config in known if config.kernel == kernel)
        echo(
            f"{kernel}: {counted(count, 'config')}, {timed} with a time; "
            f"tuned elsewhere, toolchain unknown{undeclared * (kernel not in installed)}"
        )
    for reason, count in Counter(row["reason"] for row in left).most_common():
        echo(f"{count} not taken: {reason}")
    for row in left:
        echo(f"  {Path(row['file']).name} {row['place']}: {row['reason']}")
    echo(f"known: {counted(len(known), 'config')}, {new} new: the next search starts from them")


_NEAR, _SHOWN = 0.03, 20
_UNREACHED = (Reach.OTHER_ROW, Reach.FALLBACK, Reach.NOT_USED, Reach.REFUSED)


@click.command()
@click.argument("table")
@table_options
@shared.repeated_option(
    "--chip",
    "names",
    required=True,
    help="Audit the rows for this TPU generation; may be given several times.",
)
@shared.default_option(
    "--limit",
    default=0,
    type=click.IntRange(min=0),
    help="Compile so many random rows of each table and chip.",
)
@shared.default_option("--seed", default=0, help="Which rows are drawn.")
@shared.default_option(
    "--trials",
    default=0,
    type=click.IntRange(min=0),
    help="Search the problem of each of these rows first, with so many trials.",
)
@click.option(
    "--assume",
    default="",
    metavar="seqs=64,batch=decode",
    help="What the table does not say of its problems.",
)
@shared.output_option(
    "--markdown", help="Write what is found as Markdown, for an issue or a pull request."
)
@shared.compiler_options
@shared.database_and_json
def audit(
    table: str,
    form: str | None,
    names: tuple[str, ...],
    limit: int,
    seed: int,
    trials: int,
    assume: str,
    markdown: Path | None,
    database: str | None,
    as_json: bool,
    **compilers: Any,
) -> None:
    """Say whether its library ever finds each row of TABLE. For --limit of them also say whether
    they compile, how long they take, and what would be faster.

    TABLE is as in `autotune import`. The library's own lookup is called, under --python, as if on
    that TPU. Trials are kept: the same command goes on where it was stopped, and knows what a
    search has found since. With --trials each row is compared with the best of a search. Exit code
    1 when a row is never found, or does not compile.
    """
    if trials and not limit:
        raise InvalidInputError("--trials is of the rows that are compiled: say how many, --limit")
    chips = [parse_chip(name) for name in names]
    tables = find_tables(table, form, compilers["python"])
    work = TableAudit(
        python=compilers["python"],
        assumed=parts_of_text(assume) if assume else {},
        limit=limit,
        seed=seed,
        trials=trials,
    )
    rows = list(map(_in_words, _asked(work, tables, chips, database, compilers)))
    if markdown is not None:
        _write(markdown, tables, rows)
    if as_json:
        left = [asdict(unread) | {"file": str(t.path)} for t in tables for unread in t.unread]
        shared.print_json({"rows": list(map(_data, rows)), "unread": left})
    else:
        for line in _lines(tables, chips, rows):
            echo(line)
    sys.exit(1 if any(map(_is_bad, rows)) else 0)


def _asked(
    work: TableAudit,
    tables: Sequence[FoundTable],
    chips: Sequence[Chip],
    database: str | None,
    compilers: dict[str, Any],
) -> list[RowAudit]:
    reached = work.reaches(tables, chips)
    if not work.limit:
        return [row.audit for _, rows in reached for row in rows]
    done: list[RowAudit] = []
    with shared.new_pool(**compilers) as pool, shared.open_database(database, create=True) as store:
        for chip, rows in reached:
            done += work.compiled(
                rows,
                chip,
                pool,
                store,
                lambda: terminal_observer(silent=False),
                lambda row: echo(_line(_in_words(row)), err=True),
            )
    return done


def _in_words(row: RowAudit) -> RowAudit:
    """With the reason for which it has no time."""
    if row.refused is None or (row.why and row.standing is RowStanding.NO_ESTIMATE):
        return row
    said = reason_of(row.refused)
    if row.least_limit_bytes is not None:
        said += f"; it compiles with vmem_limit_bytes={row.least_limit_bytes}"
    return replace(row, why="; ".join(filter(None, [row.why, said])))


def _data(row: RowAudit) -> dict[str, Any]:
    data = asdict(replace(row, refused=None))
    del data["refused"], data["least_limit_bytes"]
    return data


def _is_bad(row: RowAudit) -> bool:
    return row.reach in _UNREACHED or row.standing is RowStanding.BROKEN


def _lines(
    tables: Sequence[FoundTable], chips: Sequence[Chip], rows: Sequence[RowAudit]
) -> list[str]:
    said = []
    for source in tables:
        said.append(f"{source.format.name} {source.path}")
        said += [f"  {unread.place}: {unread.reason}" for unread in source.unread]
    bad = [_line(row) for row in rows if _is_bad(row)]
    said += bad[:_SHOWN]
    if len(bad) > _SHOWN:
        said.append(f"and {len(bad) - _SHOWN} more: --markdown and --json have them")
    counts = _counts(rows)
    places = [(source.format.name, chip) for source in tables for chip in chips]
    for place in dict.fromkeys([*places, *counts]):
        said.append(f"{place[0]} on {place[1]}: {counts.get(place, 'no rows')}")
    return said


def _line(row: RowAudit) -> str:
    parts = [f"{row.table} {row.place} on {row.chip}: {row.reach.value}"]
    if row.standing is not RowStanding.NOT_COMPILED:
        parts.append(row.standing.value)
    if row.row_us is not None:
        parts.append(_times(row))
    return ", ".join(filter(None, [*parts, row.why]))


def _times(row: RowAudit) -> str:
    assert row.row_us is not None
    said = f"{micros(row.row_us)} with {row.config}"
    if row.fallback_us is not None:
        said += f", {micros(row.fallback_us)} with the fallback"
    if row.standing in (RowStanding.BEATEN, RowStanding.TIE) and row.best_us is not None:
        share = row.row_us / row.best_us - 1
        best = best_time(row.best_us, verified=row.best_verified)
        said += f", {best}, with {row.best}: the row takes {share:.1%} longer"
    if row.contest is not None and row.searched_us is not None:
        searched = best_time(row.searched_us, verified=row.searched_verified)
        said += f"; {row.contest}: {searched}, with {row.searched}"
    return said


def _counts(rows: Sequence[RowAudit]) -> dict[tuple[str, Chip], str]:
    groups: dict[tuple[str, Chip], list[RowAudit]] = {}
    for row in rows:
        groups.setdefault((row.table, row.chip), []).append(row)
    return {place: _counted(group) for place, group in groups.items()}


def _counted(rows: Sequence[RowAudit]) -> str:
    reach = Counter(row.reach for row in rows)
    by_standing = Counter(row.standing for row in rows)
    parts = [f"{len(rows)} rows"]
    parts += [f"{reach[kind]} {kind.value}" for kind in Reach if reach[kind]]
    parts += [
        f"{by_standing[kind]} {kind.value}"
        for kind in RowStanding
        if by_standing[kind] and kind is not RowStanding.NOT_COMPILED
    ]
    timed = [(a, a.row_us / a.best_us) for a in rows if a.row_us is not None and a.best_us]
    if timed:
        near = sum(ratio <= 1 + _NEAR for _, ratio in timed)
        parts.append(f"{near} of {len(timed)} within {_NEAR:.0%} of the best that is known")
    contests = Counter(row.contest for row in rows if row.contest is not None)
    parts += [f"{contests[kind]} {kind}" for kind in Contest if contests[kind]]
    lost = [ratio - 1 for a, ratio in timed if a.standing is RowStanding.BEATEN]
    if lost:
        parts.append(f"beaten by {median(lost):.0%} in the median, {max(lost):.0%} at most")
    return ", ".join(parts)


def _write(path: Path, tables: Sequence[FoundTable], rows: Sequence[RowAudit]) -> None:
    lines = [f"{source.format.name} {source.path}: {len(source.rows)} rows" for source in tables]
    lines += [f"{table} on {chip}: {said}" for (table, chip), said in _counts(rows).items()]
    lines += [
        f"{source.format.name} {unread.place}: not read: {unread.reason}"
        for source in tables
        for unread in source.unread
    ]
    shown = [r for r in rows if _is_bad(r) or r.standing is not RowStanding.NOT_COMPILED]
    lines += [f"{_line(row)} ({row.key})" for row in shown]
    shared.write_file(path, "".join(f"- {markdown_text(line)}\n" for line in lines))
