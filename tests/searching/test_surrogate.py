"""The surrogate knows what it was shown, doubts the rest, and fears what is too large."""

from math import exp, log, pi

import numpy as np
import pytest
from scipy.integrate import quad

from autotune.searching.surrogate import Posterior, Risk, Surrogate, log_improvement
from tests.samples.candidates import SIZES, candidate, space, time_us

SPACE = space()
TIMES = [time_us(entry) for entry in SPACE]
EVERY_THIRD = list(range(0, len(SPACE), 3))


def _posterior(seen, pending=None):
    return Surrogate(SPACE).posterior(seen, [TIMES[n] for n in seen], pending or [])


def test_recovers_a_known_function():
    found = _posterior(EVERY_THIRD)
    unseen = [n for n in range(len(SPACE)) if n not in EVERY_THIRD]
    truth = np.log(np.array(TIMES)[unseen])
    guess = np.log([SPACE[n].roofline.guess_us for n in unseen])
    error = np.abs(found.mean[unseen] - truth)
    assert np.median(error) < 0.25 * np.median(np.abs(guess - truth))
    assert (error < 3 * found.deviation[unseen]).mean() > 0.9


def test_pending_candidates_take_away_doubt_and_change_no_prediction():
    alone, waiting = _posterior(EVERY_THIRD), _posterior(EVERY_THIRD, [1])
    assert waiting.mean == pytest.approx(alone.mean)
    assert waiting.deviation[1] < 0.2 * alone.deviation[1]
    assert (waiting.deviation <= alone.deviation + 1e-9).all()


def test_does_not_send_two_compilers_to_twins():
    """Only the grid order differs, and the first of the two is being compiled."""
    times = {n: TIMES[n] for n in EVERY_THIRD}
    surrogate = Surrogate(SPACE)
    scores = surrogate.scores(times, [], [])
    best = max((n for n in range(len(SPACE)) if n not in times), key=lambda n: scores[n])
    twin = best ^ 1
    waiting = surrogate.scores(times, [], [best])
    assert waiting[twin] < scores[twin] - 0.5


def _log_gain(z):
    """The logarithm of the expected gain by numerical integration of a form that loses nothing:
    the density at ``z`` times the integral of u * exp(u * z - u * u / 2)."""
    scale = max(1.0, -z)  # of 1 / u: what counts lies within a few of these
    found, _ = quad(lambda s: s * exp(s * z / scale - (s / scale) ** 2 / 2), 0, 60, epsabs=0)
    if z > 0:
        found, _ = quad(lambda u: u * exp(-((u - z) ** 2) / 2), 0, z + 40, points=[z], epsabs=0)
        return log(found) - log(2 * pi) / 2
    return log(found / scale**2) - z * z / 2 - log(2 * pi) / 2


@pytest.mark.parametrize(
    "z", [8.0, 1.0, 1e-3, 0.0, -1e-3, -0.5, -1.0, -5.9, -6.0, -6.1, -30.0, -300.0, -1e4, -1.1e4]
)
def test_improvement_is_exact_however_small(z):
    found = Posterior(mean=np.array([-z]), deviation=np.array([1.0]))
    assert log_improvement(found, 0.0)[0] == pytest.approx(_log_gain(z), rel=1e-12, abs=1e-7)


def test_what_is_no_smaller_than_a_failure_is_expected_to_fail():
    odds = _odds(fine=[(512, 512)], failed=[(1024, 1024)])
    assert odds[1024, 1024] > 0.9
    assert odds[4096, 1024] > 0.9
    assert odds[512, 512] == odds[128, 256] == 0.0
    assert 0.0 < odds[4096, 128] < 0.9


def test_monsters_are_doubted_before_anything_failed():
    odds = _odds(fine=[], failed=[])
    assert odds[4096, 4096] > 0.5 > 0.05 > odds[128, 128]


def _odds(fine, failed):
    blocks = [(m, n) for m in SIZES for n in SIZES]
    risk = Risk([candidate(m, n) for m, n in blocks])
    odds = risk.odds([blocks.index(b) for b in fine], [blocks.index(b) for b in failed])
    return dict(zip(blocks, odds.tolist(), strict=True))


def _predicted():
    return Posterior(mean=np.log(TIMES), deviation=np.full(len(SPACE), 0.05))


def test_a_failure_takes_nothing_from_what_is_predicted_and_smaller():
    """Each score is a share of the best time: what it costs to compile is none."""
    surrogate, times, predicted = Surrogate(SPACE), {40: TIMES[40]}, _predicted()
    failed = max(range(len(SPACE)), key=lambda n: SPACE[n].config.axes)
    gain = log_improvement(predicted, log(TIMES[40]))
    odds = Risk(SPACE).odds([40], [failed])
    found = surrogate.scores(times, [failed], [], predicted)
    assert found == pytest.approx(np.log1p(-odds) + gain)


def test_blocks_with_a_time_are_hoped_for_when_another_order_has_none():
    surrogate, predicted = Surrogate(SPACE), _predicted()
    timed, twin = 40, 40 ^ 1
    known = surrogate.scores({timed: TIMES[timed]}, [], [], predicted)
    found = surrogate.scores({timed: TIMES[timed]}, [], [], predicted, [twin])
    assert found[twin] == known[twin]
    other = surrogate.scores({timed: TIMES[timed]}, [], [], predicted, [0])
    assert other[1] < known[1] - 1
