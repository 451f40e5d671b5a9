"""What rounds of timings say of their candidates: levels, noise, intervals. Pure statistics.

A round times each of some candidates once, in a random order. The logarithm of a time is taken as
level of the candidate + effect of the round + noise; what all candidates share in a round (drift,
a slower clock) is its effect and cancels in every comparison. What interrupts a device only makes
it slower, so of samples that the noise cannot reconcile the faster ones count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from statistics import median, median_low

Round = Mapping[str, float]
"""Microseconds by candidate."""

UNSTEADY = 0.02
"""Rounds whose effects differ by more ran in another state of the device, such as throttled."""

_FAR = 6.0  # times the noise: what lies farther off is an outlier
_LEAST_NOISE = 1e-4
_KNOWN, _UNKNOWN_NOISE = 2, 0.03  # what is assumed while fewer residuals than that are known
_PASSES = 6
_FEW = 3  # candidates that a round needs to tell the device's state by itself
_PRIOR = 8.0  # how many samples the noise of all weighs in that of one
_WIDEST = 5.0  # half of an interval, where next to nothing is known
_LOST = 0.9  # degrees of freedom that remain when outliers are cut off

Sample = tuple[str, int, float]  # candidate, number of the round, logarithm of the time


@dataclass(frozen=True)
class Fit:
    """``steady``: the rounds that it rests on, those in the fastest state that was seen;
    ``used``: their samples without outliers.

    Levels are logarithms of times, the effect of the median steady round being zero.
    """

    rounds: tuple[Round, ...]
    steady: tuple[int, ...]
    used: tuple[Sample, ...]
    levels: Mapping[str, float]
    effects: tuple[float, ...]
    noise: float
    freedom: float

    def count(self, name: str) -> int:
        """Samples of a candidate that are used."""
        return len(self._squares.get(name, ()))

    def gap(self, first: str, other: str) -> float:
        """Logarithm of the ratio of their times: positive where ``first`` is slower."""
        return self.levels[first] - self.levels[other]

    def error(self, first: str, other: str) -> float:
        """Standard error of the gap."""
        return sqrt(self.variance(first) + self.variance(other))

    def variance(self, name: str) -> float:
        """Of the level of a candidate. That of one sample is its own, drawn to that of all while
        there are few."""
        squares = self._squares[name]
        of_one = (_PRIOR * self.noise**2 + sum(squares)) / (_PRIOR + len(squares))
        return of_one / len(squares)

    def chance(self, first: str, other: str, by: float = 0.0) -> float:
        """The probability that ``first`` is faster than ``other`` by more than ``by`` (log)."""
        from scipy.special import stdtr

        return float(stdtr(self.freedom, (-by - self.gap(first, other)) / self.error(first, other)))

    def half_width(self, first: str, other: str, alpha: float) -> float:
        """Half of the interval of the gap that misses the truth with the chance ``alpha``."""
        from scipy.special import stdtrit

        wide = float(stdtrit(self.freedom, 1 - alpha / 2)) * self.error(first, other)
        return min(wide, _WIDEST)

    @cached_property
    def _squares(self) -> dict[str, list[float]]:
        """Squared residuals of each candidate, larger by what fitting takes away."""
        share = max(0.2, self.freedom / _LOST / max(1, len(self.used)))
        rests: dict[str, list[float]] = {}
        for name, number, value in self.used:
            rest = value - self.levels[name] - self.effects[number]
            rests.setdefault(name, []).append(rest**2 / share)
        return rests


def fit(rounds: Sequence[Round]) -> Fit:
    """Every candidate must be in the first round or in one that shares a candidate with it."""
    whole = _fitted(rounds, range(len(rounds)))
    steady = _fastest_state(whole)
    return whole if len(steady) == len(rounds) else _fitted(rounds, steady)


def _fitted(rounds: Sequence[Round], steady: Sequence[int]) -> Fit:
    samples = [(name, n, log(us)) for n in steady for name, us in rounds[n].items()]
    effects = _first_effects(rounds)
    levels, fitted = _settled(rounds, samples, effects, None)
    rough = max(_LEAST_NOISE, _spread(samples, levels, effects, fitted))
    levels, fitted = _settled(rounds, samples, effects, rough)
    used = [s for s in samples if abs(s[2] - levels[s[0]] - effects[s[1]]) <= rough * _FAR]
    free = max(1.0, _free(used, fitted))
    least = _LEAST_NOISE if free > _KNOWN else _UNKNOWN_NOISE
    squares = sum((value - levels[name] - effects[n]) ** 2 for name, n, value in used)
    middle = median(effects[n] for n in steady)
    return Fit(
        rounds=tuple(rounds),
        steady=tuple(steady),
        used=tuple(used),
        levels={name: level + middle for name, level in levels.items()},
        effects=tuple(effect - middle for effect in effects),
        noise=max(least, sqrt(squares / free)),
        freedom=max(1.0, free * _LOST),
    )


def _settled(
    rounds: Sequence[Round], samples: Sequence[Sample], effects: list[float], rough: float | None
) -> tuple[dict[str, float], float]:
    """The levels that fit the samples best, and for how many effects the samples were used up;
    ``effects`` is changed. ``rough``: a first idea of the noise, without which medians are taken.
    """
    levels: dict[str, float] = {}
    fitted = float(len({n for _, n, _ in samples}))
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    cut = None if rough is None else _FAR * rough
    for _ in range(_PASSES):
        for name, samples in by_name.items():
            levels[name] = _location([value - effects[n] for _, n, value in samples], cut)
        for number, times in enumerate(rounds):
            rests = [log(us) - levels[name] for name, us in times.items() if name in levels]
            if rests:
                effects[number] = _location(rests, cut, few_near_zero=True)
        if rough is not None:
            fitted = _shrink(effects, [len(times) for times in rounds], rough)
    return levels, fitted


def _shrink(effects: list[float], sizes: Sequence[int], noise: float) -> float:
    """Towards their median, by what the noise explains of them: a device that is steady has none,
    and times of different rounds may then be compared as they are. How many effects remain."""
    middle = median(effects)
    by_noise = [noise**2 / size for size in sizes]
    surplus = [(e - middle) ** 2 - noise for e, noise in zip(effects, by_noise, strict=True)]
    real = max(_LEAST_NOISE**2, sum(surplus) / len(surplus))
    shares = [real / (real + noise) for noise in by_noise]
    for number, share in enumerate(shares):
        effects[number] = middle + (effects[number] - middle) * share
    return max(1.0, sum(shares))


def _first_effects(rounds: Sequence[Round]) -> list[float]:
    """The median of each round against the first time of each of its candidates."""
    first: dict[str, float] = {}
    effects = []
    for times in rounds:
        known = [log(us) - first[name] for name, us in times.items() if name in first]
        effects.append(median(known) if known else 0.0)
        for name, us in times.items():
            first.setdefault(name, log(us) - effects[-1])
    return effects


def _location(values: Sequence[float], cut: float | None, *, few_near_zero: bool = False) -> float:
    """The mean of what lies within ``cut`` of the lower median; without it the median.

    Of one or two contradicting effects (``few_near_zero``) the one that means no change counts.
    """
    if cut is None:
        return median(values)
    few = few_near_zero and len(values) < _FEW
    place = min(values, key=abs) if few else median_low(values)
    for _ in range(2):
        near = [value for value in values if abs(value - place) <= cut] or [place]
        place = sum(near) / len(near)
    return place


def _spread(
    samples: Sequence[Sample], levels: Mapping[str, float], effects: Sequence[float], fitted: float
) -> float:
    """Standard deviation of one sample, from the smaller three fifths of what is left over:
    the rest may be outliers."""
    rests = sorted(abs(value - levels[name] - effects[n]) for name, n, value in samples)
    return rests[len(rests) * 3 // 5] / 0.84 * sqrt(len(rests) / max(1.0, _free(samples, fitted)))


def _free(samples: Sequence[Sample], fitted: float) -> float:
    """Samples that are more than the levels and effects that they are to tell."""
    return len(samples) - len({name for name, _, _ in samples}) - fitted + 1


def _tells(fitted: Fit, number: int) -> bool:
    """Whether a round tells the state of the device: so do many candidates, and two that agree."""
    times = fitted.rounds[number]
    rests = [log(us) - fitted.levels[name] for name, us in times.items() if name in fitted.levels]
    agree = len(rests) == _FEW - 1 and max(rests) - min(rests) <= _FAR * fitted.noise
    return len(times) >= _FEW or agree


def _fastest_state(fitted: Fit) -> tuple[int, ...]:
    """The rounds that are slower by no more than :data:`UNSTEADY`, or what the noise explains, than
    the state of the fastest one of those that have enough candidates to tell."""
    sure = [n for n in range(len(fitted.rounds)) if _tells(fitted, n)] or [0]

    def as_fast(number: int, effect: float, size: int) -> bool:
        explained = 3 * fitted.noise * sqrt(1 / size + 1 / len(fitted.rounds[number]))
        return fitted.effects[number] - effect <= max(UNSTEADY, explained)

    fastest = min(sure, key=lambda n: fitted.effects[n])
    alike = [n for n in sure if as_fast(n, fitted.effects[fastest], len(fitted.rounds[fastest]))]
    effect = sum(fitted.effects[n] for n in alike) / len(alike)  # the fastest alone is an extreme
    size = sum(len(fitted.rounds[n]) for n in alike)
    return tuple(n for n in range(len(fitted.rounds)) if as_fast(n, effect, size))


_WIDTHS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
_NEAR = 3.0  # errors of the gap: what is farther from the leader is not one of the alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Under one assumed width. ``likelihood``: of it, as a logarithm; ``means``: levels, drawn
    towards the centre by ``pull``; ``variances``: around them, apart from what all share, the
    variance of the ``centre`` times their pull."""

    likelihood: float
    means: Mapping[str, float]
    variances: Mapping[str, float]
    pull: Mapping[str, float]
    centre: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """What is to be thought of a fit."""

    fit: Fit
    by_width: Sequence[Belief]
    weights: Sequence[float]

    def chance(self, first: str, other: str, by: float = 0.0) -> float:
        """The probability that ``first`` is faster than ``other`` by more than ``by`` (log)."""
        from scipy.special import stdtr

        known = self.by_width[0].means
        if first not in known or other not in known:
            return self.fit.chance(first, other, by)
        total = 0.0
        for weight, belief in zip(self.weights, self.by_width, strict=True):
            shared = (belief.pull[first] - belief.pull[other]) ** 2 * belief.centre
            error = sqrt(belief.variances[first] + belief.variances[other] + shared)
            gap = belief.means[first] - belief.means[other]
            total += weight * float(stdtr(self.fit.freedom, (-by - gap) / error))
        return total


