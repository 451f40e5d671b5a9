"""What docker/postgres gives to whom, on a real PostgreSQL: roles, backup and restore."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from sqlalchemy import text

from autotune.domain.errors import StoreError
from autotune.domain.job import Ability, Progress, Request, State
from autotune.domain.outcome import WrongResult
from autotune.domain.store import CandidateDecision, CandidateState, KeyResult, tell_of
from autotune.domain.token import ADMIN, WRITER
from autotune_db import open_store, upgrade
from autotune_db.tables import METADATA
from autotune_service.app import create_app
from tests.samples.dashboard import CHECKS, fill
from tests.samples.dockerfiles import FOLDER
from tests.samples.matching import SPEC, question, record
from tests.samples.records import save_trial, trial
from tests.servers.service import running, until

pytestmark = pytest.mark.slow

PASSWORDS = {"service_password": "s", "worker_password": 'it\'s "w"', "backup_password": "b"}


@dataclass(frozen=True)
class Server:
    """A database with the tables of now, and ``roles.sql`` applied."""

    owner: str
    secrets: Path
    tools: Path

    def url(self, role):
        """By the socket of the owner's, where no password is asked for."""
        parts = urlsplit(self.owner)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{quote(role)}@{host}").geturl()

    def run(self, *command, user=""):
        """With the tools of the server's own version, and its place in the environment."""
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment(user))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def environment(self, user=""):
        parts = urlsplit(self.owner)
        return {
            **os.environ,
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PGHOST": parse_qs(parts.query)["host"][0],
            "PGUSER": user or parts.username or "",
            "PGDATABASE": parts.path.strip("/"),
        }

    def grant(self):
        given = ("-v", f"secrets={self.secrets}", "-f", _file("roles.sql"))
        self.run("psql", self.owner, "-q", *given)

    def backup(self, folder, user="autotune_backup"):
        return self.run(_file("backup.sh"), str(folder), user=user).strip()


@pytest.fixture
def server(postgres, tmp_path):
    url = postgres.new_database()
    upgrade(url)
    made = Server(url, tmp_path, postgres.tools)
    for name, password in PASSWORDS.items():
        (tmp_path / name).write_text(password + "\n")
    made.grant()
    made.grant()  # again is no harm
    yield made
    postgres.drop(url)


def _file(name):
    return str(FOLDER / "postgres" / name)


@pytest.fixture
def owner(server):
    with open_store(server.owner, create=True) as store:
        yield store


@pytest.fixture
def service(server):
    with open_store(server.url("autotune_service"), create=False) as store:
        yield store


@pytest.fixture
def worker(server):
    with open_store(server.url("autotune_worker"), create=True) as store:  # as the command does
        yield store


def _job():
    asked = question()
    return Request(kernel=asked.kernel, problem=asked.problem, chip=asked.chip, trials=3)


def test_a_service_can_do_its_work(owner, service):
    token, secret = owner.tokens.create("ci", WRITER, None)
    assert service.tokens.find(secret) == token
    assert service.tokens.valid()
    service.offer_kernels([SPEC])
    whole = KeyResult(record=record(), trials=(trial(0),))
    assert service.push([SPEC], [whole], "ci").trials == 1
    service.save_misses({(question(7), "default"): 2})
    service.save_misses({(question(7), "default"): 1})
    assert service.misses()[0].count == 3
    job, is_new = service.jobs.add(_job(), "ci")
    assert is_new and service.jobs.cancel(job.number)
    ((published, _),) = service.published()
    service.pin(published)
    told = replace(CHECKS[0], key=record().key, config=record().config)
    tell_of(service, service.push_checks([told], "ci"))
    assert [one.checks[0].verdict for one in service.records(claimed=True)] == [told.verdict]
    service.unpin(published)
    service.roll_back(1)
    assert [one.checks[0].verdict for one in service.records(claimed=True)] == [told.verdict]
    assert service.audit.entries()


