"""What is published by number: who made each snapshot, and what changed from one to another."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.pages.filters import Query, query_of
from autotune_service.pages.render import page

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
        changes = await _changes(request, old, new)
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


async def _changes(request: Request, old: int, new: int) -> list[ChangedRecord]:
    """Only what differs is read, in both directions."""
    before, after = await _since(request, old, new), await _since(request, new, old)
    changed = [key for key in after | before if after.get(key) != before.get(key)]
    numbers = await ask(request, store(request).browse.numbers, changed)
    return [
        ChangedRecord(before=before.get(key), after=after.get(key), key_id=numbers.get(key))
        for key in changed
    ]


async def _since(request: Request, number: int, other: int) -> dict[Key, Record]:
    """What a snapshot has and another has not. Raises ``HttpError`` where it is not there."""
    change = await ask(request, store(request).snapshot_change, number, other)
    if change is None:
        raise HttpError(404, "unknown_snapshot", f"There is no snapshot {number}.")
    return {record.key: record for record in change.records}
