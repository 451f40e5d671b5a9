"""How well estimates agree with measurements: errors and ranks of pairs of times."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from autotune.estimating.cost_model.error_bars import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measured time and our estimate of it; ``group`` is what it is reported under,
    ``limited_by`` what the estimate says of it, ``subset`` whose measurement it is, ``family`` what
    kernel it is of. ``overhead_us`` is in both times and was not estimated: the dispatch of a
    host."""

    subset: str
    chip: str
    family: str
    group: str
    limited_by: str
    measured_us: float
    estimated_us: float
    overhead_us: float = 0.0

    @property
    def ratio(self) -> float:
        return self.estimated_us / self.measured_us

    @property
    def kernel_ratio(self) -> float:
        """The same without what is in both times."""
        return (self.estimated_us - self.overhead_us) / (self.measured_us - self.overhead_us)


def ratio_error(a: Pair, b: Pair) -> float:
    """By how much the ratio of two estimates is wrong, without what is in both times."""
    return abs(a.kernel_ratio / b.kernel_ratio - 1)


def arguments(
    doc: str | None, *, save: str = "", python: bool = True, rows: bool = True
) -> argparse.Namespace:
    """What the ``published_*`` scripts are told: ``--rows``, and where asked for ``--python`` and
    ``--save``, with its help."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    add_arguments(parser, save=save, python=python, rows=rows)
    return parser.parse_args()


def add_arguments(
    parser: argparse.ArgumentParser, *, save: str = "", python: bool = True, rows: bool = True
) -> None:
    """The same of a script that is told more."""
    if rows:
        parser.add_argument(
            "--rows", type=Path, required=True, help="the published times, JSON lines"
        )
    if python:
        parser.add_argument("--python", default=sys.executable, help="interpreter to compile with")
    if save:
        parser.add_argument("--save", type=Path, help=save)


def published(path: Path, subset: str) -> list[dict[str, Any]]:
    """Rows of a subset of published times; ``SystemExit`` with a sentence without the file."""
    if not path.is_file():
        sys.exit(f"there is no file {path}: give the published rows with --rows")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["subset"] == subset]


def save(pairs: Sequence[Pair], path: Path | None) -> None:
    """Keep the pairs for the accuracy benchmark and for ``error_bars.py``."""
    if path is not None:
        path.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")


def load(path: Path) -> list[Pair]:
    """The pairs that ``save`` wrote."""
    return [Pair(**data) for data in json.loads(path.read_text())]


def load_all(folder: Path | None) -> list[Pair]:
    """Those of all files of a folder; none without one."""
    files = sorted(folder.glob("*.json")) if folder else []
    return [pair for file in files for pair in load(file)]


def report(pairs: Sequence[Pair]) -> None:
    """Print error and rank agreement of all pairs, and of each group."""
    heads = f"{'rows':>5}{'median':>8}{'p90':>7}{'worst':>7}{'mean ratio':>12}{'Spearman':>10}"
    print(f"\n{'':<22}{heads}")
    for name in dict.fromkeys(["all", *(pair.group for pair in pairs)]):
        chosen = [pair for pair in pairs if name in ("all", pair.group)]
        errors = sorted(abs(pair.ratio - 1) for pair in chosen)
        mean = sum(pair.ratio for pair in chosen) / len(chosen)
        print(
            f"{name:<22}{len(chosen):>5}{median(errors):>8.1%}{p90(errors):>7.1%}"
            f"{errors[-1]:>7.1%}{mean:>12.3f}{spearman(chosen):>10.3f}"
        )


def spearman(pairs: Sequence[Pair]) -> float:
    """Rank correlation; not a number for fewer than three pairs."""
    if len(pairs) < 3:
        return float("nan")
    from scipy.stats import spearmanr  # a second, which whoever collects the tests need not wait

    result = spearmanr([p.measured_us for p in pairs], [p.estimated_us for p in pairs])
    return float(result.statistic)


def kendall(pairs: Iterable[Pair]) -> float:
    """Pairs in the measured order less pairs in the other, over those that the measurement tells
    apart by 0.1 % (an estimated tie counts for neither); 1.0 when it tells none apart."""
    apart = [(a, b) for a, b in combinations(pairs, 2) if _told_apart(a.measured_us, b.measured_us)]
    return sum(_agreement(a, b) for a, b in apart) / len(apart) if apart else 1.0


def _told_apart(a: float, b: float) -> bool:
    return abs(a / b - 1) > 0.001


def _agreement(a: Pair, b: Pair) -> int:
    product = (a.measured_us - b.measured_us) * (a.estimated_us - b.estimated_us)
    return (product > 0) - (product < 0)


def p90(errors: Sequence[float]) -> float:
    """The error that nine rows of ten stay within; ``errors`` are sorted."""
    return quantile(errors, 0.9)
