"""For all tests: no deadlines, machines are noisy; one real compiler and one PostgreSQL for the
session, which each worker of pytest-xdist has of its own."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Some tests ask libtpu for a chip in their own process, and so may two workers at once.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
# Each takes two seconds to start. A test of two says so.
os.environ.setdefault("AUTOTUNE_COMPILERS", "1")

import gc
import signal
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autotune.compiling.pool import CompilerPool
from autotune_db import open_store
from tests.samples.database import new_store
from tests.servers.postgres import postgres_server

# Both would judge how busy the machine is. ``make test-nightly`` tries ten times as many examples.
settings.register_profile(
    "any machine", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("any machine"), max_examples=400)
settings.load_profile("any machine")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every child.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The last snapshot of a service that is configured by its URL is kept there.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="autotune-cache-")

ROOT = Path(__file__).parent

# Which files have slow tests that are not in every run, and which of them are.
_NIGHTLY = tomllib.loads((ROOT / "nightly.toml").read_text())


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Millions of objects, all of which stay: nobody looks again and again for what is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items):
    """Marks what is nightly, after folders have marked what is slow. Files with nightly tests come
    first: begun last, one of them would be all that is left to do."""
    files = {ROOT / name: names for name, names in _NIGHTLY.items()}
    for item in items:
        if item.path in files and item.get_closest_marker("slow") is not None:
            whole = item.nodeid.partition("::")[2]  # with its class
            if not any(name.startswith(tuple(files[item.path])) for name in (item.name, whole)):
                item.add_marker(pytest.mark.nightly)
    items.sort(key=lambda item: item.path not in files)


@pytest.fixture(scope="session")
def pool():
    with CompilerPool(1) as compilers:
        yield compilers


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where this process and its children keep temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture(scope="session")
def postgres():
    with postgres_server() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'autotune.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request):
    """A database that is empty (PostgreSQL) or does not exist yet (SQLite)."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres = request.getfixturevalue("postgres")
    database = postgres.new_database()
    yield database
    postgres.drop(database)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request, tmp_path):
    """Empty."""
    if request.param == "sqlite":
        with new_store(tmp_path / "autotune.db") as opened:
            yield opened
        return
    postgres = request.getfixturevalue("postgres")
    with open_store(postgres.emptied(), create=False) as opened:
        yield opened
