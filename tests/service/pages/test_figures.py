"""The figures as plain data."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import log10
from typing import Any

import pytest

from autotune.domain.browsing import Improvement, NumberedTrial, SearchedKey
from autotune.domain.outcome import Outcome, OutOfVmem
from autotune_service.pages import heat, plots
from autotune_service.pages.candidates import ShownTrial, candidates, wrapped
from autotune_service.pages.filters import Query
from autotune_service.pages.plots import bandwidth, peak, roofline
from autotune_service.pages.problem import outcome_groups
from autotune_service.pages.render import as_json
from autotune_service.pages.speed import bars
from tests.samples.dashboard import (
    OUTCOMES,
    config,
    estimated,
    published,
    trial,
)
from tests.samples.matching import NOON, question


def shown_trials(outcomes: Sequence[Outcome] = OUTCOMES, winner: int = 2) -> list[ShownTrial]:
    trials = [NumberedTrial(id=n + 1, trial=trial(n, o)) for n, o in enumerate(outcomes)]
    return candidates(trials, replace(published(question()), config=config(winner)))


def heat_map(*given: Any, **more: Any) -> tuple[Any, ...]:
    """The traces of the figure."""
    figure = heat.heat_map(*given, **more)
    assert figure is not None
    return tuple(figure["data"])


def test_roles_are_those_of_the_record_and_of_number_zero() -> None:
    assert [c.role for c in shown_trials()][:4] == ["default", "", "winner", ""]


def test_every_kind_has_a_colour_that_the_styles_define() -> None:
    from importlib.resources import files

    styles = (files("autotune_service.pages") / "static" / "dashboard.css").read_text()
    for c in shown_trials():
        colour = plots.candidates.GROUPS[c.group][0].removeprefix("@")
        assert styles.count(f"--{colour}: light-dark(") == 1
        assert f".c-{colour} " in styles or colour in ("good",)


def test_the_heat_map_takes_the_best_and_says_why_there_is_none() -> None:
    failures, times = heat_map(shown_trials([*OUTCOMES, estimated(3.0)]), "unroll", "bm")
    assert (times["x"], times["y"]) == (["1", "2", "3"], ["128", "256", "384", "512"])
    assert times["text"][0] == ["■ 100.0 µs", "25.0 µs", "★ 9.5 µs"]
    assert failures["text"][1] == ["", "VMEM", "illegal"]
    assert failures["text"][2] == ["failed", "failed", "failed"]
    assert failures["text"][3] == ["wrong", "no time", ""]
    assert times["text"][3] == ["", "", "3.0 µs"]
    assert "needs 32 MiB" in failures["hovertext"][1][1]
    assert times["customdata"][0][2] == "/trials/3"


def test_what_is_served_and_the_default_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is both has both signs; where there is no room for texts nothing else is marked."""
    assert heat_map(shown_trials(winner=0), "unroll", "bm")[1]["text"][0][0] == "★ ■ 100.0 µs"
    monkeypatch.setattr(heat, "_MOST_TEXTS", 1)
    failures, times, marks = heat_map(shown_trials(), "unroll", "bm")
    assert "text" not in failures and "text" not in times
    assert list(zip(marks["x"], marks["y"], marks["marker"]["symbol"], strict=True)) == [
        ("1", "128", "square"),
        ("3", "128", "star"),
    ]


def test_a_cell_without_a_time_says_why() -> None:
    failures, times = heat_map(shown_trials(OUTCOMES[:5]), "bm", "unroll")
    assert (failures["text"][0][0], times["text"][0][0]) == ("", "■ 100.0 µs")
    assert failures["text"][1][1] == "VMEM"
    assert "needs 32 MiB" in failures["hovertext"][1][1]


@pytest.mark.parametrize(
    ("drawn", "says"),
    [(True, "not legal, too large"), (False, "or not among the trials that are drawn")],
)
def test_an_empty_cell_says_no_more_than_is_known(drawn: bool, says: str) -> None:
    shown = shown_trials(OUTCOMES[:4])
    hover = heat_map(shown, "bm", "unroll", all_drawn=drawn)[0]["hovertext"]
    assert "not tried" in hover[1][1] and says in hover[1][1]


def test_of_very_many_values_those_of_the_fastest_are_drawn() -> None:
    slow = [replace(estimated(1_000.0 + n)) for n in range(90)]
    shown = shown_trials([*OUTCOMES[:4], *slow])
    shown = [replace(c, values={**c.values, "bm": n + 1}) for n, c in enumerate(shown)]
    assert len(heat_map(shown, "bm", "unroll")[0]["x"]) == 75
    chosen = heat.axes(shown, Query({}))
    assert chosen.note == "Of 94 values of bm 75 are drawn, those of the fastest first."


def test_a_cell_shows_its_best_and_counts_the_others() -> None:
    _, times = heat_map(shown_trials(OUTCOMES[:5]), "unroll", None)
    assert times["text"] == [["■ 10.0 µs", "25.0 µs", "★ 9.5 µs"]]  # not 100.0 of the default
    assert times["hovertext"][0][0].endswith("1 more here")
    assert times["hovertext"][0][1].endswith("1 more here, 1 without a time")


