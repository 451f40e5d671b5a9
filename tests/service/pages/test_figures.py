"""The figures as plain data."""

import json
from dataclasses import replace

import pytest

from autotune.domain.browsing import Improvement, NumberedTrial
from autotune_service.pages import plots
from autotune_service.pages.candidates import candidates, wrapped
from autotune_service.pages.plots import bandwidth, peak, roofline
from autotune_service.pages.render import as_json
from tests.samples.dashboard import OUTCOMES, config, published, trial
from tests.samples.matching import question


def shown_trials(outcomes=OUTCOMES, winner=2):
    trials = [NumberedTrial(id=n + 1, trial=trial(n, o)) for n, o in enumerate(outcomes)]
    return candidates(trials, replace(published(question()), config=config(winner)))


def test_hover_texts_are_lines_and_escaped():
    lines = wrapped("a<b> & " * 40)
    assert len(lines) > 2 and max(map(len, lines)) < 200
    assert "<" not in "".join(lines)


def test_nothing_in_json_ends_its_element():
    text = as_json({"a": "</script><!--&\u2028", "b": float("inf")})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028", "b": None}


def test_the_best_so_far_and_the_lines():
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


def test_the_roof_is_that_of_the_estimates():
    estimates = [c.estimate for c in shown_trials(OUTCOMES[:4]) if c.estimate]
    assert bandwidth(estimates) == (4 << 20) / 4.0
    assert peak(estimates) == 10**9 / 6.0
    figure = roofline(shown_trials())
    assert max(figure["data"][0]["y"]) == pytest.approx(10**9 / 6.0 / 1e6)
    dots = next(trace for trace in figure["data"][1:] if trace["name"] == "winner")
    assert dots["y"] == [pytest.approx(10**9 / 9.5 / 1e6)]


@pytest.mark.parametrize(
    "outcomes", [(), OUTCOMES[4:9], OUTCOMES[:1]], ids=["none", "failed", "one"]
)
def test_few_trials_break_no_figure(outcomes):
    shown = shown_trials(outcomes)
    roofline(shown)
    plots.vmem(shown)
    plots.over_trials(shown, [], ())


def test_ticks_are_plain_numbers():
    assert plots.plain_ticks(9.0, 250.0) == [10.0, 20.0, 50.0, 100.0, 200.0]
    assert plots.plain_ticks(0.01, 3e4) == [0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4]
    assert plots.log_ticks(9.0, 9000.0)["ticktext"][-1] == "10,000"
