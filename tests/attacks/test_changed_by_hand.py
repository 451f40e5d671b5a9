"""What somebody with an editor, or with SQL, does to a bundle or a database."""

import gzip
import json
from pathlib import Path

import pytest

from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.answering.matching import DEFAULT, EXACT
from autotune.answering.sources import BundleAnswers, StoreAnswers
from autotune.domain.errors import InvalidInputError, StoreError
from autotune_db import open_store
from tests.samples.database import by_hand
from tests.samples.matching import SPEC, question, record
from tests.servers.commands import autotune_here
from tests.servers.service import running, until

KEY = question(1024)


def bundle(folder, change):
    """With one record, and what was changed in its text."""
    data = json.loads(gzip.decompress(bundle_to_bytes(new_bundle([record(KEY)], kernels=[SPEC]))))
    change(data)
    file = folder / "edited.bundle"
    file.write_bytes(gzip.compress(json.dumps(data).encode()))
    return file


@pytest.mark.parametrize("options", [False, True])
def test_a_bundle_with_two_records_of_a_key_is_refused(tmp_path, options):
    """The last would have won, and nobody have known it. Dimensions in another order are the same
    key."""

    def add(data):
        other = json.loads(json.dumps(data["records"][0]))
        other["key"]["problem"]["dims"] = dict(reversed(other["key"]["problem"]["dims"].items()))
        data["with_options" if options else "records"] = [*data["records"] * (not options), other]

    with pytest.raises(InvalidInputError, match="has two, of which nobody knows"):
        BundleAnswers(bundle(tmp_path, add)).match(KEY)


def test_what_a_bundle_says_was_not_verified_answers_only_who_accepts_claims(tmp_path):
    file = bundle(tmp_path, lambda data: data["records"][0].update(verified=False))
    match = BundleAnswers(file).match(KEY)
    assert (match.kind, match.has_claim) == (DEFAULT, True)
    assert BundleAnswers(file, accept_claimed=True).match(KEY).kind == EXACT


@pytest.fixture
def path(tmp_path):
    """Of a database with two records."""
    name = str(tmp_path / "x.db")
    with open_store(name, create=True) as store:
        store.save_kernel(SPEC)
        for m in (1024, 2048):
            store.save_record(record(question(m)))
    return name


@pytest.mark.parametrize(
    "statement",
    [
        """UPDATE autotune_records SET config = replace(config, '256', '512') WHERE id = 1""",
        """UPDATE autotune_records SET evidence = replace(evidence, '"time_us":', '"time_us":1')
           WHERE id = 1""",
        "UPDATE autotune_records SET method = 'measured' WHERE id = 1",
        "UPDATE autotune_records SET claimed = 1 WHERE id = 1",
        "UPDATE autotune_records SET verified = 0 WHERE id = 1",
        "UPDATE autotune_records SET created_at = '2026-01-01 00:00:00.000000' WHERE id = 1",
        "UPDATE autotune_records SET key_id = 3 - key_id",
        "UPDATE autotune_keys SET jax = '0.12.0'",
        "UPDATE autotune_keys SET problem = replace(problem, '1024', '1536')",
        "UPDATE autotune_keys SET compiler_options = '--xla_x=true'",
    ],
)
def test_a_record_that_was_changed_is_no_answer_and_is_listed(path, statement):
    """Its snapshot has the number and the identity that clients know."""
    by_hand(path, statement)
    with open_store(path) as store:
        assert StoreAnswers(store).match(KEY).kind != EXACT
        assert any(
            name == "autotune_records" and "somebody changed it" in why
            for name, _, why in store.damaged()
        )


def test_a_record_of_before_records_had_digests_is_read(path):
    by_hand(path, "UPDATE autotune_records SET digest = '', method = 'estimated'")
    with open_store(path) as store:
        assert StoreAnswers(store).match(KEY).kind == EXACT


