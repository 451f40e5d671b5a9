"""A mapping that never changes, and whose next version shares all but what differs.

Copying 100,000 entries for each new snapshot, and having the garbage collector visit the copies,
would hold up lookups for tens of milliseconds; libraries for this are slower to import than a
model server's start can afford, or have no build for the newest Python.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST_ABOVE = 1_000  # entries that are copied for each change; with more, the layers become one


class Layered(Generic[K, V]):
    """Two dictionaries: ``above`` holds what differs from ``below``, ``None`` for what is gone.

    Values are never ``None``.
    """

    __slots__ = ("_above", "_below", "_length")

    def __init__(self) -> None:
        self._below: dict[K, V] = {}
        self._above: dict[K, V | None] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def get(self, key: K) -> V | None:
        above = self._above
        if key in above:
            return above[key]
        return self._below.get(key)

    def values(self) -> Iterator[V]:
        """Those that changed last come last."""
        for key, value in self._below.items():
            if key not in self._above:
                yield value
        for changed in self._above.values():
            if changed is not None:
                yield changed

    def changed(self, put: Mapping[K, V], take: Iterable[K] = ()) -> "Layered[K, V]":
        """Another one: without what is taken, then with what is put. This one stays as it is."""
        new: Layered[K, V] = Layered()
        new._below, new._length = self._below, self._length
        new._above = self._above.copy()
        for key in take:
            new._length -= new.get(key) is not None
            new._above[key] = None
        for key, value in put.items():
            new._length += new.get(key) is None
            new._above[key] = value
        if len(new._above) > _MOST_ABOVE:
            new._merge()
        return new

    def _merge(self) -> None:
        merged = self._below.copy()
        for key, value in self._above.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        self._below, self._above = merged, {}
