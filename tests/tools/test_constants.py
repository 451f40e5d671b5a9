"""The fit of the simulator's constants: what it starts from is what the files say."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.estimating.simulator import constants
from tools.calibration import constants as fit

FILES = [(chip, series) for chip in ("v5e", "v6e", "v7x") for series in constants.files(chip)]


@pytest.mark.parametrize("chip, series", FILES)
def test_libtpus_own_rate_stays_what_it_is_where_hardware_showed_another_clock(chip, series):
    data = json.loads(constants.files(chip)[series].read_text())
    known = constants.load(chip, series)
    values = fit._values(known)
    assert values["dma_gigabytes_per_second"] == data["dma_gigabytes_per_second"]["value"]
    assert fit._with(known, values).dma_bytes_per_cycle == pytest.approx(known.dma_bytes_per_cycle)


@pytest.fixture
def own_v5p(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One file of v5p in a folder of its own."""
    for name in ("v5p-0.0.42.json", "hardware.json"):
        (tmp_path / name).write_text((constants.FOLDER / name).read_text())
    monkeypatch.setattr(constants, "FOLDER", tmp_path)
    constants.files.cache_clear()
    yield tmp_path / "v5p-0.0.42.json"
    constants.files.cache_clear()
    constants.load.cache_clear()
    fit._rated_hz.cache_clear()


def test_a_series_that_changes_nothing_is_noted_in_the_file_that_serves_it(own_v5p):
    assert fit._write("v5p", "0.0.60.2", "0.0.42", None, set()) == own_v5p
    assert list(constants.files("v5p")) == ["0.0.42", "0.0.60"]


def test_a_series_that_is_fitted_anew_leaves_the_file_that_served_it(own_v5p):
    for version in ("0.0.60", "0.0.70"):
        fit._write("v5p", version, "0.0.42", None, set())
    known = constants.load("v5p", "0.0.60")
    changed = replace(known, read_latency_cycles=known.read_latency_cycles + 1)
    path = fit._write("v5p", "0.0.60", known.libtpu, changed, set())
    assert constants.files("v5p") == {"0.0.42": own_v5p, "0.0.60": path, "0.0.70": own_v5p}
    latency = constants.load("v5p", "0.0.60").read_latency_cycles
    assert latency == changed.read_latency_cycles
    assert json.loads(own_v5p.read_text())["also_fits"]["value"] == ["0.0.70"]


@pytest.mark.parametrize("claims", ["0.0.42", "0.0.60"])
def test_a_series_has_its_own_file_whatever_another_claims(own_v5p, claims):
    other = own_v5p.with_name("v5p-0.0.60.json")
    other.write_text(own_v5p.read_text())
    claimed = {"0.0.42": other, "0.0.60": own_v5p}[claims]
    claimed.write_text(json.dumps({"also_fits": {"value": [claims]}}))
    assert constants.files("v5p") == {"0.0.42": own_v5p, "0.0.60": other}
