"""Pages over HTTP, in a service in a thread of the test; and in a real Chromium."""

import pytest
from playwright.sync_api import sync_playwright

from tests.samples.dashboard import fill
from tests.samples.database import new_store
from tests.servers.browser import FOUND, LIMIT_MS, seen_in
from tests.servers.service import running


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """For tests that only read: keys 1, 2 and 3 of ``dashsamples.fill``."""
    file = str(tmp_path_factory.mktemp("dashboard") / "shared.db")
    new_store(file, fill).close()
    with running(file, recheck=False) as service:
        yield service


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "dashboard.db")


@pytest.fixture
def store(database):
    with new_store(database, fill) as store:
        yield store


@pytest.fixture
def fresh(store, database):
    """For tests that write."""
    with running(database, recheck=False) as service:
        yield service


@pytest.fixture
def own_seen(browser, fresh):
    """A browser on a service of the test's own."""
    yield from seen_in(browser, fresh)


@pytest.fixture(scope="module")
def browser():
    if FOUND is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=FOUND, args=["--no-sandbox"], timeout=LIMIT_MS
        )
        yield chromium
        chromium.close()
