"""Rows of a copy of tokamax: their side, what is drawn of them, what is told of them."""

import json

import pytest

from tools.calibration import tokamax_rows

KERNEL, PLAIN = "pallas_mosaic_tpu_ragged_dot", "ragged_dot"


@pytest.fixture
def folder(tmp_path):
    """40 problems of two families on v6e, and one of a chip that is no TPU."""
    for device, family in (("tpu_v6_lite", KERNEL), ("tpu_v6_lite", PLAIN), ("nvidia_b200", PLAIN)):
        place = tmp_path / "data/autotuning" / device
        place.mkdir(parents=True, exist_ok=True)
        times = {"{}": {"evaluation_times_ms": [3.0, 1.0, 2.0]}, '{"tile": 1}': {}}
        problems = {json.dumps({"m": 128 * m}): times for m in range(1, 41)}
        (place / f"{family}.json").write_text(json.dumps(problems))
    return tmp_path


def test_rows_are_medians_of_tpus_and_a_problem_is_on_one_side(folder):
    rows = list(tokamax_rows.read_rows(folder))
    assert {row["chip"] for row in rows} == {"v6e"} and len(rows) == 80
    assert {row["time_us"] for row in rows} == {2000.0}
    assert {row["side"] for row in rows} == {tokamax_rows.GIVEN, tokamax_rows.HELD}
    assert len({row["id"] for row in rows}) == 80


def test_families_that_were_never_fitted_on_are_held():
    assert {tokamax_rows.side(f"{KERNEL}_vjp", str(n)) for n in range(50)} == {tokamax_rows.HELD}
    assert {tokamax_rows.side(KERNEL, str(n)) for n in range(50)} == {"given", "held"}


def test_a_sample_has_each_family_and_its_beginning_is_a_sample_too(folder):
    rows = list(tokamax_rows.read_rows(folder))
    drawn = tokamax_rows.sample(rows, 10, seed=3)
    assert [row["family"] for row in drawn].count(PLAIN) == 5
    assert tokamax_rows.sample(rows, 4, seed=3) == drawn[:4]
    assert tokamax_rows.sample(rows, 10, seed=4) != drawn


def test_rows_that_are_done_are_read_again(tmp_path):
    done = tmp_path / "done.jsonl"
    assert tokamax_rows.read_done(done) == tokamax_rows.read_done(None) == []
    for number in (1, 2):
        tokamax_rows.append_done(done, {"id": number})
    assert tokamax_rows.read_done(done) == [{"id": 1}, {"id": 2}]


def _row(family, measured, estimate, bar=0.1):
    row = {"chip": "v6e", "family": family, "problem": {"m": 1}, "time_us": measured}
    return row | {"estimate_us": estimate, "bar": bar}


def test_tables_have_errors_refusals_bars_and_which_is_faster():
    rows = [_row(KERNEL, 100.0, 105.0), _row(PLAIN, 200.0, 260.0), _row(PLAIN, 1.0, None)]
    lines = list(tokamax_rows.tables(rows))
    assert f"| {KERNEL} | v6e | 1 | 0 | 5.0% | 5.0% | 5.0% | 1 of 1 | 10.0% |" in lines
    assert f"| {PLAIN} | v6e | 2 | 1 | 30.0% | 30.0% | 30.0% | 0 of 1 | 10.0% |" in lines
    assert "right in 1 of 1 pairs" in lines[-1]
    slow = [_row(KERNEL, 100.0, 300.0), rows[1]]
    assert "right in 0 of 1 pairs" in list(tokamax_rows.tables(slow))[-1]
