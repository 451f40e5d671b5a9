"""The pages in a real Chromium, with the results of real searches."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from autotune.domain.key import Chip
from autotune.domain.token import READER, WRITER
from autotune_db import open_store
from tests.samples.dashboard import CHECKS, estimated, evil_key, trial, wanted
from tests.samples.database import key_id
from tests.samples.matching import question
from tests.samples.records import save_trial
from tests.servers.browser import seen_in
from tests.servers.service import running, until

pytestmark = pytest.mark.slow

SEARCHES = (("matmul", "512x512x512", "v5e", "16"), ("matmul", "512x512x512", "v6e", "2"))


def search(database, kernel, shape, chip, trials):
    command = [sys.executable, "-m", "autotune", "search", kernel, "--shape", shape]
    return [*command, "--chip", chip, "--trials", trials, "--full", "--db", database]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A database with the results of real searches, and a miss."""
    file = str(tmp_path_factory.mktemp("real") / "real.db")
    for arguments in SEARCHES:
        subprocess.run(search(file, *arguments), check=True, capture_output=True, timeout=1200)
    with open_store(file, create=False) as store:
        store.save_misses({(question(77, 5), "default"): 4})
        for check in CHECKS:
            store.save_check(check)
    return file


@pytest.fixture(scope="module")
def site(real):
    with running(real) as service:
        yield service


@pytest.fixture
def seen(browser, site):
    yield from seen_in(browser, site)


def _place(of):
    of.scroll_into_view_if_needed()
    return of.bounding_box()


def test_filters_and_links(seen):
    page = seen.open("/")
    page.get_by_role("article").get_by_role("link", name="matmul").click()
    expect(page.get_by_role("heading", name="matmul", exact=True)).to_be_visible()
    page.locator("select[name=chip]").select_option("v6e")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"/kernels/matmul\?q=&chip=v6e&toolchain=&state="))
    rows = page.get_by_role("region", name="Problems and records").locator("tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Clear filters").click()
    expect(rows).to_have_count(2)
    rows.first.get_by_role("rowheader").get_by_role("link").click()
    page.get_by_role("columnheader", name="estimated").get_by_role("link").click()
    times = page.get_by_role("region", name="Trials").locator("tbody tr td:nth-child(4)")
    shown = [float(text.split()[0].replace(",", "")) for text in times.all_inner_texts()]
    assert shown == sorted(shown)
    page.get_by_role("region", name="Trials").locator("tbody tr").first.get_by_role("link").click()
    expect(page.get_by_text("Reproduce")).to_be_visible()
    page.get_by_role("link", name="all trials").click()
    expect(page.get_by_role("heading", name="Search")).to_be_visible()


def test_a_click_on_a_dot_opens_its_trial(seen):
    page = seen.open("/keys/1")
    box = _place(page.locator("[data-plot=trials] .scatterlayer .point").nth(3))
    place = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*place)
    expect(page.locator("[data-plot=trials] .hoverlayer")).to_contain_text("trial")
    page.mouse.click(*place)
    page.wait_for_url("**/trials/*")


def test_the_theme_is_kept_and_paper_is_white(seen):
    page = seen.open("/")
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.open("/keys/1")
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    drawn = "document.querySelector('[data-plot=trials]').layout.font.color"
    assert page.evaluate(drawn) == "rgb(230, 235, 242)"
    page.emulate_media(media="print")
    dark_on_white = "rgb(22, 32, 44)"
    assert page.evaluate("getComputedStyle(document.body).color") == dark_on_white
    page.wait_for_function(f"() => {drawn} === '{dark_on_white}'")


def test_a_plot_is_saved_as_an_image(seen):
    page = seen.open("/keys/1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as image: Roofline").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert download.value.suggested_filename.endswith("roofline.png")


def test_without_scripts_the_tables_are_there(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url + "/keys/1")
    expect(page.get_by_role("region", name="Trials").locator("tbody tr")).to_have_count(16)
    context.close()


def test_a_live_search_is_watched_to_its_end(browser, tmp_path):
    file = str(tmp_path / "live.db")
    open_store(file, create=True).close()
    command = search(file, "matmul", "256x512x512", "v5e", "12")
    with running(file) as service, open_store(file, create=False) as store:
        going = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: store.browse.latest(1), 600)
            for seen in seen_in(browser, service):
                page = seen.open("/keys/1")
                before = page.locator("[data-live=trials] tbody tr").count()
                assert before < 12
                said = page.locator("[data-said]")
                expect(said).to_contain_text(re.compile(r"^\d+ of 12: "))
                expect(said).to_contain_text("12 trials: 12 estimated")
                expect(page.locator("[data-live=trials] tbody tr")).to_have_count(12)
                expect(page.locator("[data-live=answer]")).to_contain_text("verified")
                points = "document.querySelector('[data-plot=trials]').data[0].x.length"
                assert page.evaluate(points) == 12
            assert going.wait(600) == 0
        finally:
            going.kill()
            going.wait()