def beliefs(fit: Fit, names: Sequence[str], leader: str) -> Beliefs:
    """``leader``: the one with the lowest level of the names."""
    alike = [n for n in names if n == leader or (fit.gap(n, leader) < _NEAR * fit.error(n, leader))]
    by_width = [_under(fit, alike, width) for width in _WIDTHS]
    most = max(belief.likelihood for belief in by_width)
    weights = [exp(belief.likelihood - most) for belief in by_width]
    total = sum(weights)
    return Beliefs(fit=fit, by_width=by_width, weights=[w / total for w in weights])


def _under(fit: Fit, alike: Sequence[str], width: float) -> Belief:
    """Any centre is as likely beforehand as another."""
    noise = {n: fit.variance(n) for n in alike}
    precision = {n: 1 / (noise[n] + width**2) for n in alike}
    total = sum(precision.values())
    centre = sum(precision[n] * fit.levels[n] for n in alike) / total
    misfit = sum(precision[n] * (fit.levels[n] - centre) ** 2 for n in alike)
    pull = {n: noise[n] * precision[n] for n in alike}
    return Belief(
        likelihood=(sum(log(p) for p in precision.values()) - log(total) - misfit) / 2,
        means={n: fit.levels[n] + pull[n] * (centre - fit.levels[n]) for n in alike},
        variances={n: noise[n] * width**2 * precision[n] for n in alike},
        pull=pull,
        centre=1 / total,
    )
