"""What is checked after a load must be able to fail."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, func, insert, select, update

from autotune_db import SqlStore, open_store
from autotune_db.tables import RECORDS, TRIALS
from benchmarks.harness.load.check import check_database, check_lookups, check_snapshots
from benchmarks.harness.load.reader import digest, questions
from benchmarks.harness.load.samples import SPEC, lookup_body
from benchmarks.harness.load.service import Service, prepare
from benchmarks.harness.load.writer import results


def pushed(store: SqlStore, number: int) -> dict[str, Any]:
    done = store.push([SPEC], results(0, number), by="w0")
    answer = {"records": done.records, "trials": done.trials, "lost": done.lost}
    return {"number": number, "tries": 1, "answer": answer}


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "service.db")


@pytest.fixture
def writers(database: str) -> list[dict[str, Any]]:
    prepare(database)
    with open_store(database, create=False) as store:
        return [{"writer": 0, "pushes": [pushed(store, number) for number in range(5)]}]


def lose(connection: Connection) -> None:
    newest = select(func.max(RECORDS.c.id)).scalar_subquery()
    connection.execute(delete(RECORDS).where(RECORDS.c.id == newest - 1))


def double(connection: Connection) -> None:
    row = connection.execute(select(RECORDS).order_by(RECORDS.c.id.desc())).first()
    values = {c.name: getattr(row, c.name) for c in RECORDS.c if c.name != "id"}
    connection.execute(insert(RECORDS).values(values))


def lose_trial(connection: Connection) -> None:
    newest = select(func.max(TRIALS.c.id)).scalar_subquery()
    connection.execute(delete(TRIALS).where(TRIALS.c.id == newest))


def invent(connection: Connection) -> None:
    first = RECORDS.c.id == 1
    connection.execute(
        update(RECORDS)
        .where(first)
        .values(evidence=func.replace(RECORDS.c.evidence, "base 0", "nobody's"))
    )


@pytest.mark.parametrize(
    "harm, words",
    [(lose, "is lost"), (double, "2 times"), (lose_trial, "trials"), (invent, "nobody sent it")],
)
def test_a_database_with_harm_is_noticed(
    harm: Callable[[Connection], None], words: str, database: str, writers: list[dict[str, Any]]
) -> None:
    assert check_database(database, writers).wrong == []
    with open_store(database, create=False) as store:
        store._work.write(lambda connection, _: harm(connection))
    assert words in " ".join(check_database(database, writers).wrong)


@pytest.mark.slow
def test_other_answers_than_before_are_noticed(
    tmp_path: Path, database: str, writers: list[dict[str, Any]]
) -> None:
    service = Service(database, tmp_path, workers=1)
    service.start()
    try:
        with open_store(database, create=False) as store:
            number = store.snapshots(1)[0].number
        body = service.call("POST", "/v1/lookup", lookup_body(questions(0), number))[2]
        seen = {f"{number} 0": digest(body)}
        assert check_snapshots(service, seen).wrong == []
        assert check_snapshots(service, {f"{number} 0": "otherwise"}).wrong
        assert check_lookups(service, database, writers).wrong == []
        writers[0]["pushes"].append({"number": 9, "tries": 1, "answer": {"records": 3}})
        assert check_lookups(service, database, writers).wrong
    finally:
        service.stop()
