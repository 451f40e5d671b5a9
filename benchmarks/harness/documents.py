"""The pages of ``docs/results`` and their like: what a benchmark printed stands below its mark."""

from collections.abc import Sequence
from pathlib import Path

_MARK = "<!-- printed by:"
DOCS = Path(__file__).parents[2] / "docs"


def show(text: str, page: str, name: str, *, write: bool) -> None:
    """Print it, and where that is asked for put it below its mark."""
    print(text)
    if write:
        write_below_mark(page, name, text)


def write_below_mark(page: str, name: str, text: str) -> None:
    """Put ``text`` in the place of all that stands below the mark of the benchmark ``name``, to the
    next mark or the end."""
    document = DOCS / page
    mark = f"{_MARK} python -m benchmarks {name} --write -->"
    prose, mark_there, printed = document.read_text(encoding="utf-8").partition(mark)
    if not mark_there:
        raise ValueError(f"{document} lacks the line {mark}")
    _, next_mark, rest = printed.partition(_MARK)
    rest = f"\n{next_mark}{rest}" if next_mark else ""
    document.write_text(f"{prose}{mark}\n\n{text}\n{rest}", encoding="utf-8")


def markdown_table(head: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines
    )