def test_a_service_may_read_what_its_routes_show(server, owner):
    """All of them, with something to show: a table that was added and not granted is 503."""
    fill(owner)
    url = server.url("autotune_service")
    admin = {"Authorization": f"Bearer {owner.tokens.create('boss', ADMIN, None)[1]}"}
    routes = [one.path for one in create_app(url).default.state.routes if "GET" in one.methods]
    with running(url) as service:
        until(lambda: service.raw("GET", "/v1/audit", **admin)[0] == 200)
        for route in routes:
            path = re.sub(
                r"{\w+}", "1", route.replace("{form}", "csv").replace("{name:path}", "mm")
            )
            assert service.raw("GET", path, **admin)[0] < 500, path
    assert len(routes) > 40


def test_a_worker_can_do_its_work(service, worker):
    service.jobs.add(_job(), "ci")
    worker.save_kernel(SPEC)
    able = Ability(kernels={SPEC.name: SPEC.fingerprint}, toolchain=question().toolchain)
    job = worker.jobs.claim("w", able, 60)
    assert job is not None and worker.jobs.heartbeat(job, Progress(done=1))
    assert worker.jobs.write_log(job, "begins") and service.jobs.write_log(job, "of a remote one")
    for own in (worker, service):  # a worker that is stopped, of its own or a remote one
        assert own.calibration(question().chip, question().toolchain) == []
        assert own.jobs.give_back(job, "stopped", counts=False)
        job = own.jobs.claim("w", able, 60)
        assert job is not None
    assert save_trial(worker, question(), trial(0))
    worker.replace_outcome(question(), trial(0).config, WrongResult(reason="off by 3"))
    for over in (False, True):
        worker.searches.report(question(), "a space", Progress(done=1), over=over)
    worker.save_record(record())
    assert worker.jobs.finish(job, State.DONE, "twice as fast")
    assert len(list(service.snapshots(1))) == 1


def test_it_is_applied_again_while_others_work_and_by_two_at_once(server, service, worker):
    with ThreadPoolExecutor() as threads:
        applied = [threads.submit(server.grant) for _ in range(4)]
        for number in range(40):
            service.save_misses({(question(number + 1), "default"): 1})
            assert save_trial(worker, question(), trial(number))
        for one in applied:
            one.result()
    assert len(service.misses()) == 40
    with pytest.raises(StoreError, match="does not allow"):
        worker.tokens.list()


def test_a_worker_checks_what_was_pushed(service, worker):
    pushed = KeyResult(record=record(), trials=(trial(0),))
    assert service.push([SPEC], [pushed], "ci").records and service.check_claims() == 1
    candidate = worker.candidate(1)
    assert candidate is not None and candidate.record.pushed_by == "ci"
    checked = replace(pushed.record, checked_by="w")
    worker.push((), [KeyResult(record=checked)], "ci")
    assert save_trial(worker, question(), trial(0))  # in the place of the pushed one
    worker.decide(1, CandidateDecision(state=CandidateState.ACCEPTED))
    assert worker.records() == [replace(checked, pushed_by="ci")]
    decided = service.candidate(1)
    assert decided is not None and decided.decision.state is CandidateState.ACCEPTED


def test_what_a_worker_refuses_the_service_takes_away(service, worker):
    service.push([SPEC], [KeyResult(record=record())], "ci")
    service.check_claims()
    worker.decide(1, CandidateDecision(state=CandidateState.REFUSED, finding="out of VMEM"))
    candidate = worker.candidate(1)
    assert candidate is not None and candidate.decision.state is CandidateState.REFUSED
    assert not service.records(claimed=True)


