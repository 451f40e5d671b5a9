"""What is believed of candidates that look alike, and of those that do not."""

import math
import random

import pytest

from autotune.measuring.fit import Fit, beliefs, fit


def fitted(spread: float, seed: int, rounds: int = 3, **times: float) -> Fit:
    draw = random.Random(seed)
    return fit(
        [
            {n: us * math.exp(draw.gauss(0, spread)) for n, us in times.items()}
            for _ in range(rounds)
        ]
    )


def leader_of(found: Fit) -> str:
    return min(found.levels, key=lambda n: found.levels[n])


def test_one_that_is_far_off_is_judged_as_it_is() -> None:
    found = fitted(0.002, 0, rounds=10, a=100.0, b=130.0)
    believed = beliefs(found, ["a", "b"], "a")
    assert believed.chance("b", "a") == found.chance("b", "a") < 1e-4


def test_the_extremes_of_equals_are_not_taken_at_their_word() -> None:
    """Eight equal ones: that one of them is faster than the leader by 1 % is believed less than
    from the samples alone."""
    names = [f"c{n}" for n in range(8)]
    alone, together = 0.0, 0.0
    for seed in range(20):
        found = fitted(0.01, seed, **dict.fromkeys(names, 100.0))
        first = leader_of(found)
        believed = beliefs(found, names, first)
        others = [n for n in names if n != first]
        alone += sum(found.chance(n, first, by=0.01) for n in others)
        together += sum(believed.chance(n, first, by=0.01) for n in others)
    assert together < 0.5 * alone


def test_what_is_believed_comes_true_as_often_as_it_says() -> None:
    """Levels that are spread as the belief assumes: the chance that the leader is beaten by more
    than 1 % by another, and how often that is so."""
    draw, said, happened = random.Random(0), 0.0, 0
    runs = 400
    for seed in range(runs):
        times = {f"c{n}": 100.0 * math.exp(draw.gauss(0, 0.01)) for n in range(5)}
        found = fitted(0.01, seed, **times)
        first = leader_of(found)
        believed = beliefs(found, list(times), first)
        said += sum(believed.chance(n, first, by=0.01) for n in times if n != first)
        happened += sum(times[n] < times[first] * math.exp(-0.01) for n in times)
    assert said / runs == pytest.approx(happened / runs, rel=0.35)


def test_a_single_one_has_no_rival() -> None:
    found = fitted(0.01, 0, a=100.0)
    assert beliefs(found, ["a"], "a").weights == pytest.approx([1 / 7] * 7)
