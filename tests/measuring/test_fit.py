"""Levels, noise and states of the device from rounds that were made up."""

import math
import random

import pytest

from autotune.measuring.fit import fit


def rounds(count, spread, seed=1, **times):
    draw = random.Random(seed)
    return [
        {n: us * math.exp(draw.gauss(0, spread)) for n, us in times.items()} for _ in range(count)
    ]


def test_the_ratio_and_the_noise_are_found():
    fitted = fit(rounds(200, 0.02, 0, a=100.0, b=110.0, c=50.0))
    assert math.exp(fitted.gap("b", "a")) == pytest.approx(1.1, rel=0.01)
    assert fitted.noise == pytest.approx(0.02, rel=0.15)
    assert fitted.error("a", "b") == pytest.approx(0.02 * math.sqrt(2 / 200), rel=0.2)


def test_an_interruption_moves_nothing():
    given = rounds(2, 0.002, a=100.0, b=101.0, c=102.0, d=103.0, e=104.0, f=105.0)
    given[1]["a"] *= 1.6
    assert math.exp(fit(given).gap("b", "a")) == pytest.approx(1.01, abs=0.01)


def test_rounds_of_a_slower_state_are_set_aside():
    given = rounds(6, 0.002, a=100.0, b=101.0, c=102.0)
    for round_us in given[2:4]:
        round_us.update({n: us * (1.1 if n == "a" else 1.2) for n, us in round_us.items()})
    fitted = fit(given)
    assert fitted.steady == (0, 1, 4, 5)
    assert math.exp(fitted.gap("b", "a")) == pytest.approx(1.01, abs=0.005)


def test_an_interval_holds_as_often_as_it_says():
    missed = 0
    for seed in range(300):
        fitted = fit(rounds(6, 0.01, seed=seed, a=100.0, b=102.0, c=100.0, d=97.0))
        missed += abs(fitted.gap("b", "a") - math.log(1.02)) > fitted.half_width("b", "a", 0.1)
    assert missed / 300 <= 0.14
