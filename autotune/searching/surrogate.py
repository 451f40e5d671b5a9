"""What to compile next: a Gaussian process over the candidates of one space, and their risk.

It learns the logarithm of the ratio between the time and the roofline's guess, so it starts from
physics and only has to learn what the roofline misses.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from math import log, log2, pi, prod, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import erfcx, ndtr

from autotune.domain.problem import AxisValue, Config, bits
from autotune.domain.trace import Trace
from autotune.estimating.space import Candidate

# In doublings of a size: how far another grid order, or another value that is no size, is away.
_ANOTHER_KIND = 1.0


class Neighbours:
    """Of candidates that do not change."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._near: tuple[int, list[tuple[float, int]]] = -1, []

    def of(self, best: int, untried: Collection[int]) -> list[int]:
        """Indices of the nearest untried candidates that differ from ``best`` in one axis or in the
        grid order alone. Nearness is in doublings, whatever is known of what lies between. Blocks
        that fit their arrays have no neighbours that reach over the edge."""
        if self._near[0] != best:
            self._near = best, self._by_distance(best)
        near = (pair for pair in self._near[1] if pair[1] in untried)
        nearest = next(near, None)
        if nearest is None:
            return []
        alike = takewhile(lambda pair: pair[0] == nearest[0], near)
        return [nearest[1], *(number for _, number in alike)]

    def _by_distance(self, best: int) -> list[tuple[float, int]]:
        here, whole = self._candidates[best].config, not is_ragged(self._candidates[best].trace)
        steps = ((_step(here, candidate.config), n) for n, candidate in enumerate(self._candidates))
        near = sorted((step, number) for step, number in steps if step is not None)
        return [pair for pair in near if not (whole and is_ragged(self._candidates[pair[1]].trace))]


def is_ragged(trace: Trace) -> bool:
    """Whether some block reaches over the edge of its array: masks, or code for two sizes."""
    return any(
        size % block
        for op in trace.operands
        if op.is_pipelined
        for size, block in zip(op.shape, op.block, strict=True)
    )


def _step(here: Config, there: Config) -> float | None:
    """None where more than one thing differs."""
    old, new = dict(here.axes), dict(there.axes)
    names = {**old, **new}  # of a compiler option that is not set there is none
    pairs = [(old.get(name, ""), new.get(name, "")) for name in names]
    moved = [pair for pair in pairs if pair[0] != pair[1]]
    reordered = here.grid_order != there.grid_order
    if len(moved) + reordered > 1:
        return None
    return _distance(*moved[0]) if moved else _ANOTHER_KIND * reordered


def _distance(old: AxisValue, new: AxisValue) -> float:
    if isinstance(old, str | bool) or isinstance(new, str | bool) or old <= 0 or new <= 0:
        return _ANOTHER_KIND
    return abs(log2(new / old))


Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]

_LENGTHS = (0.5, 1.0, 2.0, 4.0)  # of the distance between rows of ``features``
_NOISES = (1e-4, 1e-2)
_FLAG_SPREAD = 2.0  # a flag that differs counts half as much as a number by one deviation
_FIRST_SCALE = 0.3  # of log(time / guess), while too few times are known to tell
_LEAST_SCALE = 0.05
_FIT_AGAIN = 1.1  # times as many times: a few among hundreds do not change how alike they are
_FAR = -1e4  # deviations: farther off, rounding is a larger error than the next term of the series

_START_ODDS = 0.6  # of failure, for the candidate with the largest blocks, before anything is known
_START_WEIGHT = 0.5  # of that guess, against one for each compiled neighbour
_DOOMED = 0.999  # odds of what is no smaller than a failure
_RUNG_DISTANCE = 4.0  # a doubled VMEM limit changes as much as blocks 16 times as large

