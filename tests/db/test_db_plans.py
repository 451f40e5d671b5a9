"""A million trials: no query of the store reads a whole table to find a few rows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dbsamples import key, record, spec, trial
from sqlalchemy import Connection, event

from db.store import SqlStore, open_store

QUERIES: dict[str, Callable[[SqlStore], Any]] = {
    "trials": lambda store: store.trials(key()),
    "trial": lambda store: store.trial(1),
    "trial_id": lambda store: store.trial_id(key(), 0),
    "record": lambda store: store.record(key()),
    "history": lambda store: store.history("matmul"),
    "replace_outcome": lambda store: store.replace_outcome(key(), 1, trial(1).outcome),
    "save_trial": lambda store: store.save_trial(key(), trial(5)),
    "save_record": lambda store: store.save_record(record()),
}


@pytest.fixture
def filled(url: str) -> Iterator[SqlStore]:
    with open_store(url, create=True) as store:
        store.save_kernel(spec())
        store.save_record(record())
        for number in range(3):
            store.save_trial(key(), trial(number))
        yield store


def plans(store: SqlStore, use: Callable[[SqlStore], Any]) -> list[str]:
    """What the database says it will do for each query that ``use`` makes."""
    seen: list[tuple[str, Any]] = []

    def see(connection: Connection, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        seen.append((statement, values))

    event.listen(store._work._engine, "before_cursor_execute", see)
    use(store)
    event.remove(store._work._engine, "before_cursor_execute", see)
    postgresql = store.url.startswith("postgresql")

    def explain(connection: Connection) -> list[str]:
        if postgresql:  # the tables are tiny: it would read them whole
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        word = "EXPLAIN" if postgresql else "EXPLAIN QUERY PLAN"
        return [
            " / ".join(str(row[-1]) for row in connection.exec_driver_sql(f"{word} {text}", values))
            for text, values in seen
            if text.startswith(("SELECT autotune", "INSERT"))
        ]

    return store._work.read(lambda session: explain(session.connection()))


@pytest.mark.parametrize("name", QUERIES)
def test_only_indexes(filled: SqlStore, name: str) -> None:
    found = plans(filled, QUERIES[name])
    assert found
    for plan in found:
        assert "SCAN autotune" not in plan
        assert "Seq Scan" not in plan
        assert name == "history" or "TEMP B-TREE" not in plan  # that sorts keys, not trials


def test_a_query_without_an_index_would_be_seen(filled: SqlStore) -> None:
    query = "SELECT autotune_trials.id FROM autotune_trials WHERE seconds > 1 ORDER BY seconds"
    found = plans(
        filled,
        lambda store: store._work.read(
            lambda session: session.connection().exec_driver_sql(query).all()
        ),
    )
    assert any("Seq Scan" in plan or "SCAN autotune" in plan for plan in found)