def test_colours_end_at_twice_the_best_and_hardly_tell_a_tie_apart() -> None:
    _, times = heat_map(shown_trials(), "unroll", "bm")
    assert 10 ** times["zmax"] == pytest.approx(19.0)
    assert times["colorbar"]["ticktext"][-1] == "≥ 19"
    _, times = heat_map(shown_trials([estimated(100.0), estimated(100.01)]), "unroll", None)
    assert times["zmax"] - times["zmin"] == pytest.approx(log10(1.1))


def test_hover_texts_are_lines_and_escaped() -> None:
    lines = wrapped("a<b> & " * 40)
    assert len(lines) > 2 and max(map(len, lines)) < 200
    assert "<" not in "".join(lines)


def test_nothing_in_json_ends_its_element() -> None:
    text = as_json({"a": "</script><!--&\u2028", "b": float("inf")})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028", "b": None}


def test_the_best_so_far_and_the_lines() -> None:
    shown = shown_trials()
    steps = [
        Improvement(number=c.trial.number, at=c.trial.created_at, time_us=c.time_us or 0.0)
        for c in shown[:3]
    ]
    figure = plots.over_trials(shown, steps, (4.75, 7.6))
    by_name = {trace["name"]: trace for trace in figure["data"]}
    assert by_name["best so far, before verification"]["y"] == [100.0, 25.0, 9.5, 9.5]
    assert by_name["best so far, before verification"]["x"] == [0, 1, 2, 10]
    assert by_name["default 100.0 µs"]["y"] == [100.0, 100.0]
    assert by_name["plain XLA ≥ 4.8 µs"]["y"] == [4.75, 4.75]
    assert by_name["XLA's own estimate 7.6 µs"]["y"] == [7.6, 7.6]
    timed = plots.over_time(shown, steps, ())
    assert timed["data"][0]["x"] == [0, 3, 6, 9]
    assert timed["layout"]["xaxis"]["title"]["text"] == "time since the first trial (s)"


def test_the_roof_is_that_of_the_estimates() -> None:
    estimates = [c.estimate for c in shown_trials(OUTCOMES[:4]) if c.estimate]
    assert bandwidth(estimates) == (4 << 20) / 4.0
    assert peak(estimates) == 10**9 / 6.0
    figure = roofline(shown_trials())
    assert figure is not None
    assert max(figure["data"][0]["y"]) == pytest.approx(10**9 / 6.0 / 1e6)
    dots = next(trace for trace in figure["data"][1:] if trace["name"] == "winner")
    assert dots["y"] == [pytest.approx(10**9 / 9.5 / 1e6)]


def test_without_any_time_there_is_an_axis_without_numbers() -> None:
    """On one without a range plotly.js draws at no place at all."""
    figure = plots.vmem(shown_trials(OUTCOMES[4:5], winner=9))
    assert figure is not None
    assert figure["layout"]["yaxis"]["range"] == [0, 1]


def test_vmem_has_each_limit_once() -> None:
    figure = plots.vmem(
        shown_trials([*OUTCOMES, OutOfVmem(reason="", used_bytes=1, allowed_bytes=2**24)])
    )
    assert figure is not None
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["limit 16 MiB"]


def test_the_parts_of_times_share_a_scale() -> None:
    winner, default = bars([shown_trials()[n].estimate for n in (2, 0)])
    assert sum(part.share for part in default) == pytest.approx(100, abs=0.1)
    assert sum(part.share for part in winner) == pytest.approx(9.5, abs=0.1)
    assert bars([None]) == [[]]


@pytest.mark.parametrize(
    "outcomes", [(), OUTCOMES[4:9], OUTCOMES[:1]], ids=["none", "failed", "one"]
)
def test_few_trials_break_no_figure(outcomes: Sequence[Outcome]) -> None:
    shown = shown_trials(outcomes)
    heat.heat_map(shown, "bm", "unroll")
    roofline(shown)
    plots.vmem(shown)
    plots.over_trials(shown, [], ())


def test_ticks_are_plain_numbers() -> None:
    assert plots.plain_ticks(9.0, 250.0) == [10.0, 20.0, 50.0, 100.0, 200.0]
    assert plots.plain_ticks(0.01, 3e4) == [0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4]
    assert plots.log_ticks(9.0, 9000.0)["ticktext"][-1] == "10,000"


def test_numbers_are_ordered_as_numbers() -> None:
    values = [1024, 128, True, "own", 256]
    assert plots.ordered("block", values, []) == ["128", "256", "1024", "True", "own"]


def test_limits_are_ordered_by_size_also_those_that_no_trial_had() -> None:
    trials = [
        NumberedTrial(id=n, trial=replace(trial(n, estimated(9.0)), config=limited))
        for n, limit in enumerate([2**30, 2**27, 2**25, None])
        for limited in [config(n).replace(vmem_limit_bytes=limit)]
    ]
    tried = candidates(trials, None)
    known = ["own", "32.00 MiB", "64.00 MiB", "128.00 MiB", "256.00 MiB"]
    values = [*known, *(c.values["VMEM limit"] for c in tried)]
    assert plots.ordered("VMEM limit", values, tried) == [*known, "1.00 GiB"]


def test_groups_of_outcomes_say_what_they_mean() -> None:
    outcomes = (("crashed", 2),)
    searched = SearchedKey(
        id=1,
        key=question(),
        outcomes=outcomes,
        best_us=None,
        default_us=None,
        last_at=NOON,
        standing=None,
    )
    ((kind, colour, _, count),) = outcome_groups(searched)
    assert (kind, colour, count) == ("crashed", "failed", 2)