class TestOwnDatabase:
    def test_a_miss_is_requested_with_a_token(self, own_seen, store):
        secret = store.tokens.create("ci", WRITER, None)[1]
        page = own_seen.open("/")
        button = page.get_by_role("button", name="Request tuning of mm m=77")
        button.click()
        expect(page.get_by_text("give a token first")).to_be_visible()
        page.get_by_label("Token with the role writer").fill("wrong")
        with page.expect_response("**/v1/jobs"):
            button.click()
        expect(page.get_by_text("the token is unknown")).to_be_visible()
        page.get_by_label("Token with the role writer").fill(secret)
        button.click()
        expect(page.get_by_text("job 2")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0
        own_seen.wrong.remove(next(line for line in own_seen.wrong if "401" in line))
        job = store.jobs.get(2)
        assert (job.created_by, job.request.problem["m"]) == ("ci", 77)

    def test_a_search_begins_on_the_page_of_its_problem(self, own_seen, store):
        """Who waits for it sees its plots and trials, and need not give the token again."""
        key = question(77, 5, chip=Chip.V6E)
        page = own_seen.open(f"/keys/{key_id(store, key)}")
        field = page.get_by_label("Token with the role writer")
        field.fill("secret")
        page.get_by_role("heading", level=1).click()
        made, _ = store.jobs.add(wanted(key))
        page.evaluate("renew()")
        expect(page.get_by_text(f"job {made.number}").first).to_be_visible()
        store.jobs.cancel(made.number)
        page.evaluate("renew()")
        expect(field).to_have_value("secret")
        save_trial(store, key, trial(0, estimated(5.0)))
        expect(page.get_by_role("heading", name="Trials", exact=True)).to_be_visible()

    def test_searches_are_requested_for_all_that_an_upgrade_breaks(self, own_seen, store):
        secret = store.tokens.create("ci", WRITER, None)[1]
        before = len(store.jobs.list())
        page = own_seen.open("/upgrades")
        page.locator("select[name=kernel]").select_option("mm")
        page.get_by_role("button", name="Filter").click()
        rows = page.get_by_role("region", name="Checked configs").locator("tbody tr")
        expect(rows).to_have_count(2)
        page.get_by_label("Token with the role writer").fill(secret)
        all_of_them = page.get_by_role("button", name="Request tuning of all 2")
        all_of_them.click()
        expect(page.get_by_text("2 requested")).to_be_visible()
        expect(all_of_them).to_be_disabled()
        jobs = store.jobs.list()
        made = {(job.created_by, job.request.chip.value) for job in jobs[: len(jobs) - before]}
        assert made == {("ci", "v5e"), ("ci", "v6e")}

    def test_no_text_from_outside_runs(self, own_seen, store):
        number = key_id(store, evil_key())
        paths = ["/", "/upgrades", f"/kernels/{quote(evil_key().kernel, safe='')}"]
        paths += [f"/keys/{number}", f"/toolchains/{number}"]
        for path in (*paths, *(f"/trials/{trial_id}" for trial_id in range(7, 16))):
            page = own_seen.open(path)
            page.wait_for_timeout(100)
            assert page.evaluate("window.evil") is None, path
            assert page.locator("main img").count() == 0, path

    def test_a_closed_service_is_opened_with_a_token(self, browser, store, database):
        secret = store.tokens.create("reader", READER, None)[1]
        with running(database, closed=True) as service:
            until(lambda: service.get("/v1/misses", secret)[0] == 200)
            for seen in seen_in(browser, service):
                page = seen.open("/keys/1")
                page.get_by_label("Your token").fill(secret)
                page.get_by_role("button", name="Sign in").click()
                expect(page.get_by_role("heading", name="Search")).to_be_visible()
                expect(page.locator("[data-said]")).to_contain_text("best trial 9.5 µs")
                seen.wrong[:] = [line for line in seen.wrong if "401" not in line]


def test_the_reference_of_the_http_interface(seen):
    """Swagger UI, under the policy of the pages; what is asked there is answered."""
    page = seen.open("/docs")
    operation = page.locator("#operations-operation-healthz")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    status = operation.locator(".live-responses-table td.response-col_status:not(.col_header)")
    expect(status).to_contain_text("200")
