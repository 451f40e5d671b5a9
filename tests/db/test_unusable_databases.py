"""Databases that cannot be used: one sentence each, and nothing is written."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text

from autotune.domain.errors import StoreError, UnstorableError
from autotune.domain.store import KeyResult
from autotune_db import open_store, upgrade
from tests.db.version import current
from tests.samples.records import key, record, save_trial, spec, trial


def refused(url, *, create):
    """The sentence with which opening fails."""
    with pytest.raises(StoreError) as caught:
        open_store(url, create=create)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_missing_file(tmp_path):
    path = tmp_path / "folder" / "autotune.db"
    assert refused(str(path), create=False) == (
        f"there is no database at {path} yet: run a search first"
    )
    with pytest.raises(StoreError, match="run a search first"):
        current(str(path))
    assert everything(tmp_path) == {}


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    "content", [b"hello world" * 1000, b"x", b"SQLite format 3\0" + b"?" * 99, None]
)
def test_corrupt_file(tmp_path, content, create):
    """None: one of this version, of which the header alone is whole."""
    path = tmp_path / "autotune.db"
    if content is None:
        upgrade(str(path))
        path.write_bytes(path.read_bytes()[:100].ljust(path.stat().st_size, b"\xff"))
    else:
        path.write_bytes(content)
    before = everything(tmp_path)
    said = "is damaged" if content is None else "is not a SQLite database"
    assert said in refused(str(path), create=create)
    assert everything(tmp_path) == before


def test_damage_found_later(tmp_path):
    path = tmp_path / "autotune.db"
    with open_store(str(path), create=True) as store:
        for number in range(100):
            save_trial(store, key(), trial(number))
    with path.open("r+b") as file:
        file.seek(4096 * 60)  # behind the tables that opening reads
        file.write(b"\xff" * 400_000)
    with open_store(str(path), create=False) as store, pytest.raises(StoreError, match="damaged"):
        store.trials(key())


@pytest.mark.parametrize("create", [False, True])
def test_folder_instead_of_a_file(tmp_path, create):
    assert refused(str(tmp_path), create=create) == (
        f"{tmp_path} is a folder: name the database file in it"
    )
    assert everything(tmp_path) == {}


def test_newer_version_is_not_even_switched_to_another_journal(tmp_path):
    path = tmp_path / "autotune.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE autotune_alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO autotune_alembic_version VALUES ('9999')")
        connection.commit()
    before = everything(tmp_path)
    assert "newer version" in refused(str(path), create=True)
    assert everything(tmp_path) == before


def test_tables_that_were_dropped(url):
    with open_store(url, create=True) as store:
        for table in ("profiles", "trials"):
            store._work.write(lambda c, _, t=table: c.exec_driver_sql(f"DROP TABLE autotune_{t}"))
        with pytest.raises(StoreError, match="has not the tables of this version") as caught:
            store.trials(key())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("write", [False, True])
def test_tables_of_a_version_that_was_never_released(url, write):
    """It calls itself the same, and lacks a column."""
    with open_store(url, create=True) as store:
        store._work.write(
            lambda connection, _: connection.exec_driver_sql(
                "ALTER TABLE autotune_keys DROP COLUMN best_us"
            )
        )
        with pytest.raises(StoreError, match=r"has not the tables of this version .*best_us"):
            save_trial(store, key(), trial(0)) if write else store.history()


def test_read_only_file(open_folder, as_nobody):
    path = open_folder / "autotune.db"
    with open_store(str(path), create=True) as store:
        save_trial(store, key(), trial())
    path.chmod(0o444)
    before = everything(open_folder)
    with as_nobody():
        assert "is read-only" in refused(str(path), create=True)
        with open_store(str(path), create=False) as store:
            assert store.trials(key()) == [trial()]
            with pytest.raises(StoreError, match="is read-only: make it writable"):
                save_trial(store, key(), trial(1))
    assert everything(open_folder) == before


def test_folder_that_cannot_be_created(open_folder, as_nobody):
    path = open_folder / "deep" / "er" / "autotune.db"
    with as_nobody():
        assert "cannot be created: Permission denied" in refused(str(path), create=True)
        assert "is read-only" in refused(str(open_folder / "autotune.db"), create=True)
    assert everything(open_folder) == {}


def test_file_that_may_not_be_read(open_folder, as_nobody):
    path = open_folder / "autotune.db"
    upgrade(str(path))
    path.chmod(0o600)
    with as_nobody():
        assert "cannot be opened" in refused(str(path), create=False)


def test_full_disk(tmp_path):
    with open_store(str(tmp_path / "a.db"), create=True) as store:
        connections = [store._work._engine.raw_connection()]
        connections[0].cursor().execute("PRAGMA max_page_count=1")  # no more pages than there are
        connections[0].close()
        with pytest.raises(StoreError, match="is full: make room"):
            for number in range(1000):
                save_trial(store, key(), trial(number))


def test_postgresql_not_reachable(tmp_path):
    for url in (
        f"postgresql://someone:secret@/autotune?host={tmp_path}",
        "postgresql://someone:secret@127.0.0.1:1/autotune",
    ):
        sentence = refused(url, create=True)
        assert sentence.startswith("cannot reach postgresql+psycopg://someone:***@")
        assert "secret" not in sentence


@pytest.mark.slow
def test_postgresql_user_without_rights(postgres):
    url = postgres.new_database()
    postgres.sql("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    sentence = refused(url.replace("//postgres:", "//stranger:"), create=True)
    assert "does not allow this user" in sentence


@pytest.mark.slow
def test_postgresql_read_only(postgres):
    url = postgres.new_database()
    with open_store(url, create=True) as store:
        postgres.sql(f"ALTER DATABASE {_name(url)} SET default_transaction_read_only = on")
        store.close()
        with pytest.raises(StoreError, match="is read-only"):
            save_trial(store, key(), trial())


def test_names_that_are_no_text(url):
    with open_store(url, create=True) as store:
        with pytest.raises(UnstorableError, match="is not valid text"):
            store.kernel("matmul\udcff")
        if url.startswith("postgresql"):
            with pytest.raises(UnstorableError, match="cannot hold"):
                store.kernel("mat\0mul")


def _name(url):
    return url.partition("?")[0].rpartition("/")[2]


class TestTheFileGoes:
    """SQLite would go on with what has no name any more."""

    @pytest.fixture
    def file(self, tmp_path):
        return tmp_path / "autotune.db"

    @pytest.fixture
    def opened(self, file):
        with open_store(str(file), create=True) as store:
            store.save_record(record())
            yield store

    def test_deleted(self, opened, file):
        file.rename(file.with_suffix(".away"))
        with pytest.raises(StoreError, match="deleted or replaced while it was in use"):
            opened.save_record(record(key(m=1)))
        with pytest.raises(StoreError, match="deleted or replaced"):
            opened.records()
        file.with_suffix(".away").rename(file)
        assert opened.records() == [record()]

    def test_replaced(self, opened, file):
        with open_store(str(file.with_name("other.db")), create=True):
            pass
        file.with_name("other.db").replace(file)
        with pytest.raises(StoreError, match="deleted or replaced"):
            opened.push([spec()], [KeyResult(record=record(key(m=1)))], "ci")


def test_others_on_the_machine_may_not_read_a_new_database(tmp_path):
    file = tmp_path / "autotune.db"
    with open_store(str(file), create=True) as store:
        store.save_record(record())
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_what_is_written_is_in_no_error(tmp_path):
    insert = text("INSERT INTO nowhere VALUES (:value)")
    database = str(tmp_path / "autotune.db")
    with open_store(database, create=True) as store, pytest.raises(StoreError) as caught:
        store._work.write(lambda session, _: session.execute(insert, {"value": "hunter2"}))
    assert "nowhere" in str(caught.value)
    assert "hunter2" not in str(caught.value.__cause__)


@pytest.mark.slow
def test_postgresql_whose_texts_have_no_encoding(postgres):
    """It is usable: such a server hands out bytes to who does not say what they are."""
    url = postgres.new_database()
    name = url.partition("?")[0].rpartition("/")[2]
    postgres.sql(f"DROP DATABASE {name}")
    plain = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres.sql(f"CREATE DATABASE {name} {plain}")
    with open_store(url, create=True) as store:
        store.save_record(record())
        assert store.record(record().key) == record()