NEW_TOKEN = (
    "INSERT INTO autotune_tokens (name, role, digest, created_at) VALUES ('x', 'admin', 'x', now())"
)
FORBIDDEN = {
    "autotune_service": [
        "DROP TABLE autotune_records",
        "ALTER TABLE autotune_records ADD COLUMN x int",
        "TRUNCATE autotune_records",
        "CREATE TABLE mine (x int)",
        "UPDATE autotune_records SET config = '{}'",
        "UPDATE autotune_keys SET kernel = 'x'",
        "DELETE FROM autotune_records",
        "DELETE FROM autotune_audit",
        "UPDATE autotune_audit SET name = 'x'",
        "DELETE FROM autotune_snapshots",
        "UPDATE autotune_candidates SET state = 'accepted'",
        "UPDATE autotune_kernels SET spec = '{}'",
        NEW_TOKEN,
        "UPDATE autotune_tokens SET role = 'admin'",
        "UPDATE autotune_alembic_version SET version_num = '0001'",
        "CREATE ROLE more",
    ],
    "autotune_worker": [
        "DROP TABLE autotune_records",
        "CREATE TABLE public.mine (x int)",
        "SELECT digest FROM autotune_tokens",
        NEW_TOKEN,
        "UPDATE autotune_records SET config = '{}'",
        "UPDATE autotune_keys SET kernel = 'x'",
        "DELETE FROM autotune_jobs",
        "UPDATE autotune_pins SET record_id = 1",
        "DELETE FROM autotune_pins",
        "UPDATE autotune_snapshots SET note = 'x'",
        "DELETE FROM autotune_misses",
        "UPDATE autotune_kernels SET name = 'x'",
        "UPDATE autotune_candidates SET record = '{}'",
    ],
    "autotune_backup": [
        "INSERT INTO autotune_records SELECT * FROM autotune_records",
        "DELETE FROM autotune_misses",
        "DROP TABLE autotune_records",
    ],
}


@pytest.mark.parametrize("role", FORBIDDEN)
def test_what_a_role_does_not_need_is_refused(server, role):
    for statement in FORBIDDEN[role]:
        with pytest.raises(AssertionError, match=r"permission denied|must be owner"):
            server.run("psql", server.url(role), "-v", "ON_ERROR_STOP=1", "-c", statement)


def test_every_table_is_thought_of():
    named = Path(_file("roles.sql")).read_text()
    assert [table for table in METADATA.tables if table not in named] == []


def test_passwords_are_set(postgres, server):
    """The server of the tests asks for none: it keeps a digest of each."""
    kept = postgres.sql("SELECT rolname FROM pg_authid WHERE rolpassword LIKE 'SCRAM%'")
    assert all(role in kept for role in FORBIDDEN)


def _ask(store, statement):
    return store._work.read(
        lambda session: [tuple(row) for row in session.execute(text(statement))]
    )


class TestBackup:
    @pytest.fixture
    def folder(self, tmp_path):
        made = tmp_path / "backups"
        made.mkdir()
        return made

    def test_what_was_kept_comes_back(self, server, owner, folder):
        owner.save_kernel(SPEC)
        owner.save_record(record())
        token, secret = owner.tokens.create("ci", WRITER, None)
        made = server.backup(folder)
        owner.save_record(record(question(4096)))  # after the backup, and then everything is lost
        server.run("psql", "-q", "-c", "DROP TABLE autotune_tokens, autotune_pins")
        server.run("psql", "-q", "-c", "CREATE TABLE autotune_newer (key bigint)")

        server.run(_file("restore.sh"), made)
        with open_store(server.url("autotune_service"), create=False) as service:
            assert [one for _, one in service.published()] == [record()]
            assert service.tokens.find(secret) == token
            service.save_record(record(question(512)))  # the roles are there, and numbers go on
        newer = "SELECT 1 FROM pg_tables WHERE tablename = 'autotune_newer'"
        assert _ask(owner, newer) == [], "an upgrade would meet it"

    def test_a_backup_that_cannot_be_read_changes_nothing(self, server, owner, folder):
        owner.save_record(record())
        made = Path(server.backup(folder))
        made.write_bytes(made.read_bytes()[: made.stat().st_size * 2 // 3])
        with pytest.raises(AssertionError, match="cannot be read"):
            server.run(_file("restore.sh"), str(made))
        assert owner.records() == [record()]

    def test_one_that_goes_on_leaves_no_parts_and_ends_when_it_is_told(self, server, folder):
        environment = {**server.environment("nobody"), "BACKUP_EVERY_S": "1000"}
        command = [_file("backup.sh"), str(folder)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as goes:
            assert goes.stderr is not None
            assert any("no backup could be made" in line for line in goes.stderr)
            assert list(folder.iterdir()) == []
            goes.terminate()
            assert goes.wait(120) == 143

    def test_old_ones_go(self, server, folder):
        old, other = folder / "autotune-1.dump", folder / "notes.txt"
        for file in (old, other):
            file.touch()
            os.utime(file, (0, 0))
        made = server.backup(folder)
        assert {str(file) for file in folder.iterdir()} == {made, str(other)}
