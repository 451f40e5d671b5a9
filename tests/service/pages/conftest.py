"""Pages over HTTP, in a service in a thread of the test; and in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from autotune_db import SqlStore
from tests.samples.dashboard import fill
from tests.samples.database import new_store
from tests.servers.browser import FOUND, LIMIT_MS, Seen, seen_in
from tests.servers.service import Running, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that only read: keys 1, 2 and 3 of ``dashsamples.fill``."""
    file = str(tmp_path_factory.mktemp("dashboard") / "shared.db")
    new_store(file, fill).close()
    with running(file, recheck=False) as service:
        yield service


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "dashboard.db")


@pytest.fixture
def store(database: str) -> Iterator[SqlStore]:
    with new_store(database, fill) as store:
        yield store


@pytest.fixture
def fresh(store: SqlStore, database: str) -> Iterator[Running]:
    """For tests that write."""
    with running(database, recheck=False) as service:
        yield service


@pytest.fixture
def own_seen(browser: Browser, fresh: Running) -> Iterator[Seen]:
    """A browser on a service of the test's own."""
    yield from seen_in(browser, fresh)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if FOUND is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=FOUND, args=["--no-sandbox"], timeout=LIMIT_MS
        )
        yield chromium
        chromium.close()
