"""Measured times on the pages and in the exports, told apart from the estimates beside them."""

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from autotune.domain.measurement import Measurement
from autotune_db import SqlStore
from tests.samples.dashboard import EVIL, RUN, html, timed_record
from tests.samples.matching import question
from tests.servers.service import Running, until


def plain(text: str) -> str:
    """What is read, without the markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


def publish(service: Running, store: SqlStore, run: Measurement, method: str = "measured") -> None:
    before = service.get("/healthz")[1]["snapshot"]
    store.save_record(timed_record(question(), run, method))
    until(lambda: service.get("/healthz")[1]["snapshot"] > before)


@pytest.fixture
def timed(own: Running, store: SqlStore) -> Running:
    publish(own, store, RUN)
    return own


def table(service: Running, path: str) -> list[dict[str, str]]:
    text = service.raw("GET", path)[2].decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_the_problem_shows_what_was_measured_beside_what_was_estimated(timed: Running) -> None:
    text = html(timed, "/keys/1")
    said = plain(text)
    assert "served, measured 8.2 µs median by device time" in said
    assert "9.5 µs ± 5%, verified" in said
    assert "times as fast as the default, measured 11.00× 10.53× by estimate" in said
    assert "times as fast as plain XLA, measured 0.80× 0.80× by XLA" in said
    assert "Device time on TPU v5 lite 0: 8 samples, settled, 2 rounds in a slower state" in said
    rows = re.findall(r"<tr.*?</tr>", text[text.index('aria-label="Measured"') :], re.S)[1:6]
    winner, second, xla, default, refused = map(plain, rows)
    assert "trial 3 published 8.2 µs 3 1.000 – the fastest 9.5 µs ± 5%" in winner
    assert "8.6 µs 2 1.040 0.990 to 1.090 no" in second
    assert "plain XLA 6.6 µs 1 0.800" in xla
    assert "trial 1 default 90.5 µs 2 11.000 10.500 to 11.500 yes, slower 100.0 µs" in default
    assert "– 0 – – measured no further: it aborts" in refused


def test_the_table_of_trials_has_both(timed: Running) -> None:
    text = html(timed, "/keys/1")
    assert '<th scope="col" class="num">measured</th>' in text
    assert "measured" not in plain(html(timed, "/keys/2")).partition("Times are estimates")[0]


def test_the_kernel_shows_both(timed: Running) -> None:
    text = plain(html(timed, "/kernels/mm"))
    assert "8.2 µs measured by device time" in text
    assert "10.53× 11.00× measured" in text
    assert "plain XLA was measured to be faster" in text


def test_a_kernel_without_a_measurement_speaks_of_none(service: Running) -> None:
    assert "measured by" not in plain(html(service, "/kernels/mm"))


def test_the_winner_says_of_what_it_can_be_told_apart(timed: Running) -> None:
    text = plain(html(timed, "/trials/3"))
    assert "8.2 µs by device time on TPU v5 lite 0, the estimate is +15%" in text
    assert "It was measured to be the fastest." in text
    assert "Not distinguishable from the runner-up, which takes 1.040 (0.990 to 1.090)" in text
    assert "Distinguishable from the default, which takes 11.000 (10.500 to 11.500)" in text
    assert "3 samples, in the order taken 8, 8.5, 8.25 µs; 8.0 µs to 8.5 µs" in text


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        (4, "It takes 1.040 (0.990 to 1.090) times as long as the fastest, not distinguishable"),
        (
            1,
            "11.000 (10.500 to 11.500) times as long as the fastest, distinguishable from it. "
            "It is the default.",
        ),
        (2, "It was measured no further: it aborts."),
    ],
)
def test_the_others_say_how_they_stand(timed: Running, trial: int, says: str) -> None:
    text = html(timed, f"/trials/{trial}")
    assert says in plain(text)
    assert "<script>window" not in text


def test_a_trial_that_was_not_timed_says_nothing_of_it(timed: Running) -> None:
    assert ">Measured<" not in html(timed, "/trials/5")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "Plain XLA was measured to be faster: it took 6.6 µs, 0.80 times as long"),
        (
            {"ratio": 1.2, "low": 1.1, "high": 1.3, "slower": True},
            "Plain XLA was measured to be slower: it took 6.6 µs, 1.20 times as long",
        ),
        ({"ratio": 1.0, "low": 0.9, "high": 1.1}, "Plain XLA was measured, and cannot be told"),
    ],
)
def test_plain_xla_is_put_into_words(
    own: Running, store: SqlStore, changes: dict[str, Any], says: str
) -> None:
    rows = tuple(replace(t, **changes) if t.config is None else t for t in RUN.timed)
    publish(own, store, replace(RUN, timed=rows))
    assert says in plain(html(own, "/keys/1"))


def test_a_void_run_is_shown_and_decides_nothing(own: Running, store: SqlStore) -> None:
    publish(own, store, replace(RUN, void=f"the device changed {EVIL}"), "estimated")
    text = html(own, "/keys/1")
    assert "Nothing is concluded from it:" in text
    assert "published, measured" not in text
    assert "<script>window" not in text
    assert "Nothing is concluded from this run: the device changed" in plain(html(own, "/trials/3"))


def test_hover_texts_name_the_measurement(timed: Running) -> None:
    found = re.findall(r'data-figure="heat">(.*?)</script>', html(timed, "/keys/1"))
    hover = json.dumps(json.loads(found[0]), ensure_ascii=False)
    assert "measured 8.2 µs by device time" in hover


def test_exports_have_both(timed: Running) -> None:
    row, *_ = sorted(table(timed, "/export/kernel.csv?name=mm"), key=lambda r: int(r["key"]))
    assert (row["published_estimated_us"], row["published_measured_us"]) == ("9.5", "8.25")
    assert (row["method"], row["measured_by"], row["device"]) == (
        "measured",
        "device time",
        "TPU v5 lite 0",
    )
    assert float(row["times_default_measured"]) == 11.0
    trials = table(timed, "/export/keys/1/trials.csv")
    assert (trials[2]["estimated_us"], trials[2]["measured_us"]) == ("9.5", "8.25")
    assert (trials[3]["times_fastest"], trials[3]["slower"]) == ("1.04", "False")
    assert trials[5]["measured_us"] == ""


def test_json_has_every_sample(timed: Running) -> None:
    found: list[dict[str, Any]] = timed.get("/export/keys/1/trials.json")[1]
    one = timed.get("/export/trials/3.json")[1]
    assert one.pop("key")["kernel"] == "mm"
    assert one == found[2]
    assert one["measurement"]["samples_us"] == [8.0, 8.5, 8.25]
    assert (one["measurement"]["device"], one["measurement"]["drift"]) == ("TPU v5 lite 0", 0.012)
    assert found[5]["measurement"] is None
