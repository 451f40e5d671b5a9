"""A default that nobody compiled: what other problems of the kernel say of its time, and when that
is enough.

A winner is always compiled. What it is compared with need not be, where predictions have held so
far and the winner is faster than the prediction by more than all of them may be wrong. That the
default compiles at all is then said by the rules and the arithmetic of VMEM alone.
"""

from collections.abc import Sequence
from math import exp, inf

from autotune.domain.comparison import beats, expected_range
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config
from autotune.domain.record import Evidence, Trial
from autotune.searching.surrogate import Posterior

_NINE_OF_TEN = 1.645  # deviations of a normal distribution
_MOST_DOUBT = 0.2


def predicted(default: Config, posterior: Posterior, place: int, error: float) -> Evidence:
    """Of the candidate at ``place``; ``error``: what earlier predictions were within."""
    bar = max(error, _NINE_OF_TEN * float(posterior.deviation[place]))
    return Evidence(
        config=default, time_us=None, expected_us=exp(posterior.mean[place]), expected_error=bar
    )


def is_enough(default: Evidence, trials: Sequence[Trial], hoped_us: float) -> bool:
    """Whether the default need not be compiled: what was compiled here came out as predicted, and
    something of it is surely faster; before anything was, what is ``hoped_us``."""
    bar, least_us = default.expected_error or inf, expected_range(default)[0]
    if not trials:
        return hoped_us < least_us
    if bar > _MOST_DOUBT:
        return False
    timed = [t.outcome for t in trials if isinstance(t.outcome, Estimated)]
    surprises = [outcome.surprise for outcome in timed]
    as_told = all(surprise is None or surprise <= bar for surprise in surprises)
    return as_told and any(beats(outcome.estimate, default) for outcome in timed)
