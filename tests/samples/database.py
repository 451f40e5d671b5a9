"""Questions that only tests have about a database."""

from collections.abc import Sequence

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.ports import SnapshotStore
from autotune_db import SqlStore


def latest_snapshot(store: SnapshotStore) -> int:
    """Its number; 0, which is empty, before anything is published."""
    return next((snapshot.number for snapshot in store.snapshots(1)), 0)


def snapshot_records(store: SnapshotStore, number: int) -> Sequence[Record] | None:
    """All records of a snapshot, newest first; None for a number that there is not."""
    change = store.snapshot_change(number, since=0)
    return None if change is None else list(change.records)


def key_id(store: SqlStore, key: Key) -> int | None:
    """The number of a key that was searched, published or missed, among the first."""
    for number in range(1, 100):
        found = store.browse.searched(number)
        if found is not None and found.key == key:
            return number
    return None
