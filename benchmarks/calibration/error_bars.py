"""The error bars of estimates, from points that no constant was fitted on and from measured times.

    python -m benchmarks.calibration.corpus --chips v5e,v5p,v6e,v7x  # once: listings, references
    python -m benchmarks.calibration.error_bars --published DIR [--write]

DIR holds what the ``published_*`` benchmarks saved. ``--write`` makes the simulator's data file;
without the corpus the bars by chip alone, and the others stay.
What the bars cover is judged on families of kernels that were left out of them.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from pathlib import Path

from autotune.estimating.simulator import constants
from benchmarks.calibration.agreement import Pair, load_all, quantile, ratio_error
from benchmarks.calibration.corpus import DEFAULT_FOLDER
from benchmarks.calibration.held_out import HeldOutPoint, compare, grouped, problem_of, sweep_of

_SAME_PROBLEM = ("jaxdocs_matmul_v5e", "tunejax_splash_v5e")  # several configs of one problem
# Another reading of times that are counted as "as_read", and the one that agrees: not in the bars.
_AGREEING = "tunejax_splash_v5e arrays=as_made"
_LARGEST_OVERHEAD = 0.2  # of a measured time: what the host adds is known too roughly beyond
_CAUTION = 2  # for a kind of kernel, or a chip, that was not measured
_LEAST_ROWS = 5  # measured rows of a kind that an error bar needs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--published", type=Path, required=True, help="folder of saved pairs")
    parser.add_argument("--write", action="store_true", help="make the data file")
    args = parser.parse_args()
    pairs = load_all(args.published)
    for chip, family, count, bar, within in coverage(pairs):
        print(f"{chip} {family}: {count} rows, {within:.0%} within {bar:.1%}", file=sys.stderr)
    rows = compare(args.folder)[0] if args.folder.is_dir() else []
    text = json.dumps(bars(rows, pairs), indent=2) + "\n"
    print(text, end="")
    if args.write:
        (constants.FOLDER / "errors.json").write_text(text)


def bars(rows: Sequence[HeldOutPoint], pairs: Sequence[Pair]) -> dict[str, object]:
    """Error bars (nine of ten stay within), by what limits and by chip, and resolutions (three of
    four), by what limits. That of XLA's own operations is not from here and stays; so do those by
    what limits, without held-out rows."""
    widths = _widths(_sure(pairs))
    everywhere = unseen(width for of_chip in widths.values() for width in of_chip.values())
    chips = {chip: _chip_bar(of_chip, everywhere) for chip, of_chip in widths.items()}
    if not rows:
        return {**constants.bars(), "chips": chips}
    differences = [
        difference
        for group in grouped(rows, sweep_of).values()
        for difference in _differences(group)
    ]
    sure = _sure(pairs)
    same = [pair for pair in sure if pair.subset.startswith(_SAME_PROBLEM)]
    real = [d for group in grouped(same, problem_of).values() for d in _differences(group)]
    # What kinds differ by is seen on one chip; what a chip adds is in a bar of its own.
    most = max(widths, key=lambda chip: len(widths[chip]))
    ours = [_own(row.pair) for row in rows], [_own(pair) for pair in sure if pair.chip == most]
    return {
        "error": {**_bars(*ours, 0.9, most), "XLA": constants.bars()["error"]["XLA"]},
        "chips": chips,
        "resolution": _bars(differences, real, 0.75, most),
    }


def _sure(pairs: Sequence[Pair]) -> list[Pair]:
    known = [pair for pair in pairs if pair.overhead_us < _LARGEST_OVERHEAD * pair.measured_us]
    return [pair for pair in known if pair.subset != _AGREEING]


def _widths(pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """By chip and family of kernels, the error that nine of ten rows stay within."""
    widths: dict[str, dict[str, float]] = {}
    for (chip, family), chosen in grouped(pairs, lambda pair: (pair.chip, pair.family)).items():
        errors = sorted(error for _, error in map(_own, chosen))
        widths.setdefault(chip, {})[family] = quantile(errors, 0.9)
    return widths


def _chip_bar(widths: Mapping[str, float], everywhere: float) -> dict[str, object]:
    """One family says too little of how wide others are: no narrower than ``everywhere``, which is
    that of all chips together."""
    alone = len(widths) == 1
    known = ", ".join(f"{family} ({width:.1%})" for family, width in widths.items())
    return {
        "value": round(max(unseen(widths.values()), everywhere if alone else 0.0), 3),
        "source": f"for a family never seen, from {known} measured on it"
        + (f", and {everywhere:.1%} from all chips" if alone else "")
        + ": benchmarks/calibration/error_bars.py",
    }


def unseen(widths: Iterable[float]) -> float:
    """How wide a family may be that nothing is known of: (n + 1) / n times the widest of n, the
    unbiased estimate of the upper end of what n were drawn from (the German tank problem)."""
    known = list(widths)
    return (len(known) + 1) / len(known) * max(known)


def coverage(pairs: Sequence[Pair]) -> Iterable[tuple[str, str, int, float, float]]:
    """Each chip and family: its rows, the bar that the others make without it, and the share of its
    rows within. Without another family on the chip, those of the other chips make it, doubled."""
    sure = _sure(pairs)
    widths = _widths(sure)
    for (chip, family), chosen in grouped(sure, lambda pair: (pair.chip, pair.family)).items():
        left = {
            c: [w for name, w in of_chip.items() if name != family] for c, of_chip in widths.items()
        }
        elsewhere = [_CAUTION * width for of_chip in left.values() for width in of_chip]
        bar = unseen(left[chip] or elsewhere)
        within = sum(error <= bar for _, error in map(_own, chosen)) / len(chosen)
        yield chip, family, len(chosen), bar, within


def _own(pair: Pair) -> tuple[str, float]:
    return pair.limited_by, abs(pair.kernel_ratio - 1)


def _differences(group: Sequence[HeldOutPoint] | Sequence[Pair]) -> Iterable[tuple[str, float]]:
    """By how much the ratio of two configs of one problem is wrong, under what limits either."""
    pairs = [item.pair if isinstance(item, HeldOutPoint) else item for item in group]
    for a, b in combinations(pairs, 2):
        wrong = ratio_error(a, b)
        yield from ((kind, wrong) for kind in {a.limited_by, b.limited_by})


def _bars(
    model: Iterable[tuple[str, float]], real: Iterable[tuple[str, float]], share: float, chip: str
) -> dict[str, dict[str, object]]:
    """The widest of three: against libtpu, against all that was measured on ``chip``, and, where
    enough rows are of the kind, against those; twice the second where they are too few."""
    where = f"measured on a real {chip} (published; some constants were chosen on them)"
    modelled, measured = _grouped_values(model), _grouped_values(real)
    everything = sorted({error for errors in measured.values() for error in errors})
    bars: dict[str, dict[str, object]] = {}
    for kind, errors in modelled.items():
        errors_of_kind = sorted(measured.get(kind, []))
        candidates = [(quantile(sorted(errors), share), f"{len(errors)} held out, against libtpu")]
        if everything:
            factor = 1 if len(errors_of_kind) >= _LEAST_ROWS else _CAUTION
            note = f"{len(everything)} {where}" + (f", times {factor}" if factor > 1 else "")
            candidates.append((factor * quantile(everything, share), note))
        if len(errors_of_kind) >= _LEAST_ROWS:
            candidates.append(
                (quantile(errors_of_kind, share), f"{len(errors_of_kind)} of this kind {where}")
            )
        bar, source = max(candidates)
        bars[kind] = {
            "value": round(bar, 3),
            "source": f"{share:.0%} of {source}: benchmarks/calibration/error_bars.py",
        }
    return bars


def _grouped_values(items: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    return {kind: [v for _, v in pairs] for kind, pairs in grouped(items, itemgetter(0)).items()}


if __name__ == "__main__":
    main()
