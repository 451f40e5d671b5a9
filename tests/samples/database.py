"""Making a database quickly, and questions that only tests have about one."""

import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from autotune_db import open_store
from tests.samples.matching import SPEC, question, record


def new_store(file, fill=lambda _: None):
    """A new SQLite file, opened. Only the first with this content is migrated and filled, others
    are copies of it, which takes a twentieth of the time."""
    Path(file).write_bytes(_content(fill))
    return open_store(str(file), create=False)


@cache
def _content(fill):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "content.db")
        with open_store(str(file), create=True) as store:
            fill(store)
        assert [path.name for path in Path(folder).iterdir()] == [file.name]  # no log beside it
        return file.read_bytes()


def by_hand(file, statement):
    """What somebody with SQL does to a SQLite file; how many rows it changes."""
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).rowcount


def two_records(store):
    """Of the sample kernel: snapshot 2."""
    store.save_kernel(SPEC)
    store.save_record(record(question(1024)))
    store.save_record(record(question(4096, 256)))


def latest_snapshot(store):
    """Its number; 0, which is empty, before anything is published."""
    return next((snapshot.number for snapshot in store.snapshots(1)), 0)


def snapshot_records(store, number, *, claimed=False):
    """All records of a snapshot, newest first; None for a number that there is not."""
    change = store.snapshot_change(number, since=0, claimed=claimed)
    return None if change is None else list(change.records)


def key_id(store, key):
    """The number of a key that was searched, published or missed, among the first."""
    for number in range(1, 100):
        searched = store.browse.searched(number)
        if searched is not None and searched.key == key:
            return number
    return None
