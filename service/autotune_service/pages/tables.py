"""Lines of a table as CSV or JSON, sent while they are read."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from autotune_db.query import batched
from autotune_service.dependencies import ask
from autotune_service.errors import HttpError

T = TypeVar("T")

AT_ONCE = 500  # rows of a page
_LINES = 100  # in one piece: each is a turn of a thread
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}

Line = Mapping[str, Any]


def pages_of(read: Callable[[int], Sequence[T]]) -> Iterator[T]:
    """Page after page of at most ``AT_ONCE`` from a place on: no answer is held in memory."""
    offset = 0
    while found := read(offset):
        yield from found
        if len(found) < AT_ONCE:
            return
        offset += len(found)


async def table(request: Request, name: str, form: str, lines: Iterable[Line]) -> Response:
    """The lines as a file. Raises ``HttpError`` for another form than csv and json."""
    if form not in _KINDS:
        raise HttpError(404, "not_found", f"There is no export as {form[:20]}: csv and json.")
    kept = iter(lines)
    first = await ask(request, next, kept, None)  # what is wrong shows before the answer begins
    found = iter(()) if first is None else _from(first, kept)
    text = _json(found) if form == "json" else _csv(first, found)
    return StreamingResponse(
        map("".join, batched(text, _LINES)),
        media_type=_KINDS[form],
        headers={"Content-Disposition": f'attachment; filename="{name}.{form}"'},
    )


def _from(first: Line, rest: Iterator[Line]) -> Iterator[Line]:
    yield first
    yield from rest


def _json(lines: Iterator[Line]) -> Iterator[str]:
    before = "["
    for line in lines:
        yield before + json.dumps(line)
        before = ",\n"
    yield "]\n" if before != "[" else "[]\n"


def _csv(first: Line | None, lines: Iterator[Line]) -> Iterator[str]:
    if first is None:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(first), extrasaction="ignore", restval="")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in line.items()})
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is made one that it shows."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
