"""The images themselves, built by ``docker/build-images``, and what runs in them."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.samples.dockerfiles import FOLDER, health_command, stages
from tests.servers.images import run
from tests.servers.service import free_port, until

pytestmark = pytest.mark.slow

MOST_BYTES = {"service": 310e6, "worker": 1.8e9}
"""What they took when this was written, and some room: who adds a package sees it here."""
WORKER_LOCK = FOLDER / "worker.lock"
ENVIRONMENT = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}


@pytest.fixture(scope="module", params=["service", "worker"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def image(name: str) -> str:
    for tool in ("buildah", "debootstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine: apt-get install buildah debootstrap")
    if os.geteuid() != 0:
        pytest.skip("only root may build images here")
    done = run([str(FOLDER / "build-images"), name], env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return f"localhost/pallas-autotune-{name}"


@pytest.fixture
def container(image: str) -> Iterator[str]:
    made = _buildah("from", "--pull=never", image).strip()
    yield made
    _buildah("rm", made)


def _buildah(*command: str) -> str:
    done = run(["buildah", *command], env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What is mounted as /mnt: the image's user may write to it. /data is a volume of the image,
    which buildah keeps for itself."""
    made = tmp_path / "data"
    made.mkdir()
    os.chown(made, 10001, 10001)
    return made


def _in(container: str, data: Path, *command: str) -> list[str]:
    where = (
        "--volume",
        f"{data}:/mnt",
        "--env",
        "AUTOTUNE_DATABASE_URL=sqlite:////mnt/autotune.db",
    )
    return ["buildah", "run", *where, container, "--", *command]


def _config(image: str) -> dict[str, Any]:
    told = json.loads(_buildah("inspect", "--type", "image", image))
    return dict(told["Docker"]["config"])


def test_it_stays_small(image: str, name: str) -> None:
    (found,) = json.loads(_buildah("images", "--json", image))
    number, unit = found["size"].split()
    size_bytes = float(number) * {"MB": 1e6, "GB": 1e9}[unit]
    print(f"{name}: {found['size']}")
    assert size_bytes < MOST_BYTES[name]


def test_it_is_what_its_file_says(image: str, name: str) -> None:
    """The health check too, which images of another format than docker's do not have."""
    final = stages((FOLDER / f"{name}.Dockerfile").read_text())[-1]
    config = _config(image)
    assert config["User"] == final.one("USER").rest
    assert config["Entrypoint"] == final.one("ENTRYPOINT").words
    assert config["Cmd"] == final.one("CMD").words
    assert config["Healthcheck"]["Test"] == ["CMD", *health_command(final)]
    assert config["Labels"]["org.opencontainers.image.revision"] not in ("", "unknown")


def test_it_runs(container: str, data: Path, name: str) -> None:
    """The service answers over HTTP, the worker searches with the real TPU compiler."""
    {"service": _asks_the_service, "worker": _searches}[name](container, data)


def _asks_the_service(container: str, data: Path) -> None:
    port = free_port()
    done = run(_in(container, data, "autotune", "db", "upgrade"), env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert (data / "autotune.db").stat().st_uid == 10001
    serve = _in(container, data, "autotune", "serve", "--port", str(port))
    with _running(serve) as process:
        until(lambda: _answers(port) or process.poll() is not None, 120)
        assert process.poll() is None, process.communicate()[0]
        status, body = _get(port, "/readyz")
        assert (status, json.loads(body)["database"]) == (200, "ok")
        status, page = _get(port, "/")
        assert status == 200 and b"<html" in page
        assert _get(port, "/static/x/plotly-cartesian.min.js")[0] == 200


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=600)


def _get(port: int, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _answers(port: int) -> bool:
    try:
        return _get(port, "/healthz")[0] == 200
    except OSError:
        return False


def _searches(container: str, data: Path) -> None:
    pinned = re.findall(r"^(?:jax|jaxlib|libtpu)==(\S+)", WORKER_LOCK.read_text(), re.M)
    code = "from importlib.metadata import version as v; print(v('jax'), v('jaxlib'), v('libtpu'))"
    done = run(_in(container, data, "python", "-c", code), env=ENVIRONMENT)
    assert done.stdout.split() == pinned, done.stderr
    search = ("vector_add", "--shape", "1048576", "--chip", "v5e", "--trials", "2", "--json")
    given = ("--compilers", "1")
    done = run(_in(container, data, "autotune", "search", *search, *given), env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record"]["verified"] is True
    asked = ("vector_add", "--shape", "1048576", "--chip", "v5e", "--json")
    done = run(_in(container, data, "autotune", "lookup", *asked), env=ENVIRONMENT)
    assert json.loads(done.stdout)["match"] == "exact"
