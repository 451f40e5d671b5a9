"""What is published by number: who made each snapshot, and what changed from one to another."""

from typing import Any

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall

_MOST = 200  # snapshots listed, and changes shown

Change = tuple[Key, int | None, Record | None, Record | None]
"""The key, its number, the record before (None: it is new) and after (None: it is gone)."""


def show(call: PageCall) -> dict[str, Any]:
    """The newest first, and with ``from`` and ``to`` the difference of two."""
    old, new = (call.query.number(name, 2**63 - 1) for name in ("from", "to"))
    changes = None if old is None or new is None else _changes(call, old, new)
    return {
        "listed": call.store.snapshots(_MOST),
        "current": call.snapshot.number,
        "old": old,
        "new": new,
        "changes": changes and changes[:_MOST],
        "total": len(changes or ()),
    }


def _changes(call: PageCall, old: int, new: int) -> list[Change]:
    """Only what differs is read, in both directions."""
    before, after = _since(call, old, new), _since(call, new, old)
    changed = [key for key in after | before if after.get(key) != before.get(key)]
    numbers = call.browse.numbers(changed)
    return [(key, numbers.get(key), before.get(key), after.get(key)) for key in changed]


def _since(call: PageCall, number: int, other: int) -> dict[Key, Record]:
    """What a snapshot has and another has not. Raises ``HttpError`` where it is not there."""
    change = call.store.snapshot_change(number, other)
    if change is None:
        raise HttpError(404, "unknown_snapshot", f"There is no snapshot {number}.")
    return {record.key: record for record in change.records}
