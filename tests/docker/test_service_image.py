"""The service's image: what its steps install, and the service that then runs."""

import subprocess
from pathlib import Path

import pytest

from tests.samples.dockerfiles import ROOT
from tests.servers.images import COMPOSE
from tests.servers.service import until

pytestmark = pytest.mark.slow

SECRET = {"AUTOTUNE_DATABASE_URL_FILE": "/run/secrets/database_url", "HOME": "/nonexistent"}
HEAVY = ("jax", "jaxlib", "libtpu", "optuna", "numpy", "scipy", "pip", "setuptools")


@pytest.fixture
def database(service_image):
    """A database that does not exist yet, named by the secret."""
    service_image.empty_data()
    file = service_image.data / "autotune.db"
    (service_image.secrets / "database_url").write_text(f"sqlite:///{file}\n")
    return file


def _python(image, code):
    done = image.execute(["python", "-W", "error", "-c", code])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_the_service_and_nothing_heavy(service_image):
    names = "autotune_service.app, psycopg, psycopg_binary, autotune_db, autotune_kernels"
    _python(service_image, f"import {names}")
    found = "from importlib.util import find_spec; print([n for n in {} if find_spec(n)])"
    assert _python(service_image, found.format(HEAVY)) == "[]\n"


def test_every_file_of_our_packages_is_installed(service_image):
    tracked = subprocess.check_output(
        ["git", "ls-files", "autotune", "db", "kernels", "service"], cwd=ROOT, text=True
    ).split()
    installed = Path(_python(service_image, "import autotune; print(autotune.__path__[0])").strip())
    packages = [
        file if file.startswith("autotune/") else file.partition("/")[2] for file in tracked
    ]
    missing = [file for file in packages if not (installed.parent / file).is_file()]
    assert {"autotune/__init__.py", "autotune_db/__init__.py"} <= set(packages)
    assert missing == []


def test_the_command_runs(service_image, walls):
    done = service_image.execute(["autotune", "--help"], walls=walls)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


@pytest.mark.usefixtures("can_wall")
def test_the_walls_hold(service_image):
    write = "import os; print(os.getuid()); open('{}/file', 'w')"
    for folder, allowed in (
        ("/opt/autotune", False),
        ("/var/tmp", False),
        (".", False),
        ("/tmp", True),
        ("/data", True),
    ):
        done = service_image.execute(["python", "-c", write.format(folder)], walls=True)
        assert done.stdout == "10001\n"
        assert (done.returncode == 0) == allowed, (folder, done.stderr)


def test_migrations_then_the_service(service_image, database, walls):
    assert not service_image.healthy()
    upgrade = ["autotune", *COMPOSE["services"]["migrate"]["command"]]
    done = service_image.execute(upgrade, SECRET, walls=walls)
    assert done.returncode == 0, done.stderr
    assert database.is_file()

    with service_image.started(SECRET, walls=walls) as process:
        until(lambda: service_image.healthy() or process.poll() is not None)
        assert process.poll() is None, process.stdout and process.stdout.read()
    assert not service_image.healthy()
