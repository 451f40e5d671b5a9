"""A process that publishes 30 records, ten keys in turn: URL and its own number."""

import sys

from autotune_db import open_store
from tests.samples.records import key, record

with open_store(sys.argv[1], create=True) as store:
    for number in range(30):
        store.save_record(record(key(m=number % 10 + 1), time_us=float(number)))
