"""The page of upgrades: what was found, what to change, and who asks for a search."""

import csv
import io
import json
from dataclasses import replace
from html import unescape
from re import findall

import pytest

from tests.samples.dashboard import CHECKS, EVIL, html, published
from tests.samples.matching import question
from tests.servers.service import until


def rows(text):
    """Of the table of configs."""
    table = text.partition('aria-label="Checked configs"')[2]
    return findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2].replace("\n", " "))


def test_the_worst_comes_first_each_with_what_to_change(service):
    shown = rows(html(service, "/upgrades"))
    assert [CHECKS[place].verdict.value in row for place, row in zip((2, 0, 1), shown, strict=True)]
    assert "pass vmem_limit_bytes &gt;= 25_427_968 to pallas_call" in shown[1]
    assert "needs 24.00 MiB of VMEM, 16.00 MiB are allowed" in shown[1]
    assert "on v5e" in shown[2] and "v6e, " in shown[2]


def test_what_costs_most_comes_first(fresh, store):
    """A call, beside what it took before or what the default takes there."""
    slower = [replace(CHECKS[0], toolchain=question(jax=f"0.12.{n}").toolchain) for n in range(3)]
    for check, after_us in zip(slower, (14.0, 19.0, 12.0), strict=True):
        store.save_check(replace(check, before_us=10.0, default_us=11.0, after_us=after_us))
    shown = "".join(rows(html(fresh, "/upgrades?order=-costs"))[:3])
    assert findall(r'"costs" class="num">(.*?)<', shown) == ["9.0 µs", "4.0 µs", "2.0 µs"]


def test_what_comes_from_outside_is_text(service):
    text = html(service, "/upgrades")
    assert EVIL not in text
    assert EVIL in unescape(text)


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("verdict=broken", [2]),
        ("chip=v6e", [1]),
        ("kernel=mm", [0, 1]),
        ("to=0.12.0,0.12.0,0.0.42", [0, 1]),
        ("kernel=mm&verdict=broken", []),
    ],
)
def test_filters_stand_in_the_address(service, query, places):
    text = html(service, f"/upgrades?{query}")
    assert "was ignored" not in text
    shown = rows(text)
    assert len(shown) == len(places)
    for place, row in zip(places, shown, strict=True):
        assert CHECKS[place].verdict.value in row
    lines = list(csv.DictReader(io.StringIO(html(service, f"/export/upgrades.csv?{query}"))))
    assert [line["verdict"] for line in lines] == [CHECKS[place].verdict.value for place in places]


def test_what_is_not_known_is_ignored_and_said(service):
    text = html(service, "/upgrades?verdict=fine&to=1&page=9")
    assert text.count("was ignored") == 3
    assert len(rows(text)) == 3


class TestRequests:
    def test_what_the_button_sends_is_a_job(self, fresh, store):
        secret = store.tokens.create("ci", "writer", None)[1]
        (asked,) = findall('data-body="([^"]+)"', html(fresh, "/upgrades?kernel=mm&chip=v5e"))
        status, job = fresh.post("/v1/jobs", json.loads(unescape(asked)), secret)
        assert status == 201, job
        made = store.jobs.get(job["number"])
        assert made.request.toolchain == CHECKS[0].toolchain
        assert made.request.problem == CHECKS[0].key.problem

    def test_what_was_tuned_since_is_not_asked_for(self, fresh, store):
        store.save_record(published(CHECKS[0].target))
        until(lambda: "published for it" in html(fresh, "/upgrades?kernel=mm&chip=v5e"))
        assert "data-body" not in html(fresh, "/upgrades?kernel=mm&chip=v5e")

    def test_a_check_of_an_earlier_config_says_so(self, fresh, store):
        other = published(question())
        store.save_record(replace(other, config=other.config.replace(vmem_limit_bytes=1 << 20)))
        words = "another config is published by now"
        until(lambda: words in html(fresh, "/upgrades?kernel=mm&chip=v5e"))
