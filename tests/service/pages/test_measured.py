"""Measured times on the pages and in the exports, told apart from the estimates beside them."""

import csv
import io
from dataclasses import replace

import pytest

from tests.samples.dashboard import EVIL, RUN, fill, html, plain, timed_record
from tests.samples.database import new_store
from tests.samples.matching import question
from tests.servers.service import publish, running


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """For tests that only read."""
    file = str(tmp_path_factory.mktemp("measured") / "timed.db")
    with new_store(file, fill) as store:
        store.save_record(timed_record(question()))
    with running(file) as service:
        yield service


def table(service, path):
    text = service.raw("GET", path)[2].decode()
    return list(csv.DictReader(io.StringIO(text)))


SAYS = {
    "/keys/1": (
        "served, measured 8.2 µs median by device time",
        "9.5 µs ± 5%, verified",
        "times as fast as the default, measured 11.00× 10.53× by estimate",
        "times as fast as plain XLA, measured 0.80× 0.80× by XLA",
        "Device time on TPU v5 lite 0: 8 samples, settled, 2 rounds in a slower state",
    ),
    "/kernels/mm": ("measured 9.5 µs ± 5% 11.00× 0.80×",),
    "/trials/3": (
        "8.2 µs by device time on TPU v5 lite 0, the estimate is +15%",
        "It was measured to be the fastest.",
        "Not distinguishable from the runner-up, which takes 1.040 (0.990 to 1.090)",
        "Distinguishable from the default, which takes 11.000 (10.500 to 11.500)",
        "3 samples, in the order taken 8, 8.5, 8.25 µs; 8.0 µs to 8.5 µs",
    ),
    "/trials/4": (
        "It takes 1.040 (0.990 to 1.090) times as long as the fastest, not distinguishable",
    ),
    "/trials/1": (
        "11.000 (10.500 to 11.500) times as long as the fastest, distinguishable from it. "
        "It is the default.",
    ),
    "/trials/2": ("It was measured no further: it aborts.",),
}


@pytest.mark.parametrize("path", SAYS)
def test_what_was_measured_stands_beside_what_was_estimated(timed, path):
    text = html(timed, path)
    assert "<script>window" not in text
    for words in SAYS[path]:
        assert words in plain(text)


def test_a_void_run_is_shown_and_decides_nothing(fresh, store):
    run = replace(RUN, void=f"the device changed {EVIL}")
    publish(fresh, store, timed_record(question(), run, "estimated"))
    text = html(fresh, "/keys/1")
    assert "Nothing is concluded from it:" in text
    assert "published, measured" not in text
    assert "<script>window" not in text
    assert "Nothing is concluded from this run: the device changed" in plain(
        html(fresh, "/trials/3")
    )


def test_exports_have_both(timed):
    row, *_ = sorted(table(timed, "/export/kernel.csv?name=mm"), key=lambda r: int(r["key"]))
    names = ("published_estimated_us", "published_measured_us", "method", "measured_by", "device")
    values = ["9.5", "8.25", "measured", "device time", "TPU v5 lite 0"]
    assert [row[name] for name in names] == values
    assert float(row["times_default_measured"]) == 11.0
    trials = table(timed, "/export/keys/1/trials.csv")
    assert (trials[2]["estimated_us"], trials[2]["measured_us"]) == ("9.5", "8.25")
    assert (trials[3]["times_fastest"], trials[3]["slower"]) == ("1.04", "False")
    assert trials[5]["measured_us"] == ""


def test_json_has_every_sample(timed):
    trials = timed.get("/export/keys/1/trials.json")[1]
    trial = timed.get("/export/trials/3.json")[1]
    assert trial.pop("key")["kernel"] == "mm"
    assert trial == trials[2]
    measurement = trial["measurement"]
    assert measurement["samples_us"] == [8.0, 8.5, 8.25]
    assert (measurement["device"], measurement["drift"]) == ("TPU v5 lite 0", 0.012)
    assert trials[5]["measurement"] is None
