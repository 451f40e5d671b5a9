"""A process that writes: URL, its own number, how many trials, and a file to wait for.

No two may have the same number, so that their configs differ. Prints the number of each trial
once it is committed; takes the next free one, as a search does.
"""

import itertools
import sys
import time
from pathlib import Path

import alembic.command  # noqa: F401  imported now, so that all migrate at the same moment

from autotune_db import open_store
from tests.samples.records import key, record, save_trial, trial


def main(url, worker, count, signal):
    print("ready", flush=True)
    while not signal.exists():
        time.sleep(0.001)
    with open_store(url, create=True) as store:
        numbers = itertools.count()
        for index in range(count):
            bm = worker * 1_000_000 + index
            number = next(n for n in numbers if save_trial(store, key(), trial(n, bm=bm)))
            print(number, flush=True)
            store.save_record(record(time_us=float(bm)))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