def test_a_time_that_cannot_be_read_is_listed(path):
    by_hand(
        path,
        "INSERT INTO autotune_calibrations (digest, chip, content, created_at) "
        "VALUES ('x', 'v5e', '{}', '2026-01-01 00:00:00.000000')",
    )
    with open_store(path) as store:
        assert [name for name, _, _ in store.damaged()] == ["autotune_calibrations"]


def test_a_table_that_was_dropped_is_a_trouble(path):
    """It is one that no lookup needs."""
    with running(path, refresh_s=0.05) as service:
        assert service.get("/readyz")[1]["troubles"] == []
        by_hand(path, "DROP TABLE autotune_misses")
        until(lambda: "lost tables" in str(service.get("/readyz")[1]["troubles"]))
        assert service.lookup(KEY)[1][0]["match"] == EXACT
    listed = autotune_here("db", "check", "--db", path, cwd=Path(path).parent)
    assert listed.returncode == 2 and "tables are lost: autotune_misses" in listed.stderr


@pytest.mark.parametrize("table", ["autotune_snapshots", "autotune_audit"])
def test_a_number_that_leaves_none_for_others_is_listed_and_can_be_mended(path, tmp_path, table):
    by_hand(path, f"UPDATE {table} SET id = {2**63 - 1} WHERE id = 2")
    by_hand(path, f"UPDATE sqlite_sequence SET seq = {2**63 - 1} WHERE name = '{table}'")
    with open_store(path) as store, pytest.raises(StoreError, match="autotune db check says which"):
        store.save_record(record(question(4096)))
    listed = json.loads(autotune_here("db", "check", "--db", path, "--json", cwd=tmp_path).stdout)
    (row,) = listed
    for statement in row["remedy"].replace("in SQLite also ", "").split("; "):
        by_hand(path, statement)
    with open_store(path) as store:
        store.save_record(record(question(4096)))
        assert store.damaged() == []


def test_rows_whose_key_was_deleted_are_listed_and_can_be_dropped(path, tmp_path):
    """The command of SQLite does not keep anybody from it."""
    by_hand(path, "DELETE FROM autotune_keys WHERE id = 1")
    with open_store(path) as store:
        assert StoreAnswers(store).match(KEY).kind != EXACT
        assert StoreAnswers(store).match(question(2048)).kind == EXACT
    done = autotune_here("db", "check", "--db", path, "--json", cwd=tmp_path)
    (row,) = json.loads(done.stdout)
    assert (done.returncode, row["table"]) == (1, "autotune_records")
    assert "its row of autotune_keys is gone" in row["why"]


def test_a_table_without_its_constraints_is_one_sentence(path):
    """As a copy by CREATE TABLE AS SELECT is."""
    by_hand(path, "CREATE TABLE copied AS SELECT * FROM autotune_kernels")
    by_hand(path, "DROP TABLE autotune_kernels")
    by_hand(path, "ALTER TABLE copied RENAME TO autotune_kernels")
    with open_store(path) as store, pytest.raises(StoreError, match="not the tables of this"):
        store.save_kernel(SPEC)


@pytest.mark.parametrize("m", [10**400, 2**31, 0, -4])
def test_a_dimension_that_cannot_be_costs_the_bundle_and_no_question(tmp_path, m):
    """The distance to it cannot be reckoned: each question of the kernel would have failed."""
    file = bundle(tmp_path, lambda data: data["records"][0]["key"]["problem"]["dims"].update(m=m))
    with pytest.raises(InvalidInputError, match="dimension m is not from 1 to"):
        BundleAnswers(file).match(question(512))


@pytest.mark.parametrize("name", ["verified", "is_default"])
def test_a_text_is_not_true(tmp_path, name):
    """*False* would have passed for true."""
    file = bundle(tmp_path, lambda data: data["records"][0].update({name: "false"}))
    with pytest.raises(InvalidInputError, match="'false' is neither true nor false"):
        BundleAnswers(file).match(KEY)
