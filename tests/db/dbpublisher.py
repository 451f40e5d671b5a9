"""A process that publishes 30 records, ten keys in turn: URL and its own number."""

import sys

from dbsamples import key, record

from db import open_store

with open_store(sys.argv[1], create=True) as store:
    for number in range(30):
        store.save_record(record(key(m=number % 10 + 1), time_us=float(number)))
