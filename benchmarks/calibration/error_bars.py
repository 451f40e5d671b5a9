"""The error bars of estimates, from points that no constant was fitted on and from measured times.

    python -m benchmarks published --python PYTHON --rows 200
    python -m benchmarks.calibration.error_bars [--published DIR] [--write]

DIR holds what the ``published_*`` benchmarks saved; families that are in neither keep the width
that the data file has. ``--write`` makes the simulator's data file; without the corpus
(``benchmarks.calibration.corpus``) the bars by what limits a kernel stay, and without DIR too.
What the bars cover is judged on families that were left out of them.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product, starmap
from operator import itemgetter
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple
from unittest.mock import patch

from autotune.domain.explanation import HBM, LATENCY, MATRIX, PARTS, XLA
from autotune.estimating.cost_model.error_bars import (
    SHARE,
    Errors,
    caution,
    left_out,
    quantile,
    width,
)
from autotune.estimating.simulator import MODEL, constants
from benchmarks.calibration.agreement import Pair, load_all, ratio_error
from benchmarks.calibration.corpus import DEFAULT_FOLDER
from benchmarks.calibration.held_out import HeldOutPoint, compare, grouped, problem_of, sweep_of
from benchmarks.calibration.tokamax_rows import (
    GIVEN,
    KERNELS,
    PALLAS,
    ROWS,
    Row,
    error_of,
    is_measured,
    newest,
    with_present_bar,
)

_SAME_PROBLEM = ("jaxdocs_matmul_v5e", "tunejax_splash_v5e")  # several configs of one problem
# Another reading of times that are counted as "as_read", and the one that agrees: not in the bars.
_AGREEING = "tunejax_splash_v5e arrays=as_made"
_LARGEST_OVERHEAD = 0.2  # of a measured time: what the host adds is known too roughly beyond
_CAUTION = 2  # for a kind of kernel, or a chip, that was not measured
_LEAST_ROWS = 5  # measured rows of a kind that an error bar needs
_FEWEST_FAMILIES = 2  # of a chip, for a bar of its own
_MORE_US = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # what each operation of XLA may take beside
_MOVES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)  # how much less sure what is no product may be
_NO_CONFIG = "xla_chunked_dot_product_attention"  # which chunk was measured, its memory alone says
_CAUSES = ("attention", "ragged dot", "cross entropy", "matmul")  # families that are the same to us
_UNSURE = {  # a part beyond what given rows show, where the latency of reads was measured and not
    0.2: "what a read takes beside its bytes is 0.8 to 1.0 us on the three chips where rows say it",
    0.41: "libtpu's own read latency makes the 128-row blocks of the JAX docs on v5e so much too "
    "slow (docs/explanation/simulator.md: latency)",
}
_WAITING, _WAITING_STEP_US = "v5e", 0.35  # where short steps that wait for reads were timed
_MOSTLY = 0.5  # of a time: such a part is known, as is what an operation of such a kind is off by
_SHORT = 2  # times the shortest step
_KERNELS, _XLA = "kernels", "XLA"


class Unsure(NamedTuple):
    """Of operations of XLA: microseconds that each may take beside, and how much less sure what is
    no product is."""

    more_us: float
    moves: float

    def bar(self, row: Row, of_products: float) -> float:
        return of_products * self._moves(row) + self._more(row)

    def of_products(self, row: Row) -> float:
        return max(0.0, error_of(row) - self._more(row)) / self._moves(row)

    def _more(self, row: Row) -> float:
        return float(self.more_us * row["operations_run"] / row["estimate_us"])

    def _moves(self, row: Row) -> float:
        by_kind = row.get("by_kind", {})
        products_us = sum(by_kind.get(kind, 0.0) for kind in constants.PRODUCTS)
        return float(1 + self.moves * (1 - products_us / (sum(by_kind.values()) or 1.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--rows", type=Path, default=ROWS, help="of benchmarks published")
    parser.add_argument("--published", type=Path, help="folder of saved pairs")
    parser.add_argument("--xla", action="store_true", help="what all plain XLA is unsure of, too")
    parser.add_argument("--write", action="store_true", help="make the data file")
    args = parser.parse_args()
    pairs = load_all(args.published)
    rows = compare(args.folder)[0] if args.folder.is_dir() and pairs else []
    given = _given(newest(args.rows, MODEL))
    unsure = Unsure(*(constants.bars()[name]["value"] for name in ("operation_us", "moves")))
    if args.xla:
        pairs_of = starmap(Unsure, product(_MORE_US, _MOVES))
        unsure = min(pairs_of, key=lambda pair: _mean_bar(given, pair))
    errors = _errors(given, pairs, unsure)
    kernels = [row for row in given if row["family"].startswith(PALLAS)]
    print("\n".join(coverage(errors)), file=sys.stderr)
    print("\n".join(left_out_causes(errors, kernels)), file=sys.stderr)
    data = constants.bars() | (by_limit(rows, pairs) if rows else {}) | by_chip(errors)
    data |= of_operations(given, unsure) | never_seen(errors, given)
    if not args.xla:
        data |= {name: constants.bars()[name] for name in (_XLA, "operation_us", "moves")}
    data |= new_kinds(given, data)
    print("\n".join(left_out_kinds(given, data)), file=sys.stderr)
    text = json.dumps(data, indent=2) + "\n"
    print(text, end="")
    if args.write:
        (constants.FOLDER / "errors.json").write_text(text)


def by_limit(rows: Sequence[HeldOutPoint], pairs: Sequence[Pair]) -> dict[str, object]:
    """Error bars (nine of ten stay within) and resolutions (three of four), by what limits."""
    differences = [
        difference
        for group in grouped(rows, sweep_of).values()
        for difference in _differences(group)
    ]
    sure = _sure(pairs)
    same = [pair for pair in sure if pair.subset.startswith(_SAME_PROBLEM)]
    real = [d for group in grouped(same, problem_of).values() for d in _differences(group)]
    # What kinds differ by is seen on one chip; what a chip adds is in a bar of its own.
    of_chip = grouped(sure, lambda pair: pair.chip)
    most = max(of_chip, key=lambda chip: len({pair.family for pair in of_chip[chip]}))
    ours = [_own(row.pair) for row in rows], [_own(pair) for pair in of_chip[most]]
    return {"error": _bars(*ours, SHARE, most), "resolution": _bars(differences, real, 0.75, most)}


def by_chip(errors: Errors) -> dict[str, object]:
    """Bars of kernels and of XLA by chip."""
    return {kind: _of_kind(kind, _only(errors, kind)) for kind in (_KERNELS, _XLA)}


def of_operations(given: Sequence[Row], unsure: Unsure) -> dict[str, object]:
    """What is unsure of operations of XLA."""
    where = "benchmarks/calibration/error_bars.py"
    narrowest = f"with it the bars of {len(given)} rows are narrowest in the mean: {where}"
    return {
        "operation_us": {"value": unsure.more_us, "source": narrowest},
        "moves": {"value": unsure.moves, "source": narrowest},
    }


def mostly(given: Sequence[Row]) -> dict[str, list[Row]]:
    """By the kind of operation that rows spend most of their time on."""
    pairs = [(kind, row) for row in given for kind in row.get("by_kind", {})]
    chosen = [(kind, row) for kind, row in pairs if _share(row, kind) >= _MOSTLY]
    return {kind: [row for _, row in own] for kind, own in grouped(chosen, itemgetter(0)).items()}


def _share(row: Row, kind: str) -> float:
    return float(row["by_kind"][kind] / sum(row["by_kind"].values()))


def new_kinds(given: Sequence[Row], data: Mapping[str, Any]) -> dict[str, Any]:
    """Kinds that enough rows are mostly of, if bars hold as of what is no product, and what any
    other kind adds to that, as few of them tell of it."""
    rows_of = {kind: rows for kind, rows in mostly(given).items() if len(rows) >= _LEAST_ROWS}
    if not rows_of:  # of rows without kinds
        return {}
    where = "benchmarks/calibration/error_bars.py"
    enough = [k for k, rows in rows_of.items() if _within(rows, data, [*rows_of]) >= SHARE]
    return {
        "timed_kinds": {
            "value": sorted(enough),
            "source": f"{_LEAST_ROWS} given rows or more are mostly of them, nine of ten within "
            f"their bars: {where}",
        },
        "other": {
            **data["other"],
            "new kind": {
                "value": round(_more(len(rows_of), data), 3),
                "source": f"of what is no product, times {of_few(len(rows_of)) - 1:.3g} as only "
                f"{len(rows_of)} kinds tell of others: {where}",
            },
        },
    }


def _more(kinds: int, data: Mapping[str, Any]) -> float:
    known = max(entry["value"] for entry in data[_XLA].values()) * (1 + data["moves"]["value"])
    return float(known * (of_few(kinds) - 1))


def _within(rows: Sequence[Row], data: Mapping[str, Any], timed: Sequence[str]) -> float:
    """The share of rows that are within their bars if these kinds are timed."""
    new = {"new kind": {"value": _more(len(timed), data)}}
    changed = {"timed_kinds": {"value": timed}, "other": {**data["other"], **new}}
    with patch.object(constants, "bars", return_value={**data, **changed}):
        return float(mean(error_of(row) <= with_present_bar(row)["bar"] for row in rows))


def left_out_kinds(given: Sequence[Row], data: Mapping[str, Any]) -> Iterator[str]:
    """A table: each kind of operation, and the rows that are mostly of it within bars that are made
    as if nobody had timed it."""
    yield "| kind left out | rows | within |"
    yield "|---|---|---|"
    rows_of = mostly(given)
    for kind, rows in rows_of.items():
        within = _within(rows, data, [name for name in rows_of if name != kind])
        yield f"| {kind or 'arithmetic and moves'} | {len(rows)} | {within:.0%} |"


def never_seen(errors: Errors, given: Sequence[Row]) -> dict[str, object]:
    """The bar of kernels of other families, and what makes it wider: what no given row shows."""
    where = "benchmarks/calibration/error_bars.py"
    rows = [row for row in given if row["family"].startswith(PALLAS)]
    wide, causes = _of_few(errors)
    return {
        "seen": {
            "value": sorted({KERNELS[row["family"].removeprefix(PALLAS)] for row in rows}),
            "source": f"patterns of what the kernels of given rows are called: {where}",
        },
        "shown": {
            chip: {
                "value": shown(rows) | ({LATENCY: 1.0} if chip == _WAITING else {}),
                "source": f"the share of each part that {_LEAST_ROWS} of {len(rows)} given rows "
                "reach; what waits for HBM or the matrix units alone plain XLA shows, and for "
                f"latency the matmuls of v5e: {where}",
            }
            for chip in constants.CHIPS
        },
        "shortest step": {
            chip: {"value": _WAITING_STEP_US, "source": "the matmuls of the JAX docs, 525 cycles"}
            if chip == _WAITING
            else {
                "value": round(_shortest(rows), 2),
                "source": f"us, {_LEAST_ROWS} of {len(rows)} given rows have no longer: {where}",
            }
            for chip in constants.CHIPS
        },
        "part": {
            chip: {"value": known, "source": _UNSURE[known]}
            for chip in constants.CHIPS
            for known in [min(_UNSURE) if _knows_latency(chip) else max(_UNSURE)]
        },
        "other": constants.bars()["other"]
        | {
            "never seen": {
                "value": round(wide, 3),
                "source": f"the widest of a chip, times {of_few(causes):.3g} as only {causes} "
                f"different families tell of it: {where}",
            },
            "step": {
                "value": round(_short_steps(rows), 3),
                "source": f"us: the largest error of a step in given rows whose steps take at most "
                f"{_SHORT} times the shortest: {where}",
            },
        },
    }


def _knows_latency(chip: str) -> bool:
    known = json.loads((constants.FOLDER / "hardware.json").read_text())[chip]
    return "read_latency_cycles" in known


def of_few(families: int) -> float:
    """How much wider than for very many: Student's t, errors taken for normal around none. Without
    that, the widest of n families holds n in n + 1, so nine of ten ask for nine families."""
    from scipy.stats import norm, t  # a second, which whoever collects the tests need not wait

    tail = (1 + SHARE) / 2
    return float(t.ppf(tail, families) / norm.ppf(tail))


def _of_few(errors: Errors) -> tuple[float, int]:
    """The bar of kernels of a family never seen, and how many different families make it."""
    kernels = _only(errors, _KERNELS).values()
    causes = len({cause(name) for families in kernels for name in families})
    return max(map(width, kernels)) * of_few(causes), causes


def cause(family: str) -> str:
    """What it computes: families that compute the same fail alike."""
    plain = family.replace("_", " ")
    return next((name for name in _CAUSES if name in plain), family)


def left_out_causes(errors: Errors, rows: Sequence[Row]) -> Iterator[str]:
    """A table: kernels that compute the same, the bar that all others make, and whether given rows
    are within it."""
    yield "| left out | errors | bar without it, median | within |"
    yield "|---|---|---|---|"
    for name, own in sorted(grouped(rows, lambda row: cause(row["family"])).items()):
        others = {
            place: {family: each for family, each in families.items() if cause(family) != name}
            for place, families in _only(errors, _KERNELS).items()
        }
        rest = [row for row in rows if row not in own]
        left = {place: families for place, families in others.items() if families}
        data = constants.bars() | {_KERNELS: _of_kind(_KERNELS, left)} | never_seen(left, rest)
        with patch.object(constants, "bars", return_value=data):
            bars = [with_present_bar(row)["bar"] for row in own]
        within = sum(error_of(row) <= bar for row, bar in zip(own, bars, strict=True))
        yield f"| {name} | {len(own)} | {median(bars):.1%} | {within} |"


def shown(rows: Sequence[Row]) -> dict[str, float]:
    """The share that each part has of the time of enough kernels; from half on it is the whole. Of
    waits for HBM alone plain XLA has rows, its products of the matrix units."""
    shares = [(part, us / _kernel_us(row)) for row in rows for part, us in row["parts_us"].items()]
    most = {
        part: round(sorted(each)[-min(len(each), _LEAST_ROWS)], 3)
        for part, each in _grouped_values(shares).items()
    }
    known = [part for part in PARTS if part in most and part != XLA]
    whole = {part for part in known if most[part] > _MOSTLY} | {HBM, MATRIX}
    return {part: 1.0 if part in whole else most[part] for part in known}


def _shortest(rows: Sequence[Row]) -> float:
    """The grid step that enough kernels have no longer ones than."""
    return sorted(map(step_us, rows))[min(len(rows), _LEAST_ROWS) - 1]


def step_us(row: Row) -> float:
    return _kernel_us(row) / int(row["steps"])


def _short_steps(rows: Sequence[Row]) -> float:
    short = [row for row in rows if step_us(row) <= _SHORT * _shortest(rows)]
    return max(error_of(row) * float(row["estimate_us"]) / int(row["steps"]) for row in short)


def _kernel_us(row: Row) -> float:
    return float(row["estimate_us"]) - float(row.get("xla_us", 0.0))


def _mean_bar(given: Sequence[Row], unsure: Unsure) -> float:
    rows = [row for row in given if not row["family"].startswith(PALLAS)]
    bars = _of_kind(_XLA, _new(rows, (), unsure))
    return float(mean(unsure.bar(row, bars[row["chip"]]["value"]) for row in rows))


def _only(errors: Errors, kind: str) -> Errors:
    return {place: families for place, families in errors.items() if place[0] == kind}


def _of_kind(kind: str, errors: Errors) -> dict[str, dict[str, Any]]:
    """Programs of XLA differ more by what they do than by chip: no chip has a bar of its own. With
    one for each chip fewer held rows of families never seen were within (docs/results)."""
    factor = caution(errors)
    chips = {chip: families for (_, chip), families in errors.items()}
    everywhere = max(width(families) for families in chips.values())
    enough = _FEWEST_FAMILIES if kind == _KERNELS else math.inf
    return {
        chip: _entry(chips.get(chip, {}), factor, everywhere, enough) for chip in constants.CHIPS
    }


def _entry(
    families: Mapping[str, Sequence[float]], factor: float, everywhere: float, enough: float
) -> dict[str, Any]:
    """Fewer families than are ``enough`` say too little of others: no narrower than the widest of
    all chips."""
    known = width(families) if families else 0.0
    used = max(known, everywhere) if len(families) < enough else known
    return {
        "value": round(used * factor, 3),
        "source": f"nine of ten of {sum(map(len, families.values()))} times of "
        f"{len(families)} families ({known:.1%}; of the widest chip {everywhere:.1%}), times "
        f"{factor:g}: benchmarks/calibration/error_bars.py",
        "families": {
            name: round(quantile(sorted(chosen), SHARE), 3) for name, chosen in families.items()
        },
    }


def coverage(errors: Errors) -> Iterator[str]:
    """A table: each family, the bar that the others make without it, and its rows within."""
    yield "| kind | chip | family | errors | bar without it | within |"
    yield "|---|---|---|---|---|---|"
    for kind, chip, family, wide, ratios in left_out(errors):
        factor = caution(_only(errors, kind))
        within = sum(ratio <= factor for ratio in ratios)
        name = family.removeprefix(PALLAS)
        yield f"| {kind} | {chip} | {name} | {len(ratios)} | {factor * wide:.1%} | {within} |"


def _given(rows: Sequence[Row]) -> list[Row]:
    """Those that may be chosen on."""
    given = [row for row in rows if row["side"] == GIVEN and "tuned" not in row]
    barred = [row for row in given if row.get("bar") is not None and is_measured(row)]
    return [row for row in barred if row["family"] != _NO_CONFIG or "made_mb" in row]


def _errors(given: Sequence[Row], pairs: Sequence[Pair], unsure: Unsure) -> Errors:
    """Of given rows, of what the ``published_*`` benchmarks saved, and where neither has a family,
    the width that the data file has of it."""
    new = _new(given, pairs, unsure)
    known = {
        (kind, chip): {name: [wide] for name, wide in entry["families"].items()}
        for kind in (_KERNELS, _XLA)
        for chip, entry in constants.bars()[kind].items()
    }
    errors = {place: known.get(place, {}) | new.get(place, {}) for place in known | new}
    return {place: families for place, families in errors.items() if families}


def _new(
    given: Sequence[Row], pairs: Sequence[Pair], unsure: Unsure
) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Of XLA as if all were products."""
    new = [(_kind(pair.family), pair.chip, pair.family, _own(pair)[1]) for pair in _sure(pairs)]
    for row in given:
        is_kernel = row["family"].startswith(PALLAS)
        error = error_of(row) if is_kernel else unsure.of_products(row)
        new.append((_KERNELS if is_kernel else _XLA, row["chip"], row["family"], error))
    errors: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (kind, chip, family), chosen in grouped(new, lambda item: item[:3]).items():
        errors.setdefault((kind, chip), {})[family] = [error for *_, error in chosen]
    return errors


def _kind(family: str) -> str:
    return _XLA if family.startswith("XLA") else _KERNELS


def _sure(pairs: Sequence[Pair]) -> list[Pair]:
    known = [pair for pair in pairs if pair.overhead_us < _LARGEST_OVERHEAD * pair.measured_us]
    return [pair for pair in known if pair.subset != _AGREEING]


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
