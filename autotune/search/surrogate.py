"""A Gaussian process over the candidates of one space: what to compile next.

It learns the logarithm of the ratio between the time and the roofline's guess, so it starts from
physics and only has to learn what the roofline misses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.space import Candidate

Array = NDArray[np.float64]

_LENGTHS = (0.7, 1.5, 3.0, 6.0)  # of standardised features
_NOISES = (1e-4, 1e-2)
_FAILURE_LENGTH = 0.7


def features(candidates: Sequence[Candidate]) -> Array:
    """One row per candidate [candidates, features], standardised columns."""
    rows = [_raw_features(candidate) for candidate in candidates]
    names = sorted({name for row in rows for name in row})
    table = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    spread = table.std(axis=0)
    kept = spread > 1e-9
    return np.asarray((table[:, kept] - table[:, kept].mean(axis=0)) / spread[kept])


def _raw_features(candidate: Candidate) -> dict[str, float]:
    line, row = candidate.roofline, {}
    for name, value in candidate.config.axes:
        if isinstance(value, bool) or isinstance(value, str):
            row[f"{name}={value}"] = 1.0
        else:
            row[name] = log2(max(value, 1))
    row["order=" + ">".join(candidate.config.grid_order)] = 1.0
    row["cores"] = float(line.cores)
    for name, part in (
        ("mem", line.memory_us),
        ("steps", line.overhead_us),
        ("fill", line.fill_us),
    ):
        row[name] = log(max(part, 1e-3))
    return row


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and standard deviation of log(time_us) for every candidate."""

    mean: Array
    deviation: Array


class Surrogate:
    """Fitted anew on each call: a few hundred points cost milliseconds."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._table = features(candidates)
        self._prior = np.log(np.array([c.roofline.guess_us for c in candidates]))

    def posterior(self, seen: Sequence[int], times_us: Sequence[float]) -> Posterior:
        """``seen``: indices of timed candidates."""
        where = np.asarray(seen, dtype=np.intp)
        ratio = np.log(np.asarray(times_us)) - self._prior[where]
        centre, scale = float(np.median(ratio)), max(float(ratio.std()), 0.05)
        target = (ratio - centre) / scale
        length, noise = self._hyperparameters(where, target)
        mean, deviation = self._predict(where, target, length, noise)
        return Posterior(mean=mean * scale + centre + self._prior, deviation=deviation * scale)

    def failure_odds(self, seen: Sequence[int], failed: Sequence[int]) -> Array:
        """Share of failures among the neighbours of each candidate; 0 far from everything."""
        if not failed:
            return np.zeros(len(self._table))
        bad = _kernel(self._table, self._table[list(failed)], _FAILURE_LENGTH).sum(axis=1)
        good = _kernel(self._table, self._table[list(seen)], _FAILURE_LENGTH).sum(axis=1)
        return np.asarray(bad / (bad + good + 1.0))

    def _hyperparameters(self, where: Any, target: Array) -> tuple[float, float]:
        """The length and noise with the highest marginal likelihood on a small grid."""
        points = self._table[where]
        scored = [
            (_log_likelihood(points, target, length, noise), length, noise)
            for length in _LENGTHS
            for noise in _NOISES
        ]
        return max(scored)[1:]

    def _predict(
        self, where: Any, target: Array, length: float, noise: float
    ) -> tuple[Array, Array]:
        points = self._table[where]
        gram = _kernel(points, points, length) + noise * np.eye(len(points))
        cross = _kernel(self._table, points, length)
        solved = np.linalg.solve(gram, np.column_stack([target, cross.T]))
        mean = cross @ solved[:, 0]
        variance = 1.0 - np.einsum("ij,ji->i", cross, solved[:, 1:])
        return mean, np.sqrt(np.clip(variance, 1e-9, None))


def expected_improvement(posterior: Posterior, best_us: float) -> Array:
    """Expected reduction of log(time) below the best so far."""
    gain = log(best_us) - posterior.mean
    z = gain / posterior.deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray(gain * _normal_cdf(z) + posterior.deviation * density)


def _normal_cdf(z: Array) -> Array:
    """Abramowitz and Stegun 26.2.17, error below 1e-7."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
    tail = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    tail = tail * sum(c * t ** (n + 1) for n, c in enumerate(series))
    return np.where(z >= 0, 1.0 - tail, tail)


def _kernel(a: Array, b: Array, length: float) -> Array:
    """Matérn 5/2 over standardised features [len(a), len(b)]."""
    square = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    r = np.sqrt(5.0 * square / max(1, a.shape[1])) / length
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))


def _log_likelihood(points: Array, target: Array, length: float, noise: float) -> float:
    gram = _kernel(points, points, length) + noise * np.eye(len(points))
    factor = np.linalg.cholesky(gram)
    whitened = np.linalg.solve(factor, target)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())
