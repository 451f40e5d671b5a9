"""A Gaussian process over the candidates of one space: what to compile next.

It learns the logarithm of the ratio between the time and the roofline's guess, so it starts from
physics and only has to learn what the roofline misses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, log, log2, pi, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.dtype import bits
from autotune.space import Candidate
from autotune.trace.model import Trace

Array = NDArray[np.float64]

_LENGTHS = (0.5, 1.0, 2.0, 4.0)  # of standardised features
_NOISES = (1e-4, 1e-2)
_FAR = -6.0  # below so many deviations the asymptote is more exact
_START_ODDS, _START_WEIGHT = 0.6, 0.5


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
        self._risk = Risk(candidates)

    def posterior(
        self, seen: Sequence[int], times_us: Sequence[float], pending: Sequence[int] = ()
    ) -> Posterior:
        """``seen``: indices of timed candidates. ``pending`` ones only take away uncertainty:
        their time is expected to be as predicted."""
        where = np.asarray(seen, dtype=np.intp)
        ratio = np.log(np.asarray(times_us)) - self._prior[where]
        centre = float(np.median(ratio)) if len(ratio) else 0.0
        scale = max(float(ratio.std()), 0.05) if len(ratio) > 3 else 0.3
        target = (ratio - centre) / scale
        length, noise = self._hyperparameters(where, target)
        mean = self._predict(where, length, noise) @ target
        known = np.concatenate([where, np.asarray(pending, dtype=np.intp)])
        deviation = self._deviation(known, length, noise)
        return Posterior(mean=mean * scale + centre + self._prior, deviation=deviation * scale)

    def failure_odds(self, fine: Sequence[int], failed: Sequence[int]) -> Array:
        return self._risk.odds(fine, failed)

    def scores(
        self, times_us: dict[int, float], failed: Sequence[int], pending: Sequence[int]
    ) -> Array:
        """Logarithm of what compiling each candidate promises: gain times odds of success."""
        seen = list(times_us)
        posterior = self.posterior(seen, [times_us[n] for n in seen], pending)
        odds = self.failure_odds(seen, failed)
        if not seen:
            return np.log1p(-odds) - posterior.mean
        best = min(log(min(times_us.values())), *posterior.mean[list(pending)], np.inf)
        return log_improvement(posterior, best) + np.log1p(-odds)

    def _hyperparameters(self, where: Any, target: Array) -> tuple[float, float]:
        """The length and noise with the highest marginal likelihood on a small grid."""
        points = self._table[where]
        scored = [
            (_log_likelihood(points, target, length, noise), length, noise)
            for length in _LENGTHS
            for noise in _NOISES
        ]
        return max(scored)[1:]

    def _predict(self, where: Any, length: float, noise: float) -> Array:
        points = self._table[where]
        gram = _kernel(points, points, length) + noise * np.eye(len(points))
        return np.asarray(_kernel(self._table, points, length) @ np.linalg.inv(gram))

    def _deviation(self, where: Any, length: float, noise: float) -> Array:
        points = self._table[where]
        gram = _kernel(points, points, length) + noise * np.eye(len(points))
        half = np.linalg.solve(np.linalg.cholesky(gram), _kernel(points, self._table, length))
        return np.sqrt(np.clip(1.0 - (half**2).sum(axis=0), 1e-9, None))


class Risk:
    """The odds that a candidate does not compile, from those that did and did not.

    Nearly all failures are blocks that are too large, so what is at least as large as a failure
    in every size fails too, and what is at most as large as a success compiles.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        sizes = [_sizes(c) for c in candidates]
        self._sizes = np.array(sizes, dtype=np.float64)
        self._limits = np.array([float(c.config.vmem_limit_bytes or 0) for c in candidates])
        kinds = [tuple(v for _, v in c.config.axes if isinstance(v, (str, bool))) for c in candidates]
        codes = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
        self._kinds = np.array([codes[kind] for kind in kinds])
        room = np.log2(np.array([_footprint_bytes(c.trace) for c in candidates], dtype=np.float64))
        levels = np.log2(np.maximum(self._limits, 2.0**24))
        self._points = np.column_stack([self._sizes, room, 4.0 * levels])
        self._start = _START_ODDS * 2.0 ** (room - room.max())

    def odds(self, fine: Sequence[int], failed: Sequence[int]) -> Array:
        """One number per candidate, between 0 and 1."""
        bad = _near(self._points, failed) + _START_WEIGHT * self._start
        good = _near(self._points, fine) + _START_WEIGHT * (1.0 - self._start)
        odds = np.asarray(bad / (bad + good))
        for n in failed:
            odds[self._at_least(n)] = np.maximum(odds[self._at_least(n)], 0.95)
        for n in fine:
            odds[self._at_most(n)] = 0.0
        return odds

    def _at_least(self, number: int) -> NDArray[np.bool_]:
        larger = (self._sizes >= self._sizes[number]).all(axis=1)
        tighter = self._limits <= self._limits[number]
        return np.asarray(larger & tighter & (self._kinds == self._kinds[number]))

    def _at_most(self, number: int) -> NDArray[np.bool_]:
        smaller = (self._sizes <= self._sizes[number]).all(axis=1)
        wider = self._limits >= self._limits[number]
        return np.asarray(smaller & wider & (self._kinds == self._kinds[number]))


def _near(points: Array, others: Sequence[int]) -> Array:
    if not others:
        return np.zeros(len(points))
    square = ((points[:, None, :] - points[None, list(others), :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * square).sum(axis=1))


def _sizes(candidate: Candidate) -> list[float]:
    values = [v for _, v in candidate.config.axes if not isinstance(v, (str, bool))]
    return [log2(max(value, 1)) for value in values]


def _footprint_bytes(trace: Trace) -> int:
    """Blocks with their buffers and scratch, unpadded: only compares candidates."""
    blocks = (
        (op.buffers or (2 if op.fetches > 1 else 1)) * prod(op.block) * bits(op.dtype)
        for op in trace.operands
        if op.is_pipelined
    )
    scratch = (prod(s.shape) * bits(s.dtype) for s in trace.scratch if s.space == "vmem")
    return max(1, (sum(blocks) + sum(scratch)) // 8)


def log_improvement(posterior: Posterior, best: float) -> Array:
    """Logarithm of the expected reduction of log(time) below ``best``; finite however small."""
    z = (best - posterior.mean) / posterior.deviation
    density = np.exp(-0.5 * z**2) / sqrt(2 * pi)
    tail = np.array([0.5 * erfc(-value / sqrt(2)) for value in z])
    near = np.log(np.maximum(density + z * tail, 1e-300))
    far = -0.5 * z**2 - 2.0 * np.log(np.maximum(-z, 1.0)) - 0.5 * log(2 * pi)
    return np.log(posterior.deviation) + np.where(z > _FAR, near, far)


def _kernel(a: Array, b: Array, length: float) -> Array:
    """Matérn 5/2 over standardised features [len(a), len(b)]."""
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
    r = np.sqrt(5.0 * np.clip(square, 0.0, None) / max(1, a.shape[1])) / length
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))


def _log_likelihood(points: Array, target: Array, length: float, noise: float) -> float:
    gram = _kernel(points, points, length) + noise * np.eye(len(points))
    factor = np.linalg.cholesky(gram)
    whitened = np.linalg.solve(factor, target)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())
