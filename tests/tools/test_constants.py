"""The fit of the simulator's constants: what it starts from is what the files say."""

import json

import pytest

from autotune.simulator import constants
from tools.calibration import constants as fit

FILES = [(chip, series) for chip in ("v5e", "v6e", "v7x") for series in constants.files(chip)]


@pytest.mark.parametrize("chip, series", FILES)
def test_libtpus_own_rate_stays_what_it_is_where_hardware_showed_another_clock(chip, series):
    data = json.loads(constants.files(chip)[series].read_text())
    known = constants.load(chip, series)
    values = fit._values(known)
    assert values["dma_gigabytes_per_second"] == data["dma_gigabytes_per_second"]["value"]
    assert fit._with(known, values).dma_bytes_per_cycle == pytest.approx(known.dma_bytes_per_cycle)


def test_a_series_that_changes_nothing_is_noted_in_the_file_that_serves_it(tmp_path, monkeypatch):
    file = constants.FOLDER / "v4-0.0.42.json"
    (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.setattr(constants, "FOLDER", tmp_path)
    constants.files.cache_clear()
    try:
        assert fit._write("v4", "0.0.60.2", "0.0.42", None, set()).name == file.name
        constants.files.cache_clear()
        assert list(constants.files("v4")) == ["0.0.42", "0.0.60"]
    finally:
        constants.files.cache_clear()