# Large blocks take the compiler tens of seconds: how much of a gain a doubled footprint is worth.
_COST_OF_DOUBLING = 0.02


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and standard deviation of log(time_us) for every candidate."""

    mean: Array
    deviation: Array


class Surrogate:
    """Fitted anew when there are a tenth more times: what is pending says nothing of how alike they
    are. A few hundred points cost milliseconds."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._table = features(candidates)
        self._prior = np.log(np.array([c.roofline.guess_us for c in candidates]))
        self._risk = Risk(candidates)
        self._cost = _COST_OF_DOUBLING * _log_footprint(candidates)
        self._fitted: tuple[int, tuple[float, float]] | None = None
        self._columns: tuple[float, dict[int, Array]] = 0.0, {}

    def scores(
        self,
        times_us: Mapping[int, float],
        failed: Sequence[int],
        pending: Sequence[int],
        predicted: Posterior | None = None,
        untimed: Sequence[int] = (),
    ) -> Array:
        """Logarithm of what compiling each candidate promises: its expected improvement, times
        the odds that it compiles. All arguments speak of indices of candidates. ``predicted``:
        what is known from other problems, which counts in the place of what is learned here and of
        fears that nothing confirms; ``untimed``: compiled, but without an estimate."""
        seen = list(times_us)
        posterior = predicted or self.posterior(seen, list(times_us.values()), pending)
        success: Array = np.zeros_like(self._prior)
        if failed or not predicted:
            success = np.log1p(-self._risk.odds(seen, failed))
        if not predicted:
            success -= self._cost
        if untimed:
            without = self._risk.same_blocks(untimed) & ~self._risk.same_blocks(seen)
            success[without] = log(1 - _DOOMED)
        if not seen:
            return success - posterior.mean
        hoped = posterior.mean[list(pending)]
        best = min([log(min(times_us.values())), *hoped])
        return success + log_improvement(posterior, best)

    def posterior(
        self, seen: Sequence[int], times_us: Sequence[float], pending: Sequence[int] = ()
    ) -> Posterior:
        """``pending`` candidates only take away uncertainty: their time is expected to be as
        predicted, so that two compilers do not look into the same corner."""
        known = [*seen, *pending]
        if not known:
            return Posterior(mean=self._prior, deviation=np.full_like(self._prior, _FIRST_SCALE))
        ratio = np.log(np.asarray(times_us, dtype=np.float64)) - self._prior[list(seen)]
        centre = float(np.median(ratio)) if seen else 0.0
        scale = max(float(ratio.std()), _LEAST_SCALE) if len(seen) > 3 else _FIRST_SCALE
        target = (ratio - centre) / scale
        count = max(1, len(seen))
        if self._fitted is None or not 1 <= count / self._fitted[0] < _FIT_AGAIN:
            square = cdist(self._table[list(seen)], self._table[list(seen)], "sqeuclidean")
            alike = [matern(square, length) for length in _LENGTHS]
            chosen, noise = likeliest(alike, _NOISES, target)
            self._fitted = count, (_LENGTHS[chosen], noise)
        length, noise = self._fitted[1]
        covariance = self._covariance(known, length)  # [candidates, known]
        factor = whitening(covariance[known], noise)
        whitened = covariance @ factor.T
        variance = 1.0 - (whitened**2).sum(axis=1)
        # the first rows of the factor belong to the seen ones alone: pending ones change no mean
        mean = whitened[:, : len(seen)] @ (factor[: len(seen), : len(seen)] @ target)
        return Posterior(
            mean=mean * scale + centre + self._prior,
            deviation=np.sqrt(np.clip(variance, 1e-9, None)) * scale,
        )

    def _covariance(self, known: Sequence[int], length: float) -> Array:
        """Of all candidates with these. Each is computed once for a length."""
        if self._columns[0] != length:
            self._columns = length, {}
        columns = self._columns[1]
        new = [number for number in known if number not in columns]
        square = cdist(self._table[new], self._table, "sqeuclidean")
        columns.update(zip(new, matern(square, length), strict=True))
        return np.array([columns[number] for number in known]).T


