"""What a page or a file is made from: its address, the database, and the snapshot in force."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fastapi import Request

from autotune.domain.browsing import SearchedKey
from autotune.domain.key import Key
from autotune.domain.record import Record, Standing
from autotune_service.dependencies import refuse_parameters_but, store
from autotune_service.errors import HttpError, troubles
from autotune_service.pages.filters import Query, number_of
from autotune_service.snapshot_cache import IndexedSnapshot

T = TypeVar("T")


class PageCall:
    """One call of a page. ``strict``: a filter that is not understood raises ``HttpError``; else
    the page has a note. What it reads from the database is for a thread."""

    def __init__(self, request: Request, *, strict: bool = False) -> None:
        if strict:
            refuse_parameters_but(request, request.query_params)  # given twice
        self.request, self.query = request, Query(dict(request.query_params), strict)
        self.path: dict[str, str] = request.path_params
        self.store = store(request)
        self.snapshot: IndexedSnapshot = request.state.snapshots.current
        self.query.notes += troubles(request.state)
        self.browse = self.store.browse

    def record(self, key: Key) -> Record | None:
        """What is published for a key: what is only claimed, where nothing is proven."""
        return self.records([key])[0]

    def records(self, keys: Sequence[Key]) -> list[Record | None]:
        proven = [self.snapshot.index.exact(key) for key in keys]
        others = [key for key, record in zip(keys, proven, strict=True) if record is None]
        claims = self.store.records_of(others, claimed=True) if others else {}
        shown = {
            key: record
            for key, record in claims.items()
            if record.standing is Standing.CLAIMED and record.has_possible_times
        }
        return [record or shown.get(key) for key, record in zip(keys, proven, strict=True)]

    def searched(self) -> SearchedKey:
        """The key that the address names. Raises ``HttpError``."""
        text = self.path["key_id"]
        searched = self.browse.searched(number_of(text, "problem"))
        if searched is None:
            raise HttpError(404, "unknown_key", f"There is no problem {text}.")
        return searched


def once_for_each_snapshot(compute: Callable[..., T]) -> Callable[..., T]:
    """For a function whose first argument is a snapshot, which decides what it returns."""
    made: WeakKeyDictionary[IndexedSnapshot, T] = WeakKeyDictionary()

    @wraps(compute)
    def once(snapshot: IndexedSnapshot, *others: Any) -> T:
        if snapshot not in made:
            made[snapshot] = compute(snapshot, *others)
        return made[snapshot]

    return once
