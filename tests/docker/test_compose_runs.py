"""All of docker/compose.yaml, run by a Docker daemon: see ``tests/docker/run-compose``."""

import json
import os
import re
import shlex
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.samples.dockerfiles import FOLDER, ROOT, run
from tests.servers.service import until

pytestmark = pytest.mark.slow

STAND_INS = Path(__file__).with_name("stand-ins") / "compose.yaml"
IMAGES = (
    "pallas-autotune-service",
    "pallas-autotune-worker",
    "stand-in-postgres",
    "stand-in-nginx",
)
URL = "https://localhost:18443"
GUIDE = (ROOT / "docs" / "guides" / "deploying.md").read_text()


def _told(pattern):
    """A command of the guide; found when this file is read, so wherever tests are collected."""
    (found,) = re.findall(pattern, GUIDE, re.MULTILINE | re.DOTALL)
    return str(found)


SECRETS = _told(r"^(docker/make-secrets\.sh) ")
UP = _told(r"^(docker compose [^\n]* up) --build --detach$")
TOKEN = _told(r"`(docker compose [^`]* token create [^`]*)`")
BACKUP = _told(r"`(docker compose [^`]*BACKUP_EVERY_S=[^`]*)`")
RESTORE = _told(r"go back to one:\n[^`]*```bash\n(.*?)```")
ENDING = ("migrate", "roles")
STAYING = ("postgres", "service", "proxy", "worker", "backup")
PROBLEM = {"dims": {"n": 1 << 20}, "dtype": "float32"}


class Compose:
    """A copy of ``docker/`` with other images and ports, in which the commands of the guide run."""

    def __init__(self, folder):
        self._folder, own = folder, folder / "docker"
        shutil.copytree(FOLDER, own, ignore=shutil.ignore_patterns("secrets"))
        (own / "compose.yaml").rename(own / "as-it-is.yaml")
        paths = ["as-it-is.yaml", str(STAND_INS)]
        (own / "compose.yaml").write_text(json.dumps({"include": [{"path": paths}]}))
        self.shell(SECRETS)
        self._context = ssl.create_default_context(cafile=str(own / "secrets" / "certificate"))

    def __call__(self, words):
        return self.shell(f"docker compose -f docker/compose.yaml {words}")

    def shell(self, command):
        environment = {**os.environ, "COMPOSE_PROJECT_NAME": "autotune-test"}
        done = run(["sh", "-c", command], cwd=self._folder, env=environment, timeout=900)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def up(self):
        """Until all are well."""
        self.shell(f"{UP} --no-build --detach")
        until(self.is_well, 300)

    def is_well(self):
        return all(
            state == ("exited", "", 0)
            if name in ENDING
            else state[0] == "running" and state[1] in ("", "healthy")
            for name, state in self.states().items()
        )

    def states(self):
        """Of each container: whether it runs, its health, and with what it ended."""
        lines = self("ps --all --format json").splitlines()
        found = [json.loads(line) for line in lines]
        return {one["Service"]: (one["State"], one["Health"], one["ExitCode"]) for one in found}

    def ask(self, path, body=None, token=""):
        """Through the proxy, with the certificate that was made."""
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        sent = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(URL + path, sent, headers)
        try:
            with urllib.request.urlopen(asked, timeout=60, context=self._context) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def compose(tmp_path_factory):
    """All of it, up and healthy."""
    if shutil.which("docker") is None or run(["docker", "info"]).returncode != 0:
        pytest.skip("no Docker daemon answers: tests/docker/run-compose starts one")
    if run(["docker", "compose", "version"]).returncode != 0:
        pytest.skip("docker has no compose on this machine")
    for image in IMAGES:
        if run(["docker", "image", "inspect", image]).returncode != 0:
            pytest.skip(f"the image {image} is not there: tests/docker/run-compose makes it")
    made = Compose(tmp_path_factory.mktemp("compose"))
    try:
        made.up()
        yield made
    finally:
        print(made("logs --no-color --tail 50"))
        made("down --volumes --timeout 150")


@pytest.fixture(scope="module")
def token(compose):
    """Made as the guide says."""
    (secret,) = re.findall(r"autotune_\S+", compose.shell(TOKEN.replace("NAME", "ci")))
    until(lambda: compose.ask("/v1/jobs/1/cancel", {}, secret)[0] == 404)
    return secret


def test_who_has_a_health_check_is_healthy(compose):
    states = compose.states()
    assert set(states) == {*ENDING, *STAYING}
    healthy = {name for name, (_, health, _) in states.items() if health == "healthy"}
    assert healthy == {"postgres", "service", "worker"}


def test_it_answers_over_tls_only(compose):
    assert compose.ask("/readyz") == (
        200,
        {"status": "ok", "snapshot": 0, "records": 0, "database": "ok"},
    )
    assert compose.ask("/metrics")[0] == 404
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{URL.replace('https', 'http')}/readyz", timeout=120)


@pytest.mark.parametrize("name", ["service", "worker"])
def test_ours_can_write_nothing(compose, name):
    assert compose(f"exec {name} id -u").strip() == "10001"
    with pytest.raises(AssertionError, match="Read-only file system"):
        compose(f"exec {name} touch /opt/autotune/x")
    compose(f"exec {name} touch /tmp/x")
    status = compose(f"exec {name} cat /proc/1/status")
    assert re.search(r"CapEff:\s*0+\n", status) and re.search(r"NoNewPrivs:\s*1\n", status)


def test_the_worker_reaches_the_database_and_nothing_outside(compose):
    ask = """exec worker python -c 'import socket; socket.create_connection(("{}", {}), 5)'"""
    compose(ask.format("postgres", 5432))
    for host, port in (("proxy", 8443), ("172.30.87.2", 8443)):
        with pytest.raises(AssertionError, match=r"socket\.py"):
            compose(ask.format(host, port))


def test_there_is_a_backup_that_nobody_asked_for(compose):
    until(lambda: re.search(r"autotune-\w+\.dump\n", compose("exec backup ls /backups")))


def test_a_job_is_searched_backed_up_and_restored(compose, token):
    wanted = {"kernel": "vector_add", "problem": PROBLEM, "chip": "v5e", "trials": 1}
    status, job = compose.ask("/v1/jobs", wanted, token)
    assert status == 201, job
    place, ended = f"/v1/jobs/{job['number']}", ("done", "failed", "cancelled")

    def state():
        status, found = compose.ask(place)
        assert status == 200, found
        return str(found["state"])

    until(lambda: state() in ended, 900)
    found = compose.ask(place)[1]
    assert found["state"] == "done", found
    until(lambda: compose.ask("/readyz")[1]["records"] == 1)

    backup = compose.shell(BACKUP).strip()
    lost = "autotune_job_logs, autotune_jobs"
    drop = f'psql "$(cat /run/secrets/database_url)" -qc "DROP TABLE {lost}"'
    compose(f"run --rm --entrypoint sh roles -c {shlex.quote(drop)}")
    assert compose.ask(place)[0] == 503
    compose.shell("set -e; " + re.sub(r"/backups/\S+", backup, RESTORE))
    until(compose.is_well, 300)
    assert compose.ask(place)[1] == found
    assert compose.ask("/readyz")[1]["records"] == 1


def test_a_service_that_was_killed_comes_back(compose):
    compose("exec service python -c 'import os; os.kill(-1, 9)' || true")
    until(lambda: compose.ask("/readyz")[0] == 200, 120)
    until(lambda: compose.states()["service"] == ("running", "healthy", 0), 120)
