"""How well estimates agree with measurements: errors and ranks of pairs of times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from scipy.stats import spearmanr


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measured time and our estimate of it; ``group`` is what it is reported under."""

    group: str
    measured_us: float
    estimated_us: float

    @property
    def ratio(self) -> float:
        return self.estimated_us / self.measured_us


def report(pairs: Sequence[Pair]) -> None:
    """Print error and rank agreement of all pairs, and of each group."""
    heads = f"{'rows':>5}{'median':>8}{'p90':>7}{'worst':>7}{'mean ratio':>12}{'Spearman':>10}"
    print(f"\n{'':<22}{heads}")
    for name in dict.fromkeys(["all", *(pair.group for pair in pairs)]):
        chosen = [pair for pair in pairs if name in ("all", pair.group)]
        errors = sorted(abs(pair.ratio - 1) for pair in chosen)
        mean = sum(pair.ratio for pair in chosen) / len(chosen)
        print(f"{name:<22}{len(chosen):>5}{median(errors):>8.1%}{_p90(errors):>7.1%}"
              f"{errors[-1]:>7.1%}{mean:>12.3f}{spearman(chosen):>10.3f}")  # fmt: skip


def spearman(pairs: Sequence[Pair]) -> float:
    """Rank correlation; not a number for fewer than three pairs."""
    if len(pairs) < 3:
        return float("nan")
    found = spearmanr([p.measured_us for p in pairs], [p.estimated_us for p in pairs])
    return float(found.statistic)


def kendall(pairs: Iterable[Pair]) -> float:
    """Pairs in the measured order less pairs in the other, over all pairs (ties count for none)."""
    signs = [_agreement(a, b) for a, b in combinations(pairs, 2)]
    return sum(signs) / len(signs)


def _agreement(a: Pair, b: Pair) -> int:
    product = (a.measured_us - b.measured_us) * (a.estimated_us - b.estimated_us)
    return (product > 0) - (product < 0)


def _p90(errors: Sequence[float]) -> float:
    """The error that nine rows of ten stay below."""
    return errors[min(len(errors) - 1, int(0.9 * len(errors)))]
