"""``token``, ``push`` and ``snapshots`` as installed commands, against a real service."""

import json
from dataclasses import replace

import pytest

from autotune.answering.http import Remote
from autotune.answering.push import send
from autotune.domain.errors import ServiceError
from autotune.domain.store import KeyResult
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question, record, ruled
from tests.servers.commands import assert_one_sentence, autotune_here
from tests.servers.service import running


@pytest.fixture
def here(tmp_path):
    """The database of a tuning machine: two good records and one that was not verified."""
    database = str(tmp_path / "here.db")
    with new_store(database) as store:
        store.save_kernel(SPEC)
        for m in (8, 16):
            store.save_record(record(question(m)))
        store.save_record(replace(record(question(32)), verified=False, verification="no time"))
    return database


class TestPush:
    def test_again_and_again(self, service, store, writer, here, tmp_path):
        environment = {"AUTOTUNE_TOKEN": writer, "AUTOTUNE_DATABASE_URL": here}
        done = autotune_here("push", "--url", service.url, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        assert "2 records and 0 trials are new there" in done.stdout
        assert "left out: mm[f00d] m=32" in done.stderr and "no time" in done.stderr
        assert writer not in done.stdout + done.stderr
        done = autotune_here("push", "--url", service.url, "--json", cwd=tmp_path, env=environment)
        sent = json.loads(done.stdout)
        assert (sent["records"], sent["sent"], sent["lost"], len(sent["left_out"])) == (0, 2, 0, 1)
        pushed_by = {r.pushed_by for r in store.records(claimed=True) if r.key == question(8)}
        assert pushed_by == {"ci"}

    def test_no_rule_is_sent_and_no_message_of_any_length(self, service, store, writer):
        """A rule would answer for every shape of its kernel, and nothing shows that it is true."""
        sent = replace(record(question(8)), rule=ruled(), reason="x" * 300_000)
        (part,) = send(Remote(service.url, 20.0, writer), [SPEC], [KeyResult(record=sent)])
        assert part[1].records == 1
        (stored,) = [record for record in store.records(claimed=True) if record.key == question(8)]
        assert stored.rule is None
        assert len(stored.reason) == 100_000 and stored.reason.endswith("x…")

    def test_what_goes_wrong_is_one_sentence(self, service, here, tmp_path):
        ask = ("push", "--db", here, "--url")
        done = autotune_here(*ask, service.url, "--token", "autotune_wrong", cwd=tmp_path)
        assert done.returncode == 2
        assert "the token is unknown, expired or revoked" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        done = autotune_here(*ask, "nowhere", cwd=tmp_path)
        assert_one_sentence(done, "is not an address")

    def test_many_go_in_parts(self, service, store, writer, monkeypatch):
        monkeypatch.setattr("autotune.answering.push._MOST_RESULTS", 3)
        results = [KeyResult(record=record(question(m))) for m in range(1, 9)]
        parts = list(send(Remote(service.url, 20.0, writer), [SPEC], results))
        assert [count for count, _ in parts] == [3, 3, 2]
        assert sum(part.records for _, part in parts) == 8

    def test_a_service_that_comes_back_is_tried_again(self, service, store, writer, monkeypatch):
        monkeypatch.setattr("autotune.answering.push._PAUSES_S", (0.0, 0.0))
        remote = Remote(service.url, 20.0, writer)
        real = remote._call
        failures = [OSError("reset"), ServiceError("busy", 503)]

        def call(*arguments):
            if failures:
                raise failures.pop()
            return real(*arguments)

        monkeypatch.setattr(remote, "_call", call)
        (part,) = send(remote, [SPEC], [KeyResult(record=record(question(8)))])
        assert part[1].records == 1 and not failures


def test_tokens(tmp_path):
    assert autotune_here("db", "upgrade", cwd=tmp_path).returncode == 0
    assert "none yet" in autotune_here("token", "list", cwd=tmp_path).stdout
    done = autotune_here("token", "create", "--name", "ci", "--days", "3", cwd=tmp_path)
    secret = done.stdout.strip()
    assert done.returncode == 0 and secret.startswith("autotune_") and len(secret) > 40
    done = autotune_here(
        "token", "create", "--name", "b", "--role", "admin", "--json", cwd=tmp_path
    )
    assert json.loads(done.stdout)["role"] == "admin"
    done = autotune_here("token", "list", cwd=tmp_path)
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["1", "writer", "ci"],
        ["2", "admin", "b"],
    ]
    assert done.stdout.count("writer") == 1
    assert secret not in done.stdout
    assert "is revoked" in autotune_here("token", "revoke", "1", cwd=tmp_path).stdout
    assert "revoked 2" in autotune_here("token", "list", cwd=tmp_path).stdout
    assert_one_sentence(autotune_here("token", "revoke", "9", cwd=tmp_path), "there is no token 9")
    bad = autotune_here("token", "create", "--name", "a\nb", cwd=tmp_path)
    assert_one_sentence(bad, "1 to 100 characters, of a to z")


def test_snapshots(store, database, tmp_path):
    def run(*args):
        done = autotune_here("snapshots", *args, "--db", database, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("pin", "1") == "snapshot 3 is in force\n"
    assert run("unpin", "1") == "snapshot 4 is in force\n"
    assert run("rollback", "1") == "snapshot 5 is in force\n"
    assert "rolled back to snapshot 1" in run("list").splitlines()[0]
    assert [item["number"] for item in json.loads(run("records", "--json"))] == [2, 1]
    assert json.loads(run("prune", "--days", "0", "--json")) == {"pruned": 3}
    done = autotune_here("snapshots", "rollback", "9", "--db", database, cwd=tmp_path)
    assert_one_sentence(done, "there is no snapshot 9: autotune snapshots list shows all")
    done = autotune_here("snapshots", "pin", "9", "--db", database, cwd=tmp_path)
    assert_one_sentence(done, "there is no record 9: autotune snapshots records shows all")
    done = autotune_here("push", "--db", database, cwd=tmp_path)
    assert_one_sentence(done, "name the service: autotune push --url http://")


def test_lookup_from_a_closed_service(store, database, tmp_path):
    from autotune.domain.token import READER

    _, secret = store.tokens.create("r", READER, None)
    toolchain = "jax=0.10.2,jaxlib=0.10.2,libtpu=0.0.42"
    ask = (
        "lookup",
        "mm",
        "--shape",
        "1024x128",
        "--chip",
        "v5e",
        "--toolchain",
        toolchain,
        "--url",
    )
    with running(database, closed=True) as service:
        done = autotune_here(*ask, service.url, cwd=tmp_path)
        assert_one_sentence(done, "who runs the service makes one with `autotune token create`")
        done = autotune_here(*ask, service.url, cwd=tmp_path, env={"AUTOTUNE_TOKEN": secret + "\n"})
        assert done.returncode == 0, done.stderr
