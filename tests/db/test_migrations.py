"""Migrations against the tables, and beside Optuna's own."""

import warnings
from typing import Any

import optuna
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from autotune.domain.errors import StoreError
from autotune_db import current, open_store, upgrade
from autotune_db.engine import open_engine, writing
from autotune_db.migration import HEAD, VERSION_TABLE, config_for
from autotune_db.tables import METADATA
from autotune_db.url import parse_database
from tests.samples.records import key, save_trial, trial
from tests.servers.postgres import Postgres

OURS = set(METADATA.tables)


def test_head_is_the_newest_script(url: str) -> None:
    upgrade(url)
    engine = open_engine(parse_database(url), create=False)
    with engine.connect() as connection:
        assert ScriptDirectory.from_config(config_for(connection)).get_heads() == [HEAD]
    engine.dispose()


def test_upgrade_twice(url: str) -> None:
    assert upgrade(url) == HEAD
    with open_store(url, create=True) as store:
        save_trial(store, key(), trial())
    assert upgrade(url) == HEAD == current(url)
    with open_store(url, create=True) as store:
        assert store.trials(key()) == [trial()]


def differences(url: str) -> list[Any]:
    def only_ours(thing: Any, name: str | None, kind: str, *_: Any) -> bool:
        return kind != "table" or name in OURS

    engine = open_engine(parse_database(url), create=False)
    with engine.connect() as connection:
        options = {
            "version_table": VERSION_TABLE,
            "include_object": only_ours,
            "compare_type": True,
        }
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, METADATA)
    engine.dispose()
    return list(found)


def test_migrations_and_tables_agree(url: str) -> None:
    upgrade(url)
    assert differences(url) == []


def test_a_difference_would_be_found(url: str) -> None:
    upgrade(url)
    with open_store(url, create=True) as store:
        statement = "ALTER TABLE autotune_trials ADD COLUMN extra INTEGER"
        store._work.write(lambda connection, _: connection.exec_driver_sql(statement))
    assert len(differences(url)) == 1


def test_names_of_our_tables_are_not_optunas() -> None:
    from optuna.storages._rdb import models

    assert not OURS & set(models.BaseModel.metadata.tables)
    assert all(name.startswith("autotune_") for name in (*OURS, VERSION_TABLE))


@pytest.mark.parametrize(
    ("version", "remedy"), [("0012", "the oldest"), ("9999", "upgrade pallas")]
)
def test_a_version_that_is_not_known_is_refused(url: str, version: str, remedy: str) -> None:
    upgrade(url)
    engine = open_engine(parse_database(url), create=False)
    with writing(engine).begin() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'")
    engine.dispose()
    for opened in (upgrade, lambda url: open_store(url, create=False)):
        with pytest.raises(StoreError, match=remedy):
            opened(url)


def test_a_migration_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction, on SQLite too."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("stop")

    monkeypatch.setattr(command, "stamp", fail)
    with pytest.raises(RuntimeError, match="stop"):
        upgrade(url)
    monkeypatch.undo()
    assert current(url) is None
    engine = open_engine(parse_database(url), create=False)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()
    assert upgrade(url) == HEAD


def _optuna_trials(url: str) -> int:
    storage = optuna.storages.RDBStorage(url)
    study = optuna.create_study(storage=storage, study_name="s", load_if_exists=True)
    study.optimize(lambda one: one.suggest_float("x", 0, 1), n_trials=2)
    count = len(study.trials)
    storage.engine.dispose()
    return count


@pytest.fixture
def quiet_optuna() -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        yield


@pytest.mark.usefixtures("quiet_optuna")
class TestOptuna:
    def test_after_ours(self, url: str) -> None:
        with open_store(url, create=True) as store:
            assert _optuna_trials(store.url) == 2
            assert save_trial(store, key(), trial())
            assert _optuna_trials(store.url) == 4
            assert store.trials(key()) == [trial()]
        assert differences(url) == []

    def test_before_ours(self, url: str) -> None:
        assert _optuna_trials(parse_database(url).full_url) == 2
        with pytest.raises(StoreError, match="there are no tuning results"):
            open_store(url, create=False)
        with open_store(url, create=True) as store:
            assert save_trial(store, key(), trial())
            assert _optuna_trials(store.url) == 4
        assert current(url) == HEAD

    def test_both_version_tables_stay_apart(self, url: str) -> None:
        with open_store(url, create=True) as store:
            _optuna_trials(store.url)
            engine = create_engine(store.url)
            with engine.connect() as connection:
                names = set(inspect(connection).get_table_names())
            engine.dispose()
        assert {"alembic_version", "trials", "studies", VERSION_TABLE} | OURS <= names

    def test_a_path_with_odd_characters(self, tmp_path: Any) -> None:
        with open_store(str(tmp_path / "a b%20c?d=e#f&g'é{x}.db"), create=True) as store:
            assert save_trial(store, key(), trial())
            assert _optuna_trials(store.url) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["a b%20c?d=e#f&g'é{x}.db"]


@pytest.mark.slow
def test_both_run_while_the_other_does(postgres: Postgres) -> None:
    """An open store of ours holds no lock that stops Optuna's tables from being made."""
    with open_store(postgres.new_database(), create=True) as store:
        store.trials(key())
        assert _optuna_trials(store.url) == 2
