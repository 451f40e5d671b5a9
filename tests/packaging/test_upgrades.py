"""Databases and bundles of earlier versions open in this one.

``earlier/NNNN.db.gz`` was made by a real search (``vector_add``, three trials, v5e) of a commit
whose tables were of that version, ``earlier/NNNN.bundle`` by its ``autotune export``. 0013 is the
oldest that is brought along. Who adds a migration adds the version before it, with that code:

    autotune search vector_add --shape 1048576 --chip v5e --trials 3 --db old.db
    autotune export NNNN.bundle --db old.db
    sqlite3 old.db "VACUUM INTO 'NNNN.db'" && gzip -9n NNNN.db
"""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command

from autotune.answering.bundle import read_bundle
from autotune.domain.key import Chip
from autotune.domain.record import Standing
from autotune_db import open_store, upgrade
from autotune_db.engine import HEAD, OLDEST, config_for
from tests.db.version import current
from tests.servers.commands import assert_one_sentence, autotune_here
from tests.servers.service import asked, running

EARLIER = Path(__file__).with_name("earlier")
VERSIONS = sorted(file.name.partition(".")[0] for file in EARLIER.glob("*.db.gz"))
BUNDLES = sorted(EARLIER.glob("*.bundle"))


@pytest.fixture(params=VERSIONS)
def database(request, tmp_path):
    file = tmp_path / "test.db"
    file.write_bytes(gzip.decompress((EARLIER / f"{request.param}.db.gz").read_bytes()))
    assert current(str(file)) == request.param
    return file


@pytest.fixture
def store(database):
    upgrade(str(database))
    with open_store(str(database), create=False) as opened:
        yield opened


def test_every_version_before_this_one_is_here():
    before = [f"{number:04}" for number in range(int(OLDEST), int(HEAD))]
    assert {OLDEST, *before} == set(VERSIONS)
    assert BUNDLES


def test_nothing_is_lost(store, database):
    assert current(str(database)) == HEAD
    ((_, record),) = store.published()
    assert (record.key.kernel, record.key.chip, record.verified) == ("vector_add", Chip.V5E, True)
    trials = store.trials(record.key)
    assert len(trials) == record.trials
    assert record.estimate in [tried.estimate for tried in trials]


def test_its_tables_are_as_new_ones(store):
    store._work.read(lambda connection: command.check(config_for(connection)))


def test_it_is_asked_and_goes_on(store, database):
    ((_, record),) = store.published()
    with running(str(database)) as service:
        (answer,) = service.lookup(record.key)[1]
        assert answer["match"] == "exact", answer
        assert asked(record.key)["kernel"] == "vector_add"
    store.save_record(record)  # published once more, on top of what was there
    assert len(store.published()) == 2


def test_what_was_pushed_and_never_checked_is_claimed(database):
    """And said to who serves it; what a worker has checked stays proven."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE autotune_records SET pushed_by = 'ci'")
        connection.execute(
            "INSERT INTO autotune_records SELECT 2, key_id, config, json_set(evidence, "
            "'$.checked_by', 'w'), time_us, is_default, verified, trials, method, created_at, "
            "pushed_by FROM autotune_records"
        )
    upgrade(str(database))
    with open_store(str(database), create=False) as store:
        (_, checked), (_, pushed) = store.published()
        assert (checked.standing, pushed.standing) == (Standing.PROVEN, Standing.CLAIMED)
        assert store.records(claimed=True) == [pushed] and not store.records()
        newest, before = store.snapshots()
        assert (newest.number, before.number) == (2, 1)  # what clients have of 1 is not asked again
        assert store.count_claims() == 0  # of its key something is proven


def test_what_is_older_says_what_to_do(database):
    if current(str(database)) != HEAD:
        done = autotune_here("history", cwd=database.parent)
        assert_one_sentence(done, "run autotune db upgrade")
    assert autotune_here("db", "upgrade", cwd=database.parent).returncode == 0
    done = autotune_here("history", "--json", cwd=database.parent)
    assert done.returncode == 0, done.stderr
    assert "vector_add" in json.dumps(json.loads(done.stdout))


@pytest.mark.parametrize("file", BUNDLES, ids=lambda file: file.stem)
def test_bundles_are_read(file):
    bundle = read_bundle(file)
    (record,) = bundle.records
    assert (record.key.kernel, record.verified) == ("vector_add", True)
