"""Pages of other sites in the browser of somebody who is signed in: nothing is written for them."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect

from tests.samples.matching import question
from tests.servers.browser import seen_in
from tests.servers.service import running, until
from tests.service.pages.conftest import browser

__all__ = ["browser"]

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/jobs", "/v1/records/1/pin"])
def test_a_browser_says_where_a_call_comes_from(service, admin, path, site):
    headers = {**JSON, "Authorization": f"Bearer {admin}", "Sec-Fetch-Site": site}
    status, _, answer = service.raw("POST", path, b"{}", **headers)
    assert (status, json.loads(answer)["error"]["code"]) == (403, "cross_site")
    nobody = {**JSON, "Sec-Fetch-Site": site}
    assert service.raw("POST", path, b"{}", **nobody)[0] == 403  # before a token is looked for
    headers["Sec-Fetch-Site"] = "same-origin"
    assert service.raw("POST", path, b"{}", **headers)[0] in (200, 422)


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_no_other_origin_is_allowed_to_send_a_token(service, origin):
    """The question that a browser asks before it sends headers of a page's own."""
    asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asking["Access-Control-Request-Headers"] = "authorization,content-type"
    status, headers, _ = service.raw("OPTIONS", "/v1/jobs", **asking)
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.fixture
def closed(store, database, admin):
    store.save_misses({(question(7), "default"): 3})
    with running(database, closed=True) as service:
        until(lambda: service.get("/v1/records", admin)[0] == 200)
        yield service


@contextmanager
def foreign_page(content):
    """Its address, under another name than the service's: another site."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_the_cookie_of_who_is_signed_in_writes_nothing_and_their_buttons_do(
    browser, closed, store, admin
):
    body = """name='{"miss": 1, "trials": 5, "x":"' value='"}'"""
    form = f"<form method=post enctype=text/plain action={closed.url}/v1/jobs><input {body}>"
    for seen in seen_in(browser, closed):
        page = seen.page
        page.goto(closed.url)
        page.get_by_label("Your token").fill(admin)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("link", name="Sign out")).to_be_visible()

        with foreign_page(f"{form}<button>Go</button></form>") as url:
            page.goto(url)
            with page.expect_response(f"{closed.url}/v1/jobs") as answer:
                page.get_by_role("button").click()
        assert (answer.value.status, store.jobs.list()) == (403, [])

        page = seen.open("/misses")
        page.locator("#token").fill(admin)
        page.locator("button[data-post]").first.click()
        until(lambda: len(store.jobs.list()) == 1)
        seen.wrong.clear()  # refusals, and pages that are not the service's
