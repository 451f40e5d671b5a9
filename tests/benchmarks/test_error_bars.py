"""Error bars of what was timed, and of families that nobody measured."""

from math import hypot
from unittest.mock import patch

import pytest

from autotune.estimating.cost_model.error_bars import width
from autotune.estimating.simulator import constants
from benchmarks.calibration import tokamax_rows as names
from benchmarks.calibration.error_bars import (
    Chosen,
    Timed,
    bar_of,
    choose,
    given_of,
    left_out,
    made,
    new_cause,
    of_few,
    problem,
    tables,
)

RAGGED = names.KERNELS["mosaic_tpu_ragged_dot"]
PARTS_US = {"vector and matrix issue": 100.0, "DMA latency waits": 10.0}


def row(**changed):
    return {
        "side": "given",
        "chip": "v6e",
        "family": "pallas_mosaic_tpu_ragged_dot",
        "problem": {"m": 1},
        "time_us": 100.0,
        "estimate_us": 110.0,
        "bar": 0.2,
        "limited_by": "compute",
        "steps": 11,
        "parts_us": PARTS_US,
        "operations_run": 10,
        **changed,
    }


def plain(number, off=0.02, **changed):
    return row(
        **{
            "family": f"family{number % 3}",
            "problem": {"n": number},
            "time_us": 100.0 / (1 + off),
            "estimate_us": 100.0,
            "xla_us": 100.0,
            "limited_by": "XLA",
            "by_kind": {"convolution": 90.0, "": 10.0},
        }
        | changed
    )


def test_a_family_of_many_rows_counts_as_much_as_one_of_few():
    few, many = [0.3, 0.3], [0.01] * 98
    assert width({"few": few, "many": many}) == 0.3


def test_the_more_rows_a_kind_has_on_a_chip_the_less_others_count():
    others = [Timed("v5e", {"b": 1.0}, 0.2)] * 30
    elsewhere = [Timed("v5e", {"a": 1.0}, 0.1)] * 30
    own = Timed("v6e", {"a": 1.0}, 0.01)
    bars = [bar_of([*others, *elsewhere, *[own] * n], "a", "v6e") for n in (0, 1, 9, 90)]
    assert bars == [0.2, 0.2, 0.1, 0.01]
    assert bar_of([*others, *elsewhere], "c", "v6e") == 0.2


def test_bars_are_made_from_given_rows_with_a_bar_of_the_measured_program_alone():
    other = row(peak_mb=100.0, made_mb=101.0, estimate_us=500.0)
    wrong = [
        row(estimate_us=500.0, **of) for of in ({"bar": None}, {"side": "held"}, {"tuned": "x"})
    ]
    assert given_of([row(), other, *wrong]) == [row()]
    known = made([row()], {}, Chosen(0.0))["kernels"]["value"]
    few = pytest.approx(0.1 * of_few(1), abs=1e-3)  # a single cause tells
    assert known == {RAGGED: {"v6e": few}}  # no other chip has one


def test_what_operations_may_take_beside_is_apart_and_a_new_kind_is_less_sure():
    rows = [plain(number, off=0.05, by_kind={"dot": 1.0}) for number in range(9)]
    rows[0]["by_kind"] = {"dot": 0.9, "sort": 0.1}  # too little to be timed
    data = made(rows, {}, Chosen(0.2, xla=2.0))
    few = of_few(3)  # families
    wide = 2 * (0.05**2 - 0.02**2) ** 0.5 * few  # each is unsure by itself
    assert data["XLA"]["value"] == pytest.approx(wide, abs=1e-4)
    assert data["other"]["new kind"]["value"] == pytest.approx(wide * of_few(1), abs=1e-4)
    assert data["timed_kinds"]["value"] == ["dot"]
    with patch.object(constants, "bars", return_value=data):
        assert names.with_present_bar(rows[1])["bar"] == pytest.approx(hypot(0.04, wide), abs=1e-4)


def test_a_bar_is_wide_enough_for_problems_and_families_that_had_no_part_in_it():
    """A family alone is far off: those beside it make too narrow a bar for it."""
    given = [plain(number, off=0.0199 * 2 ** (number % 3)) for number in range(30)]
    chosen = choose(given, {})
    assert chosen.xla > 1 and chosen.kernels == 1
    for key in (problem, lambda each: each["family"]):
        left = [*left_out(given, {}, chosen, key)]
        assert sum(names.error_of(each) <= each["bar"] for each in left) >= 27
    text = "\n".join(tables(given, {}, chosen))
    assert "| family | **XLA** | 30 | 30 |" in text
    assert "| family0 | 10 | 10 | 2.0% | 16.0% | yes |" in text  # more than twice too wide


