"""What is published by number: who made each snapshot, and what changed from one to another."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from autotune.domain.record import Record
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.pages.filters import Query, query_of
from autotune_service.pages.render import page
from autotune_service.snapshot_cache import IndexedSnapshot

router = APIRouter(include_in_schema=False)

_MOST = 200  # snapshots listed, and changes shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRecord:
    """``before`` is None where the key is new, ``after`` where it is gone."""

    before: Record | None
    after: Record | None
    key_id: int | None

    @property
    def shown(self) -> Record:
        record = self.after or self.before
        assert record is not None
        return record


@router.get("/snapshots")
async def show(request: Request) -> Response:
    """The newest first, and with ``from`` and ``to`` the difference of two."""
    query = query_of(request)
    listed = await ask(request, store(request).snapshots, _MOST)
    old, new = _number(query, "from"), _number(query, "to")
    changes: Sequence[ChangedRecord] | None = None
    if old is not None and new is not None:
        before, after = [await snapshots_of(request).at(number) for number in (old, new)]
        changes = await _changes(request, before, after)
    return await page(
        request,
        "snapshots.html",
        query=query.done(),
        listed=listed,
        current=snapshots_of(request).current.number,
        old=old,
        new=new,
        changes=changes and changes[:_MOST],
        total=len(changes or ()),
    )


def _number(query: Query, name: str) -> int | None:
    return query.number(name, 2**63 - 1)


async def _changes(
    request: Request, before: IndexedSnapshot, after: IndexedSnapshot
) -> list[ChangedRecord]:
    """Raises ``HttpError`` where one of them is not there any more."""
    change = await ask(request, store(request).snapshot_change, after.number, before.number)
    if change is None:
        raise HttpError(404, "unknown_snapshot", f"There is no snapshot {after.number}.")
    pairs = [(before.index.exact(one.key), one) for one in change.records]
    gone = [(before.index.exact(key), None) for key in change.removed]
    changed = [(old, new) for old, new in (*pairs, *gone) if (old or new) and old != new]
    keys = [(new or old).key for old, new in changed]  # type: ignore[union-attr]
    numbers = await ask(request, store(request).browse.numbers, keys)
    return [
        ChangedRecord(before=old, after=new, key_id=numbers.get(key))
        for (old, new), key in zip(changed, keys, strict=True)
    ]
