"""Draws the picture of docs/explanation/architecture.md from the imports that are really there.

    python -m benchmarks.pages.architecture        # writes docs/images/architecture.svg

A row is a floor, as the import contracts in pyproject.toml have it. Below each room stand the rooms
that it imports, without those that it reaches through another one of them.
"""

import argparse
import ast
import importlib.util
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "autotune"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PACKAGES = ("autotune", "autotune_kernels", "autotune_db", "autotune_service")
STARTED = {"child": "started as a process; only collecting imports it"}

_WIDTH, _GAP, _LINE, _LETTER = 1180, 10, 17, 7.2  # pixels
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.name{font-weight:700}"
    ".imports{fill:#0b57a4}rect{fill:#f6f8fa;stroke:#8c959f}.started rect{fill:#fff4e5}"
)

Edges = Mapping[str, frozenset[str]]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "").parse_args()
    PICTURE.write_text(drawn(floors(), reduced(imports())), encoding="utf-8")
    print(PICTURE)
    return 0


def floors() -> list[tuple[str, ...]]:
    """The rooms of each floor, the highest first, packages beside the rooms that they stand on."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c.get("containers") == ["autotune"])
    rows = [tuple(part.strip() for part in layer.split("|")) for layer in layers]
    below = rows.index(("cli",)) + 1
    others = [("autotune_service",), ("autotune_db", "autotune_kernels")]
    return [*rows[:below], *others, *rows[below:]]


def imports() -> Edges:
    """Which room imports which, whatever the module, by the imports that run."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    rooms: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if None not in (here := _room(module), there := _room(imported)) and here != there:
                rooms.setdefault(str(here), set()).add(str(there))
    return {room: frozenset(known) for room, known in rooms.items()}


def _room(module: str) -> str | None:
    """None for the face of ``autotune`` and for what only starts the commands."""
    package, _, rest = module.partition(".")
    if package != "autotune":
        return package
    room = rest.partition(".")[0]
    return room if room and room != "__main__" else None


def reduced(edges: Edges) -> Edges:
    """Only the imports that no longer way implies."""
    return {
        room: frozenset(
            known
            for known in all_known
            if not any(known in _reached(other, edges) for other in all_known - {known})
        )
        for room, all_known in edges.items()
    }


def _reached(room: str, edges: Edges) -> set[str]:
    known: set[str] = set()
    todo = [room]
    while todo:
        new = edges.get(todo.pop(), frozenset()) - known
        known |= new
        todo += new
    return known


def structure(svg: str) -> dict[str, tuple[int, frozenset[str]]]:
    """What a picture says: the floor of each room, from above, and what it imports."""
    return {
        group.attrib["id"]: (
            int(group.attrib["data-floor"]),
            frozenset(group.attrib["data-imports"].split()),
        )
        for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    }


def drawn(rows: Sequence[tuple[str, ...]], edges: Edges) -> str:
    """As SVG, a box for each room."""
    boxes: list[str] = []
    top = _GAP
    for floor, row in enumerate(rows):
        width = (_WIDTH - _GAP) // len(row) - _GAP
        lines = [list(_lines(room, edges.get(room, frozenset()), width)) for room in row]
        height = _LINE * max(map(len, lines)) + _GAP
        for place, room in enumerate(row):
            left = _GAP + place * (width + _GAP)
            imported = " ".join(sorted(edges.get(room, ())))
            kind = ' class="started"' if room in STARTED else ""
            boxes.append(f'<g id="{room}" data-floor="{floor}" data-imports="{imported}"{kind}>')
            boxes.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="4"/>')
            boxes += _texts(lines[place], left + 8, top + _LINE)
            boxes.append("</g>")
        top += height + _GAP
    size = f'width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    ground = f'<path fill="#fff" d="M0 0h{_WIDTH}v{top}H0z"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{ground}'
    return "\n".join([opening, *boxes, "</svg>", ""])


def _lines(room: str, imported: frozenset[str], width: int) -> Iterator[tuple[str, str]]:
    """Each line of a box, with its class."""
    letters = int((width - 16) / _LETTER)
    yield "name", room
    for text in (purpose(room), STARTED.get(room, "")):
        yield from (("purpose", line) for line in textwrap.wrap(text, letters))
    known = "→ " + ", ".join(sorted(imported)) if imported else ""
    yield from (("imports", line) for line in textwrap.wrap(known, letters))


def _texts(lines: Sequence[tuple[str, str]], left: int, top: int) -> Iterator[str]:
    for number, (kind, line) in enumerate(lines):
        yield f'<text class="{kind}" x="{left}" y="{top + _LINE * number}">{escape(line)}</text>'


def purpose(room: str) -> str:
    """The first sentence of its docstring."""
    name = room if room in PACKAGES else f"autotune.{room}"
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, name
    doc = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    text = " ".join(doc.partition("\n\n")[0].split()).replace("``", "")
    return text.partition(". ")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