class Risk:
    """The odds that a candidate does not compile, from those that did and did not.

    Nearly all failures are blocks that are too large: what is in no size smaller than a failure
    is expected to fail too, what is in no size larger than a success is expected to compile.
    Grid orders and semantics of one block shape are one thing here.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        limits = np.array([c.config.vmem_limit_bytes or 0 for c in candidates])
        rungs = np.unique(limits, return_inverse=True)[1]
        width = max(len(c.config.axes) for c in candidates)  # compiler options are there or not
        sizes = np.array([_sizes(c, width) for c in candidates], dtype=np.float64)
        room = _log_footprint(candidates)
        table = np.column_stack([_kinds(candidates), rungs, room, sizes])
        shapes, self._shape = np.unique(table, axis=0, return_inverse=True)
        kinds, rungs, room = shapes[:, 0], shapes[:, 1], shapes[:, 2]
        # [columns, shapes]: one shape can fail because of another when none of these is larger
        self._order = np.vstack([kinds, -kinds, -rungs, shapes[:, 3:].T])
        self._points = np.column_stack([_RUNG_DISTANCE * rungs, shapes[:, 2:]])
        self._start = _START_ODDS * 2.0 ** (room - room.max())
        self._bad = self._good = _Around.nothing(len(shapes))

    def odds(self, fine: Sequence[int], failed: Sequence[int]) -> Array:
        """One number below 1 per candidate. ``fine`` and ``failed`` are indices."""
        self._bad, self._good = self._grown(self._bad, failed), self._grown(self._good, fine)
        bad = self._bad.near + _START_WEIGHT * self._start
        good = self._good.near + _START_WEIGHT * (1.0 - self._start)
        odds = np.asarray(bad / (bad + good))
        odds[self._bad.larger] = np.maximum(odds[self._bad.larger], _DOOMED)
        odds[self._good.smaller] = 0.0
        return np.asarray(odds[self._shape])

    def same_blocks(self, numbers: Sequence[int]) -> _Mask:
        """Which candidates have the blocks of one of these."""
        return np.isin(self._shape, self._shape[list(numbers)])

    def _grown(self, around: "_Around", numbers: Sequence[int]) -> "_Around":
        """Those that came since the last time are added: nearly all are the same."""
        known = len(around.numbers)
        if tuple(numbers[:known]) != around.numbers:
            known, around = 0, _Around.nothing(len(self._points))
        for shape in self._shape[list(numbers[known:])]:
            square = cdist(self._points, self._points[[shape]], "sqeuclidean")[:, 0]
            same_shape = self._order[:, [shape]]
            around = _Around(
                (),
                around.near + np.exp(-0.5 * square),
                around.larger | (self._order >= same_shape).all(axis=0),
                around.smaller | (self._order <= same_shape).all(axis=0),
            )
        return around._replace(numbers=tuple(numbers))


class _Around(NamedTuple):
    """How near each shape is to some candidates, and which are no smaller or no larger than one of
    them."""

    numbers: tuple[int, ...]
    near: Array
    larger: _Mask
    smaller: _Mask

    @classmethod
    def nothing(cls, shapes: int) -> "_Around":
        no = np.zeros(shapes, dtype=np.bool_)
        return cls((), np.zeros(shapes), no, no)


def features(candidates: Sequence[Candidate]) -> Array:
    """One row per candidate [candidates, features]: two random rows are about 1.4 apart."""
    rows = [_raw_features(candidate) for candidate in candidates]
    names = sorted({name for row in rows for name in row})
    table = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    spread = table.std(axis=0)
    flags = np.array(["=" in name for name in names])
    scale = np.where(flags, _FLAG_SPREAD, spread)
    varies = spread > 1e-9
    scaled = (table - table.mean(axis=0))[:, varies] / scale[varies]
    return np.asarray(scaled / sqrt(max(1, scaled.shape[1] - max(0, flags[varies].sum() - 1))))


def _raw_features(candidate: Candidate) -> dict[str, float]:
    """Names with an equals sign are flags: 1 for the one value that a candidate has."""
    line, row = candidate.roofline, axis_features(candidate.config)
    row["order=" + ">".join(candidate.config.grid_order)] = 1.0
    row[f"ragged={is_ragged(candidate.trace)}"] = 1.0
    row["cores"] = float(line.cores)
    parts = (("mem", line.memory_us), ("steps", line.overhead_us), ("fill", line.fill_us))
    return row | {name: log(max(part, 1e-3)) for name, part in parts}


def axis_features(config: Config) -> dict[str, float]:
    """Sizes in doublings; anything else is a flag."""
    flags = {f"{name}={v}": 1.0 for name, v in config.axes if isinstance(v, bool | str)}
    sizes = {n: log2(max(v, 1)) for n, v in config.axes if not isinstance(v, bool | str)}
    return flags | sizes


def _sizes(candidate: Candidate, width: int) -> list[float]:
    """Of each axis; 0.0 where its value is no size."""
    values = [value for _, value in candidate.config.axes]
    sizes = [0.0 if isinstance(value, bool | str) else log2(max(value, 1)) for value in values]
    return sizes + [0.0] * (width - len(sizes))


def _kinds(candidates: Sequence[Candidate]) -> NDArray[np.int64]:
    """Equal numbers for candidates with the same flags and names: their sizes can be compared."""
    flags = [
        tuple(value for _, value in c.config.axes if isinstance(value, (bool, str)))
        for c in candidates
    ]
    codes = {flag: n for n, flag in enumerate(dict.fromkeys(flags))}
    return np.array([codes[flag] for flag in flags], dtype=np.int64)


def _log_footprint(candidates: Sequence[Candidate]) -> Array:
    """Base 2; blocks with their buffers, and scratch, unpadded: it only compares candidates."""
    return np.log2(np.array([_footprint_bytes(c.trace) for c in candidates], dtype=np.float64))


def _footprint_bytes(trace: Trace) -> int:
    blocks = (
        op.buffer_count * prod(op.block) * bits(op.dtype)
        for op in trace.operands
        if op.is_pipelined
    )
    scratch = (prod(s.shape) * bits(s.dtype) for s in trace.scratch if s.space == "vmem")
    return max(1, (sum(blocks) + sum(scratch)) // 8)


def log_improvement(posterior: Posterior, best: float) -> Array:
    """Logarithm of the expected reduction of log(time) below ``best``; finite however small."""
    z = (best - posterior.mean) / posterior.deviation
    return np.asarray(np.log(posterior.deviation) + _log_gain(z))


def _log_gain(z: Array) -> Array:
    """log(density(z) + z * ndtr(z)) of the standard normal distribution.

    Below zero the two terms cancel: there the density is taken out, so that the scaled
    complementary error function says what is left (Ament et al. 2023, "Unexpected improvements").
    """
    low = np.clip(z, _FAR, 0.0)
    left = np.log1p(low * sqrt(pi / 2) * erfcx(-low / sqrt(2)))
    tail = np.where(z > _FAR, left, -2.0 * np.log(np.maximum(-z, 1.0)))
    log_density = -0.5 * z**2 - 0.5 * log(2 * pi)
    high = np.maximum(z, 0.0)
    direct = np.log(np.exp(-0.5 * high**2) / sqrt(2 * pi) + high * ndtr(high))
    return np.asarray(np.where(z > 0.0, direct, log_density + tail))


def matern(square: Array, length: float) -> Array:
    """Matérn 5/2 of squared distances."""
    r = np.sqrt(square) * (sqrt(5.0) / length)
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))


def whitening(gram: Array, noise: float) -> Array:
    """The inverse of the Cholesky factor of the covariance."""
    return np.asarray(solve_triangular(_factor(gram, noise), np.eye(len(gram)), lower=True))


def _factor(gram: Array, noise: float) -> Array:
    return np.asarray(np.linalg.cholesky(gram + noise * np.eye(len(gram))))


def likeliest(grams: Sequence[Array], noises: Sequence[float], target: Array) -> tuple[int, float]:
    """Which of ``grams``, with which noise, has the highest marginal likelihood."""

    def likelihood(place: int, noise: float) -> float:
        factor = _factor(grams[place], noise)
        whitened = solve_triangular(factor, target, lower=True)
        return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())

    return max(product(range(len(grams)), noises), key=lambda pair: likelihood(*pair))
