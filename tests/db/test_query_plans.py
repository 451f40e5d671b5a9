"""A million trials: no query of the store reads a whole table to find a few rows."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import event

from autotune.domain.browsing import CheckFilter, KeyFilter
from autotune.domain.key import Chip
from tests.samples.records import key, record, save_trial, spec, trial

QUERIES = {
    "trials": lambda store: store.trials(key()),
    "trial": lambda store: store.trial(1),
    "trial_ids": lambda store: store.trial_ids(key()),
    "record": lambda store: store.record(key()),
    "history": lambda store: store.history(),
    "history of a kernel": lambda store: store.history("matmul"),
    "replace_outcome": lambda store: store.replace_outcome(
        key(), trial(1).config, trial(1).outcome
    ),
    "save_trial": lambda store: save_trial(store, key(), trial(5)),
    "save_record": lambda store: store.save_record(record()),
    "a page of trials": lambda store: store.browse.trials(
        1, None, fastest=False, offset=50, limit=50
    ),
    "one kind of trials": lambda store: store.browse.trials(
        1, "illegal", fastest=False, offset=50, limit=50
    ),
    "fastest trials": lambda store: store.browse.trials(1, None, fastest=True, offset=0, limit=50),
    "drawn trials": lambda store: store.browse.fastest_and_others(1, 500, 200),
    "a trial's key": lambda store: store.browse.key_of(1),
    "a trial of a key": lambda store: store.browse.by_number(1, 1),
    "a trial with a config": lambda store: store.browse.with_config(1, trial(1).config),
    "trials with configs": lambda store: store.browse.with_configs(
        {1: trial(1).config, 2: trial(2).config}
    ),
    "the same configs": lambda store: store.browse.same_configs([1, 2], 50),
    "the best so far": lambda store: store.browse.best_so_far(1),
    "a key": lambda store: store.browse.searched(1),
    "the newest trial": lambda store: store.browse.newest(1),
}

OF_KEYS = {
    "targets": lambda store: store.browse.targets(),
    "places": lambda store: store.browse.places("matmul"),
    "latest": lambda store: store.browse.latest(10),
    "problems": lambda store: store.browse.fitting(KeyFilter(kernel="matmul", chip=Chip.V5E)),
    "all that fit words": lambda store: store.browse.fitting(
        KeyFilter(words=("m=256", "ci")), "-chip"
    ),
    "sums": lambda store: store.browse.sums(KeyFilter(words=("m=256",))),
    "misses by time": lambda store: store.browse.missed_keys(50, 50, "-last"),
    "jobs by kernel": lambda store: store.browse.jobs(("done",), 50, 50, "kernel"),
    "checks by chip": lambda store: store.browse.worst_checks(CheckFilter(), 50, 50, "chip"),
    "searching": lambda store: store.browse.searching([1], datetime(2026, 1, 1, tzinfo=UTC)),
    "failures": lambda store: store.browse.failures([1]),
    "other chips": lambda store: store.browse.other_chips(key()),
    "running": lambda store: store.browse.running(datetime(2026, 1, 1, tzinfo=UTC)),
    "other toolchains": lambda store: store.browse.other_toolchains(key()),
}
"""These look at keys, of which there are few; at trials only through indexes."""
SORTED_BY_AN_INDEX = QUERIES.keys() - {"history of a kernel"}


@pytest.fixture
def filled(store):
    store.save_kernel(spec())
    store.save_record(record())
    for number in range(3):
        save_trial(store, key(), trial(number))
    return store


def plans(store, use):
    """What the database says it will do for each query that ``use`` makes."""
    seen = []

    def see(connection, cursor, statement, values, *_):
        seen.append((statement, values))

    event.listen(store._work._engine, "before_cursor_execute", see)
    use(store)
    event.remove(store._work._engine, "before_cursor_execute", see)
    postgresql = store.url.startswith("postgresql")

    def explain(connection):
        if postgresql:  # the tables are tiny: it would read them whole
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        word = "EXPLAIN" if postgresql else "EXPLAIN QUERY PLAN"
        return [  # RETURNING would add the look at other tables that SQLite skips where it runs
            " / ".join(str(row[-1]) for row in connection.exec_driver_sql(f"{word} {text}", values))
            for text, values in ((text.partition(" RETURNING")[0], given) for text, given in seen)
            if text.startswith(("SELECT", "INSERT", "UPDATE")) and "autotune_" in text
        ]

    return store._work.read(explain)


def test_only_indexes(filled):
    for name, use in (QUERIES | OF_KEYS).items():
        steps = plans(filled, use)
        assert steps, name
        whole = "autotune" if name in QUERIES else "autotune_trials"
        for plan in steps:
            assert f"SCAN {whole}" not in plan and f"Seq Scan on {whole}" not in plan, name
            assert name not in SORTED_BY_AN_INDEX or "TEMP B-TREE" not in plan, name


def test_a_query_without_an_index_would_be_seen(filled):
    query = "SELECT autotune_trials.id FROM autotune_trials WHERE seconds > 1 ORDER BY seconds"
    steps = plans(
        filled,
        lambda store: store._work.read(lambda connection: connection.exec_driver_sql(query).all()),
    )
    assert any("Seq Scan" in plan or "SCAN autotune" in plan for plan in steps)
