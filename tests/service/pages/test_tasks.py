"""What people come for, by the clicks that it takes from the overview, in a real Chromium; and
every page at every width, in both schemes, without what axe finds."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from autotune.domain.job import Progress
from autotune.domain.token import ADMIN, WRITER
from tests.samples.dashboard import OUTCOMES, config, estimated, fill, published, running_job, trial
from tests.samples.database import key_id, new_store
from tests.samples.matching import NOON, question
from tests.samples.records import save_trial
from tests.samples.states import every_state
from tests.servers.browser import LAPTOP, PHONE, seen_in, violations
from tests.servers.service import running

pytestmark = pytest.mark.slow


def busy(store):
    """What ``fill`` has; a record of another on top; a search that runs."""
    fill(store)
    later = replace(published(question()), config=config(3), estimate=estimated(10.0).estimate)
    later = replace(
        later, created_at=NOON + timedelta(days=1), pushed_by="night-ci", checked_by="own"
    )
    store.save_record(later)
    save_trial(store, question(7, 7), trial(0, OUTCOMES[4]))
    store.searches.report(question(), "", Progress(done=3, goal=9, note="compiling"), over=False)
    running_job(store, "compiling")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    file = str(tmp_path_factory.mktemp("tasks") / "busy.db")
    new_store(file, busy).close()
    with running(file) as service:
        yield service


@pytest.fixture
def seen(browser, site):
    yield from seen_in(browser, site)


@pytest.fixture
def store(database):
    with new_store(database, busy) as store:
        yield store


class Visitor:
    """Counts clicks."""

    def __init__(self):
        self.clicks = 0

    def click(self, what):
        self.clicks += 1
        what.click()


def published_dot(seen):
    return seen.page.locator('.kernel a[href="/keys/1"] circle.default')


def test_what_is_served_is_copied_with_two_clicks(browser, site):
    allowed = ["clipboard-read", "clipboard-write"]
    for seen in seen_in(browser, site, permissions=allowed):
        page, visitor = seen.open("/"), Visitor()
        visitor.click(published_dot(seen))
        expect(page.locator(".headline")).to_contain_text("bm=256")
        visitor.click(page.get_by_role("button", name="JSON"))
        expect(page.locator(".take")).to_contain_text("copied")
        assert '"bm": 256' in page.evaluate("navigator.clipboard.readText()")
        assert visitor.clicks <= 2


@pytest.mark.parametrize("command", [True, False])
def test_copying_without_a_clipboard(seen, command):
    """As on plain HTTP of another host."""
    seen.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page = seen.open("/keys/1")
    if not command:
        page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Python").click()
    words = "copied" if command else "does not allow copying"
    expect(page.locator(".take")).to_contain_text(words)
    if not command:
        assert page.evaluate("getSelection().toString()").startswith("autotune.Config(")
        expect(page.locator("#take-Python")).to_be_visible()


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    file = str(tmp_path_factory.mktemp("tasks") / "states.db")
    new_store(file, every_state).close()
    with running(file) as service:
        yield service


class TestTenTasks:
    """From the first page, in at most three clicks each."""

    @pytest.fixture
    def first(self, browser, states):
        for seen in seen_in(browser, states):
            visitor = Visitor()
            yield seen.open("/"), visitor
            assert visitor.clicks <= 3

    def test_what_should_i_do_next(self, own_seen, store):
        """And do it: with the token asked for in place."""
        secret = store.tokens.create("ci", WRITER, None)[1]
        page = own_seen.open("/")
        rows = page.get_by_role("region", name="Next steps").locator("tbody tr")
        button = page.get_by_role("button", name="Request tuning")
        first = rows.filter(has=button).first
        first.get_by_role("button", name="Request tuning").click()
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        expect(first.get_by_role("link", name=re.compile("job . is queued"))).to_be_visible()

    def test_two_trials_side_by_side(self, first):
        page, visitor = first
        visitor.click(problem(page, "splash_attention 4x16x16x4096x128 bfloat16", "v5e"))
        visitor.click(page.get_by_role("region", name="Table of trials").locator("tbody a").first)
        visitor.click(page.get_by_role("link", name="Compare with what is served"))
        expect(page.get_by_role("row", name="block_q")).to_have_class("differs")

    def test_a_bad_record_is_rolled_back(self, own_seen, store):
        secret = store.tokens.create("boss", ADMIN, None)[1]
        page, visitor = own_seen.open("/"), Visitor()
        page.evaluate("secret => sessionStorage.setItem('token', secret)", secret)
        visitor.click(published_dot(own_seen))
        expect(page.get_by_text("night-ci").first).to_be_visible()
        visitor.click(page.get_by_text("History, and undo"))
        visitor.click(page.get_by_role("button", name="Serve this one"))
        expect(page.locator(".headline")).to_contain_text("bm=128")
        assert visitor.clicks <= 3
        served = store.record(question())
        assert served is not None and served.config == config(2)

    def test_a_search_is_watched(self, first):
        page, visitor = first
        going = page.locator("[data-live=running]")
        expect(going).to_contain_text("3 of 9 trials")
        visitor.click(going.get_by_role("link", name="rmsnorm"))
        expect(page.locator("[data-said]")).to_contain_text("3 of 9: at 3")


def problem(page, name, chip):
    """Of the latest searches."""
    rows = page.get_by_role("region", name="latest searches").get_by_role("row")
    return rows.filter(has_text=name).filter(has_text=chip).get_by_role("link").first


def test_a_view_has_a_name_in_this_browser_only(seen):
    page = seen.open("/problems?q=kernel%3Amm&order=-gain&hide=config")
    page.get_by_text("Views").click()
    page.get_by_label("A name for what is shown now").fill("<b>mine</b>")
    page.keyboard.press("Enter")
    seen.open("/jobs")
    page.get_by_text("Views").click()
    page.get_by_role("link", name="<b>mine</b>").click()
    expect(page).to_have_url(re.compile(r"/problems\?q=kernel%3Amm&order=-gain&hide=config$"))
    page.get_by_text("Views").click()
    page.get_by_role("button", name="Forget the view <b>mine</b>").click()
    expect(page.locator("[data-views] li")).to_have_count(0)


def test_paper_has_all_sections_and_a_phone_sorts(browser, states):
    for seen in seen_in(browser, states, viewport=PHONE):
        page = seen.open("/keys/1")
        expect(page.locator("details.fold:not([open])")).not_to_have_count(0)
        page.pdf()
        expect(page.locator("details.fold:not([open])")).to_have_count(0)
        page = seen.open("/jobs")
        page.locator("thead").get_by_role("link", name="state", exact=True).click()
        expect(page).to_have_url(re.compile("order=state"))


def test_what_a_worker_says_is_followed_with_one_click(own_seen, store):
    job = store.jobs.get(1)
    assert job is not None
    visitor, page = Visitor(), own_seen.open("/")
    visitor.click(page.locator("[data-live=running]").get_by_role("link", name="job 1"))
    said = page.get_by_role("region", name="Log of attempt 1")
    expect(said).to_contain_text("compiling")
    assert visitor.clicks <= 1
    store.jobs.write_log(job, "<b>2 of 9</b>")
    expect(said).to_have_text("<b>2 of 9</b>")
    store.jobs.write_log(job, "1\n" * 99)
    page.evaluate("renew()")
    said.click()
    read = said.evaluate("log => (log.scrollTop = -400, log.scrollHeight + log.scrollTop)")
    store.jobs.write_log(job, "1\n" * 99 + "the end\n")
    page.evaluate("renew()")
    expect(said).to_contain_text("the end")
    now = said.evaluate("log => log.scrollHeight + log.scrollTop")
    assert now == pytest.approx(read, abs=2)
    expect(said).to_be_focused()


def test_what_did_not_change_is_not_drawn_again(seen):
    page = seen.open("/jobs/1")
    page.evaluate("$('[data-live=job]').firstElementChild.isOld = true")
    assert page.locator("[data-live=job] time[title]").count()
    page.evaluate("renew()")
    assert page.evaluate("$('[data-live=job]').firstElementChild.isOld")


def test_a_phone_shows_the_answer_and_opens_the_rest(browser, site):
    for seen in seen_in(browser, site, viewport=PHONE):
        page = seen.open("/keys/1")
        assert page.evaluate("document.documentElement.scrollHeight") < 4_000
        trials = page.locator("div[aria-label='Table of trials']")
        expect(trials).to_be_hidden()
        page.get_by_role("heading", name="Trials").click()
        expect(trials).to_be_visible()
        assert trials.evaluate("one => one.scrollWidth <= one.clientWidth")
        page.get_by_role("heading", name="VMEM and roofline").click()
        expect(page.locator("[data-plot=vmem] .xtick text").first).to_be_visible()


PAGES = (
    "/",
    "/problems",
    "/kernels/mm",
    "/keys/1",
    "/trials/3",
    "/compare?trial=1&trial=3",
    "/toolchains/1",
    "/jobs",
    "/jobs/1",
    "/misses",
    "/workloads",
    "/workloads/model",
    "/upgrades",
    "/snapshots?from=1&to=3",
    "/problems?q=nothing-has-this",
    "/states",
    "/docs",
    "/keys/999",
)


@pytest.mark.parametrize("path", [*PAGES, "unsearched", "failed"])
def test_nothing_keeps_anybody_out(browser, site, path, tmp_path):
    """In the light, then in the dark; what is narrow is laid out in another way, in the same
    colours."""
    if not path.startswith("/"):
        with new_store(tmp_path / "busy.db", busy) as store:
            key = store.misses()[0].key if path == "unsearched" else question(7, 7)
            path = f"/keys/{key_id(store, key)}"
    for seen in seen_in(browser, site, viewport=LAPTOP, color_scheme="light"):
        page = seen.open(path)
        expect(page.locator("h1")).to_have_count(1)
        if path == "/docs":
            expect(page.locator("#operations-operation-healthz")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        background = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(background) == "rgb(246, 247, 249)"
        assert violations(page) == []
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"() => {background} === 'rgb(14, 17, 22)'")
        assert violations(page) == []
        page.set_viewport_size({"width": 320, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert violations(page) == []
