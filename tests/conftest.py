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
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autotune.compiling.pool import CompilerPool
from tests.servers.postgres import Postgres, postgres_server

# Both would judge how busy the machine is.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every child.
signal.signal(signal.SIGINT, signal.default_int_handler)


ROOT = Path(__file__).parent

# Files that take a minute or more of processor time, or wait as long: begun last, one would be all
# that is left to do.
_LONG = (
    "service/test_schemathesis.py",
    "service/pages/test_chromium.py",
    "service/test_service_faults.py",
    "docs/test_blocks.py",
    "e2e/test_search_command.py",
    "e2e/test_from_jax.py",
    "answering/test_safe_is_legal.py",
    "compiling/child/verify/test_broken_kernels.py",
    "service/pages/test_tasks.py",
    "e2e/test_check_command.py",
    "e2e/test_check_against.py",
    "e2e/test_physical_bound.py",
    "compiling/farm/test_cluster.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Millions of objects, all of which stay: nobody looks again and again for what is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files come first."""
    order = {ROOT / name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path, len(_LONG)))


@pytest.fixture(scope="session")
def pool() -> Iterator[CompilerPool]:
    with CompilerPool(1) as compilers:
        yield compilers


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process and its children keep temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'autotune.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that is empty (PostgreSQL) or does not exist yet (SQLite)."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres = request.getfixturevalue("postgres")
    database = postgres.new_database()
    yield database
    postgres.drop(database)
