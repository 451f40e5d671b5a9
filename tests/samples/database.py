"""Questions that only tests have about a database."""

from collections.abc import Sequence

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.ports import SnapshotStore
from autotune_db import SqlStore

_ALL = 1_000_000


def latest_snapshot(store: SnapshotStore) -> int:
    """Its number; 0, which is empty, before anything is published."""
    return next((snapshot.number for snapshot in store.snapshots(1)), 0)


def snapshot_records(store: SnapshotStore, number: int) -> Sequence[Record] | None:
    """All records of a snapshot, newest first; None for a number that there is not."""
    change = store.snapshot_change(number, since=0)
    return None if change is None else list(change.records)


def key_id(store: SqlStore, key: Key) -> int | None:
    """The number of a key that was searched or missed."""
    searched = {one.key: one.id for one in store.browse.latest(_ALL)}
    missed = {one.miss.key: one.key_id for one in store.browse.missed_keys(0, _ALL)}
    return (missed | searched).get(key)
