"""No two pages say different things of one record: all pages of a database in which each state is
somebody's are read, and each fact that they name is compared."""

import json
import re
from collections import defaultdict
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from autotune.domain.record import CheckVerdict
from autotune.wording.units import micros
from autotune_service.pages.states import WORDS
from tests.samples.dashboard import html, plain
from tests.samples.database import new_store
from tests.samples.states import every_state
from tests.servers.service import running

_EMPTY = {"br", "img", "input", "link", "meta", "line", "circle", "rect", "path"}
_NOT_PAGES = ("/export/", "/v1/", "/static/", "/session", "/openapi.json", "/readyz", "/docs")


class Facts(HTMLParser):
    """What a page says: the texts of each fact."""

    def __init__(self, text):
        super().__init__()
        self._open: list[str] = []
        self.said: defaultdict[str, list[str]] = defaultdict(list)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in _EMPTY:
            name = dict(attrs).get("data-fact") or ""
            self._open.append(name)
            if name:
                self.said[name].append("")

    def handle_endtag(self, tag):
        if tag not in _EMPTY:
            self._open.pop()

    def handle_data(self, data):
        for name in filter(None, self._open):
            self.said[name][-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    file = str(tmp_path_factory.mktemp("states") / "all.db")
    new_store(file, every_state).close()
    with running(file, recheck=False) as service:
        yield service


@pytest.fixture(scope="module")
def pages(site):
    """All that links lead to, by their addresses; each order of a table once."""
    read = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        if path not in read:
            read[path] = html(site, path)
            links = map(unescape, re.findall(r'href="(/[^"#]*)', read[path]))
            waiting += [link for link in links if is_page(link)]
    return read


def is_page(link):
    at = urlsplit(link)
    once = "hide=" not in at.query and ("order=" not in at.query or at.path == "/problems")
    return once and not at.path.startswith(_NOT_PAGES)


def test_no_two_pages_contradict_each_other(pages):
    said = defaultdict(lambda: defaultdict(set))
    for path, text in pages.items():
        for name, texts in Facts(text).said.items():
            for one in texts:
                said[name][" ".join(one.split())].add(path)
    kinds = {name.partition("/")[0] for name in said}
    wanted = {"states", "served", "gain", "config", "xla", "trials", "best", "check", "job"}
    assert wanted | {"outcome", "role", "time", "snapshot", "model"} == kinds
    assert {name: dict(texts) for name, texts in said.items() if len(texts) > 1} == {}
    compared = {name.partition("/")[0] for name, texts in said.items() if _pages(texts) > 1}
    assert compared >= kinds - {"check"}  # checks stand on one page


def _pages(texts):
    return len(set().union(*texts.values()))


def test_files_say_what_pages_say(site, pages):
    said = Facts(pages["/problems"]).said
    rows = site.get("/export/kernel.json")[1]
    assert len(rows) == len([name for name in said if name.startswith("states/")]) > 10
    for row in rows:
        words = " ".join(said[f"states/{row['key']}"][0].split())
        assert words == row["states"].replace(", ", " ")
        served = said.get(f"served/{row['key']}")
        assert (served or ["–"]) == [micros(row["published_estimated_us"])]


def test_each_state_is_shown_somewhere_and_nothing_denies_it(pages):
    others = [text for path, text in pages.items() if path != "/states"]
    shown = set(re.findall(r'<span class="state [^>]*>([^<]+)</span>', "".join(others)))
    assert set(WORDS) - shown == set()
    for path, text in pages.items():
        if re.fullmatch(r"/keys/\d+", path):
            words = plain(text[text.index("<h1") : text.index('id="answer"')])
            is_published = not re.search("searching|unpublished|nothing fits|missing", words) or (
                re.search("proven|claimed|default wins", words) is not None
            )
            assert ("Published 2026" in plain(text)) == is_published, path
            assert ("Nothing is published" in text) == bool(
                re.search("unpublished|nothing fits", words)
            ), path


class TestTables:
    @pytest.mark.parametrize("figure", ["time", "best", "gain", "xla", "trials"])
    def test_a_column_is_in_order_both_ways_and_says_so(self, site, figure):
        """What is claimed only goes by its trials."""
        name = "served" if figure == "time" else figure
        for order, arrow in ((figure, "ascending"), (f"-{figure}", "descending")):
            text = html(site, f"/problems?order={order}&state=published")
            rows = [Facts(row).said for row in re.findall(r"<tr>.*?</tr>", text, re.S)[1:]]
            proven = [s for s in rows if "claimed" not in "".join(map(str, s.values()))]
            texts = [said[n][0] for said in proven for n in said if n.startswith(f"{name}/")]
            shown = [float(one.split()[0].rstrip("×").replace(",", "")) for one in texts]
            assert shown == sorted(shown, reverse=order != figure) and len(shown) > 5
            assert re.findall(r'aria-sort="(\w+)"', text) == [arrow]

    @pytest.mark.parametrize(
        ("name", "order", "field"),
        [
            *(("jobs", "job", "job"), ("jobs", "kernel", "kernel"), ("jobs", "state", "state")),
            *(("misses", "count", "count"), ("misses", "last", "last_at")),
            *(("upgrades", "chip", "checked_chip"), ("upgrades", "checked", "checked_at")),
            *(("kernel", "kernel", "kernel"), ("kernel", "chip", "chip")),
        ],
    )
    def test_a_list_and_its_file_are_in_order_both_ways(self, site, name, order, field):
        page = "/problems" if name == "kernel" else f"/{name}"
        for sign, arrow in (("", "ascending"), ("-", "descending")):
            rows = site.get(f"/export/{name}.json?order={sign}{order}")[1]
            values = [row[field] for row in rows]
            assert len(values) > 1 and values == sorted(values, reverse=bool(sign))
            text = html(site, f"{page}?order={sign}{order}")
            assert re.findall(r'aria-sort="(\w+)"', text) == [arrow] and "ignored" not in text

    def test_toolchains_and_verdicts_are_in_order(self, site):
        for order, times in (("best", ["4.7 µs", "9.0 µs"]), ("-best", ["9.0 µs", "4.7 µs"])):
            text = html(site, f"/toolchains/1?order={order}")
            assert re.findall(r'data-fact="best/\d+">([^<]+)', text) == times
        verdicts = [row["verdict"] for row in site.get("/export/upgrades.json?order=-verdict")[1]]
        assert verdicts == [verdict.value for verdict in CheckVerdict][::-1]

    def test_limits_go_by_what_is_shown(self, site):
        """Also of a record that came without trials; what is served is not the best trial."""
        keys = {row["key"]: row for row in site.get("/export/kernel.json?q=gain+>+5")[1]}
        assert keys and all((row["times_default"] or 6) > 5 for row in keys.values())
        assert any(row["trials"] == 0 for row in keys.values())
        slow = site.get("/export/kernel.json?q=time+<+9+kernel:splash")[1]
        assert [row["published_estimated_us"] for row in slow] == []

    def test_columns_are_chosen_in_the_address(self, site):
        text = html(site, "/problems?hide=xla,config")
        assert 'data-fact="xla/' not in text and 'data-fact="gain/' in text
        usual, whole = html(site, "/problems"), html(site, "/problems?hide=none")
        assert 'data-fact="config/' not in usual and 'data-fact="config/' in whole
        assert 'href="/problems?hide=config" role="checkbox" aria-checked="false"' in text

    def test_trials_are_sorted_and_limited_by_each_part(self, site):
        number = next(r["key"] for r in site.get("/export/kernel.json")[1] if r["trials"] == 11)
        path = f"/keys/{number}?is.block_kv=512&order=-block_q"
        shown = re.findall(r'data-label="block_q" class="num">(\d+)<', html(site, path))
        assert shown == ["1024", "512", "256", "128"]
        trials = {t["trial"]: t for t in site.get(f"/export/keys/{number}/trials.json")[1]}
        text = html(site, f"/keys/{number}?order=vmem")
        sizes = [
            json.dumps(trials[int(n)]["outcome"])
            for n in re.findall(r'name="trial" value="(\d+)', text)
        ]
        used = [int(m[1]) for size in sizes if (m := re.search(r'used_bytes": (\d+)', size))]
        assert used == sorted(used) and len(used) > 4