def test_each_cause_counts_once_and_another_chip_for_as_little_as_two_of_them():
    sure, unsure = {"matmul": [0.01], "ragged dot": [0.01]}, {"matmul": [0.1], "ragged dot": [0.1]}
    errors = {"v5p": sure, "v7x": unsure | {"attention": [0.1], "attention 2": [0.1]}}
    shares = [new_cause(errors, chip) / new_cause({"v7x": unsure}, "v7x") for chip in errors]
    few = 2 / 3**0.5  # of three causes and of two: one degree is left of each
    own, others = (2 * 0.01**2 + 2 * 0.1**2) / 4, (3 * 0.1**2 + 2 * 0.01**2) / 5
    assert shares == pytest.approx([few * of**0.5 / 0.1 for of in (own, others)], rel=1e-3)
    assert new_cause(errors, "v4") == new_cause(errors, "v7x")  # of a chip without any: the widest


def test_the_bar_of_kernels_never_seen_is_wider_the_fewer_others_there_are():
    """What ten families say of the next: Student's t against a normal distribution."""
    assert of_few(4) == pytest.approx(2.132 / 1.645, abs=1e-3)
    assert of_few(10_000) == pytest.approx(1, abs=1e-3)
    rows = [row(), row(family="pallas_mosaic_tpu_flash_attention")]
    known = made(rows, {"v5e": {"ragged dot": [0.1]}}, Chosen(0.0))
    t_of_one_degree = 6.314 * 3**0.5  # (1 + 1/2) 2/1: two causes say what another is off
    assert known["never seen"]["v4"]["value"] == pytest.approx(0.1 * t_of_one_degree, abs=1e-3)
    assert known["shortest step"]["v7x"]["value"] == known["other"]["step"]["value"] * 10 == 10
    shares = {"vector and matrix issue": 1.0, "DMA latency waits": 0.091}
    assert known["shown"]["v7x"]["value"] == shares
    called = {names.KERNELS[f"mosaic_tpu_{name}"] for name in ("ragged_dot", "flash_attention")}
    assert set(known["kernels"]["value"]) == called


@pytest.mark.parametrize(
    ("libtpu", "chosen"),
    [(None, {"a": 90.0, "b": 60.0}), ("0.0.44", {"a": 90.0, "b": 70.0}), ("0.0.45", {})],
)
def test_of_several_libtpus_that_which_makes_the_measured_program_counts(tmp_path, libtpu, chosen):
    path = tmp_path / "rows.jsonl"
    for name, version, made_mb, time_us in (
        ("a", "0.0.44", 100.0, 90.0),
        ("a", "0.0.50.1", 82.0, 50.0),
        ("b", "0.0.44", 82.0, 70.0),
        ("b", "0.0.50.1", 83.0, 60.0),
    ):
        row = {"id": name, "model": "m", "libtpu": version, "peak_mb": 100.0, "made_mb": made_mb}
        names.append_done(path, row | {"chip": "v6e", "family": "f", "estimate_us": time_us})
    rows = names.newest(path, "m", libtpu)
    assert {row["id"]: row["estimate_us"] for row in rows} == chosen


@pytest.mark.parametrize(
    ("chip", "family", "counts"),
    [
        ("v6e", "a", True),
        ("v5p", "pallas_a", True),
        ("v5p", "a", False),
        ("v7x", "pallas_a", False),
    ],
)
def test_what_a_model_leaves_as_it_was_counts(tmp_path, chip, family, counts):
    row = {"id": "a", "chip": chip, "family": family, "libtpu": "0.0.44", "estimate_us": 1.0}
    names.append_done(tmp_path / "rows", row | {"model": "schedule simulation 18"})
    assert len(names.newest(tmp_path / "rows", "schedule simulation 19")) == counts
    assert not names.newest(tmp_path / "rows", "schedule simulation 20")


@pytest.mark.parametrize("made_mb", [100.0, 82.0])
@pytest.mark.parametrize(
    ("chip", "family", "older"),
    [
        ("v5p", "pallas_mosaic_tpu_ragged_dot", True),
        ("v5p", "linear_softmax_cross_entropy_loss", False),
        ("v5p", "ragged_gather_reduce", False),
        ("v5p", "triangle_multiplication", False),
        ("v5p", "dot_product_attention_vjp", False),
        ("v6e", "splash_attention", False),
        ("v7x", "xla_chunked_dot_product_attention", True),
        ("v7x", "gated_linear_unit", False),
    ],
)
def test_where_memory_does_not_tell_the_libtpu_of_other_rows_counts_in_any_order(
    tmp_path, chip, family, older, made_mb
):
    row = {"id": "a", "model": "m", "chip": chip, "family": family, "peak_mb": 100.0}
    for number, libtpus in enumerate((["0.0.44", "0.0.50.1"], ["0.0.50.1", "0.0.44"])):
        path = tmp_path / f"{number}.jsonl"
        for libtpu in libtpus:
            names.append_done(path, row | {"libtpu": libtpu, "made_mb": made_mb})
        (chosen,) = names.newest(path, "m")
        assert chosen["libtpu"] == ("0.0.44" if older else "0.0.50.1")
        other = "0.0.50.1" if older else "0.0.44"
        names.append_done(path, row | {"libtpu": other, "made_mb": made_mb, "estimate_us": 1.0})
        assert names.newest(path, "m")[0]["libtpu"] == other  # the first is a refusal
