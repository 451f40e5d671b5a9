"""How likely a candidate is faster than another, given that candidates of a problem resemble each
other. Pure statistics.

The extremes of many noisy levels are too extreme: of equal candidates one looks the fastest and one
the slowest. So the true levels of those that cannot be told from the leader are taken as a normal
distribution, whose centre and width their levels tell (empirical Bayes: Efron and Morris, 1975). Of
the width a few levels tell little: it is averaged over, from 0.1 % to 6.4 %, each octave as likely
beforehand as another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from autotune.measuring.fit import Fit

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

    found: Fit
    by_width: Sequence[Belief]
    weights: Sequence[float]

    def chance(self, first: str, other: str, by: float = 0.0) -> float:
        """The probability that ``one`` is faster than ``other`` by more than ``by`` (log)."""
        from scipy.special import stdtr

        known = self.by_width[0].means
        if first not in known or other not in known:
            return self.found.chance(first, other, by)
        total = 0.0
        for weight, belief in zip(self.weights, self.by_width, strict=True):
            shared = (belief.pull[first] - belief.pull[other]) ** 2 * belief.centre
            error = sqrt(belief.variances[first] + belief.variances[other] + shared)
            gap = belief.means[first] - belief.means[other]
            total += weight * float(stdtr(self.found.freedom, (-by - gap) / error))
        return total


def beliefs(fit: Fit, names: Sequence[str], leader: str) -> Beliefs:
    """``leader``: the one with the lowest level of the names."""
    alike = [n for n in names if n == leader or _near(fit, n, leader)]
    by_width = [_under(fit, alike, width) for width in _WIDTHS]
    most = max(belief.likelihood for belief in by_width)
    weights = [exp(belief.likelihood - most) for belief in by_width]
    total = sum(weights)
    return Beliefs(found=fit, by_width=by_width, weights=[w / total for w in weights])


def _near(fit: Fit, name: str, leader: str) -> bool:
    return fit.gap(name, leader) < _NEAR * fit.error(name, leader)


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
