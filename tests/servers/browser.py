"""Pages in a real Chromium, and what goes wrong on them."""

import shutil

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

WANTED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = next(filter(None, map(shutil.which, WANTED)), None)
LIMIT_MS = 120_000  # what only a hang takes, on a busy machine too
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


expect.set_options(timeout=LIMIT_MS)


class Seen:
    """A page, and what went wrong on it."""

    def __init__(self, page, service):
        self.page, self._service = page, service
        self.wrong: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._request)

    def open(self, path):
        self.page.goto(self._service.url + path)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.draw:not([hidden])')]"
            ".every(one => one.dataset.drawn)"
        )
        return self.page

    def _console(self, message):
        missing = "the server responded with a status of 404" in message.text
        if message.type in ("error", "warning") and not missing:
            self.wrong.append(f"{message.type}: {message.text}")

    def _request(self, request):
        if not request.url.startswith((self._service.url, "data:", "blob:")):
            self.wrong.append(f"request to {request.url}")


def seen_in(browser, service, **options):
    context = browser.new_context(**{"viewport": LAPTOP, "accept_downloads": True, **options})
    context.set_default_timeout(LIMIT_MS)
    seen = Seen(context.new_page(), service)
    yield seen
    context.close()
    assert seen.wrong == []


def violations(page):
    """What axe finds, of whatever weight."""
    violations = Axe().run(page).response["violations"]
    return [
        (violation["id"], [node["html"][:160] for node in violation["nodes"]][:3])
        for violation in violations
    ]
