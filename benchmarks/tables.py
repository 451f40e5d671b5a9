"""How much of the tables of others is read, and does each library find the same for its keys?

    python -m benchmarks tables --python PYTHON [--python PYTHON] [--write PAGE]

For each table that the packages of an interpreter have: its rows, those that are read, those that
are configs of a kernel of the catalogue, and for how many the library's own lookup, asked for the
key of the row, returns what was read. Rows that nothing reaches are named with their reason.
"""

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.domain.key import Chip
from autotune.tables.asking import ask_lookup
from autotune.tables.description import Description, descriptions
from autotune.tables.formats import FoundTable
from autotune.tables.levels import valued
from autotune.tables.table import TableRow
from benchmarks.harness.field_lookups import Counts, counted, sources_of

_BEGIN, _END = "<!-- counts: begin -->\n", "<!-- counts: end -->\n"


def sample(source: FoundTable, python: str) -> dict[str, object]:
    """Three rows of a table as its source has them, with what its lookup is asked and returns."""
    table, rows = source.format, source.rows
    chosen = [rows[place] for place in sorted({0, len(rows) // 2, len(rows) - 1})]
    tree = ast.parse(source.path.read_text(encoding="utf-8"))
    lines = {row.place for row in chosen}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and table.classes]
    kept: list[ast.stmt] = [*classes]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if name == table.variable:
                kept.append(ast.Assign([ast.Name(name)], _only(node.value, lines), lineno=1))
    by_chip: dict[Chip, list[TableRow]] = {}
    for row in chosen:
        chip = next(iter(table.chips_of(row.key)), Chip.V7X)
        by_chip.setdefault(chip, []).append(row)
    taken: dict[str, object] = {}
    for chip, rows in by_chip.items():
        for row, answer in zip(rows, ask_lookup(table, rows, chip, python), strict=True):
            value = valued(table, answer.taken, made=True) if answer.is_reached else None
            taken[row.place] = value
    asks = [{n: str(v) for n, v in table.asks(row)[0].items()} for row in chosen]
    text = "\n".join(ast.unparse(node) for node in kept)
    return {"text": text, "asks": asks, "taken": [taken[row.place] for row in chosen]}


def _only(node: ast.Dict, lines: set[str]) -> ast.Dict:
    """The entries that begin at these lines, at whatever depth."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(value, ast.Dict):
            value = _only(value, lines)
            pairs += [(key, value)] if value.keys else []
        elif f"line {value.lineno}" in lines:
            pairs.append((key, value))
    return ast.Dict([key for key, _ in pairs], [value for _, value in pairs])


def markdown(all_counts: Sequence[Counts]) -> str:
    head = "| table | release | rows | read | of the catalogue | the lookup returns the same |"
    lines = [head, "|" + "---|" * 6]
    notes = []
    for c in all_counts:
        same = str(c.same) if c.is_used else f"{c.same}, but nothing uses it"
        lines.append(f"| `{c.name}` | {c.since} | {c.rows} | {c.read} | {c.known} | {same} |")
        notes += [f"- `{c.name}`: {n} not read: {why}" for why, n in c.unread.most_common(3)]
        notes += [f"- `{c.name}`: {n} not found: {why}" for why, n in c.why.most_common(3)]
    return "\n".join([*lines, "", *notes]) + "\n"


def _record(table: Description, python: str, file: Path) -> None:
    known = json.loads(file.read_text()) if file.exists() else {}
    for source in sources_of(table, python):
        if source.rows:
            known[table.name] = sample(source, python)
            file.write_text(json.dumps(known, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--sample", type=Path, help="record samples for the tests")
    args = parser.parse_args()
    all_counts = []
    for python in args.python or [sys.executable]:
        for table in descriptions():
            if args.sample and table.module:
                _record(table, python, args.sample)
            elif table.name.startswith(args.only) and (counts := counted(table, python)):
                print(f"{table.name}: {counts.read} read, {counts.same} the same", flush=True)
                all_counts.append(counts)
    text = markdown(all_counts)
    if args.write:
        page = args.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        args.write.write_text(before + _BEGIN + text + _END + rest.partition(_END)[2])
    else:
        print(text)
