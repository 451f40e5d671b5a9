"""The error bars of estimates, from rows that were timed on real chips.

    python -m benchmarks published --python PYTHON --rows 400
    python -m benchmarks.calibration.error_bars [--rows FILE] [--published DIR] [--write]

DIR holds what the ``published_*`` benchmarks saved; families that are in neither keep the width
that the data file has. ``--write`` makes the simulator's data file; without the corpus
(``benchmarks.calibration.corpus``) or DIR the resolutions stay. What the bars cover is judged on
problems, families, causes and kinds of operations that were left out of them.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import ceil, hypot, sqrt
from operator import itemgetter
from pathlib import Path
from statistics import NormalDist, mean, median
from typing import Any, NamedTuple
from unittest.mock import patch

from autotune.domain.explanation import HBM, LATENCY, MATRIX, PARTS, XLA
from autotune.estimating.cost_model.error_bars import (
    ROUNDING,
    SHARE,
    nine_of_ten,
    quantile,
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
_CAUTION = 2  # for a kind of kernel that was not measured
_LEAST_ROWS = 5  # measured rows of a kind that an error bar needs
_ELSEWHERE, _ANY = 2.0, 1.0  # rows (causes) that other chips count as together, and all there are
_MORE_US = (0.0, 0.02, 0.05, 0.1, 0.2)  # what each operation of XLA may take beside
_NO_CONFIG = "xla_chunked_dot_product_attention"  # which chunk was measured, its memory alone says
_CAUSES = ("attention", "ragged dot", "cross entropy", "matmul")  # families that are the same to us
_UNSURE = {  # a part beyond what given rows show, where the latency of reads was measured and not
    0.2: "what a read takes beside its bytes is 0.8 to 1.0 us on the three chips where rows say it",
    0.41: "libtpu's own read latency makes the 128-row blocks of the JAX docs on v5e so much too "
    "slow (docs/explanation/simulator.md: latency)",
}
_WAITING, _WAITING_STEP_US = "v5e", 0.35  # where short steps that wait for reads were timed
_MOSTLY = 0.5  # of a time: such a part is known
_TOO_WIDE, _SHORT = 2, 2  # times what nine of ten errors of a family are; times the shortest step
_WHERE = "benchmarks/calibration/error_bars.py"


Families = Mapping[str, Mapping[str, Sequence[float]]]
"""Of kernels: the errors of each family, by chip."""


class Timed(NamedTuple):
    """A row of ``shares`` of kinds: of what its kernel is called, or of operations of XLA."""

    chip: str
    shares: Mapping[str, float]
    error: float


class Chosen(NamedTuple):
    """Microseconds that each operation of XLA may take beside, and how many times as wide bars are
    made, for nine of ten rows to be within bars that are made without them."""

    operation_us: float
    kernels: float = 1.0
    xla: float = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--rows", type=Path, default=ROWS, help="of benchmarks published")
    parser.add_argument("--model", default=MODEL, help="of time, that estimated the rows")
    parser.add_argument("--published", type=Path, help="folder of saved pairs")
    parser.add_argument("--write", action="store_true", help="make the data file")
    args = parser.parse_args()
    pairs = load_all(args.published)
    rows = compare(args.folder)[0] if args.folder.is_dir() and pairs else []
    given = given_of(newest(args.rows, args.model))
    if not given:
        sys.exit(f"no given row of {args.model} in {args.rows}: say which with --model")
    saved = saved_errors(pairs)
    chosen = choose(given, saved)
    print("\n".join(tables(given, saved, chosen)), file=sys.stderr)
    data = made(given, saved, chosen) | (resolutions(rows, pairs) if rows else {})
    text = json.dumps(data, indent=2) + "\n"
    print(text, end="")
    if args.write:
        (constants.FOLDER / "errors.json").write_text(text)


def made(given: Sequence[Row], saved: Families, chosen: Chosen) -> dict[str, Any]:
    """The data file, of these rows."""
    kernels, plain = _of_kernels(given), [row for row in given if not _is_kernel(row)]
    called = [Timed(row["chip"], {_pattern(row): 1.0}, error_of(row)) for row in kernels]
    kinds = [_of_xla(row, chosen.operation_us) for row in plain]
    bars, causes = constants.bars(), len({cause(family(row)) for row in plain})
    wider = chosen.xla * of_few(max(1, causes))
    known = _joined(saved, kernels)
    few = of_few(len({cause(name) for families in known.values() for name in families}))
    told = {
        "kernels": _table(called, few * chosen.kernels, "kernels that are called so"),
        "families": {
            "value": {chip: _spreads(families) for chip, families in saved.items()},
            "source": f"root mean square error of kernels that are not in these rows: {_WHERE}",
        },
    }
    other = bars["other"]
    if plain:  # rows of kernels alone leave these bars as they are
        why = f"as only {len(_kinds(kinds))} kinds tell, times"
        new_kind = _everywhere(kinds, of_few(len(_kinds(kinds))) * wider, why)
        other = other | {"new kind": new_kind}
        told |= {
            "XLA": _everywhere(kinds, wider, f"as only {causes} different families tell, times"),
            "timed_kinds": {
                "value": [*_kinds(kinds)],
                "source": f"of what a row or more of {len(plain)} spend their time on: {_WHERE}",
            },
            "operation_us": {
                "value": round(chosen.operation_us * chosen.xla, 3),
                "source": f"us: {chosen.operation_us:g}, with which the bars of {len(plain)} rows "
                f"are narrowest, times {chosen.xla:g}: {_WHERE}",
            },
        }
    if kernels:
        more = never_seen(known, kernels)
        told, other = told | more, other | more["other"]
    return bars | told | {"other": other}


def _everywhere(rows: Sequence[Timed], factor: float, why: str) -> dict[str, Any]:
    """One bar of XLA on all chips: by chip, by kind or by both it is wider, to hold as often."""
    wide = nine_of_ten((row.error, 1.0) for row in rows) if rows else 0.0
    source = f"nine of ten of {len(rows)} rows, {why} {factor:.3g}: {_WHERE}"
    return {"value": _up(factor * wide, 4), "source": source}


def _spreads(families: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(hypot(*each) / sqrt(len(each)), 4) for name, each in families.items()}


def _table(rows: Sequence[Timed], factor: float, what: str) -> dict[str, Any]:
    """Of the chips where a row or more are of a kind."""
    return {
        "value": {
            kind: {chip: _up(factor * bar_of(rows, kind, chip), 3) for chip in chips}
            for kind, chips in _kinds(rows).items()
        },
        "source": f"what nine of ten of {len(rows)} rows stay within, of {what}; those of other "
        f"chips count as {_ELSEWHERE:g}, all that there are as {_ANY:g}; times {factor:.3g}: "
        f"{_WHERE}",
    }


def _kinds(rows: Sequence[Timed]) -> dict[str, list[str]]:
    """The kinds that a row or more are of, each with the chips that is so on."""
    places: dict[str, dict[str, float]] = {}
    for row in rows:
        for kind, share in row.shares.items():
            chips = places.setdefault(kind, dict.fromkeys(constants.CHIPS, 0.0))
            chips[row.chip] += share
    return {
        kind: [chip for chip in chips if chips[chip] >= 1 - ROUNDING]
        for kind, chips in sorted(places.items())
        if sum(chips.values()) >= 1 - ROUNDING
    }


def bar_of(rows: Sequence[Timed], kind: str, chip: str) -> float:
    """What nine of ten rows of a kind stay within there: of fewer, others count for more."""
    elsewhere = sum(row.shares.get(kind, 0.0) for row in rows if row.chip != chip)
    less = min(1.0, _ELSEWHERE / elsewhere) if elsewhere else 0.0
    return nine_of_ten(
        (
            row.error,
            row.shares.get(kind, 0.0) * (1.0 if row.chip == chip else less) + _ANY / len(rows),
        )
        for row in rows
    )


def _of_xla(row: Row, operation_us: float) -> Timed:
    """Without what its operations may take beside."""
    by_kind = row.get("by_kind", {})
    whole_us = sum(by_kind.values()) or 1.0
    shares = {kind: us / whole_us for kind, us in by_kind.items()}
    more = operation_us * row.get("operations_run", 0) / row["estimate_us"]
    return Timed(row["chip"], shares, sqrt(max(0.0, error_of(row) ** 2 - more**2)))


def choose(given: Sequence[Row], saved: Families) -> Chosen:
    """Nine of ten rows are within bars that are made without their problem, those of XLA within
    such without their family, too; of what does that, the narrowest."""
    plain = [row for row in given if not _is_kernel(row)]
    ways: list[tuple[float, Chosen]] = []
    for us in _MORE_US:
        left = [[*left_out(plain, saved, Chosen(us), key)] for key in (problem, family)]
        factor = max(map(_factor, left))
        bars = [factor * row["bar"] for rows in left for row in rows]
        ways.append((mean(bars or [0.0]), Chosen(us, xla=factor)))
    best = min(ways)[1]
    return best._replace(kernels=_factor(_of_kernels([*left_out(given, saved, best, problem)])))


def _factor(rows: Sequence[Row]) -> float:
    """The smallest, of two digits, that bars are to be wider by for nine of ten to be within."""
    asked = sorted(error_of(row) / row["bar"] for row in rows) or [1.0]
    return _up(max(1.0, quantile(asked, SHARE)), 2)


def _up(value: float, digits: int) -> float:
    return float(ceil(10**digits * value - ROUNDING) / 10**digits)


def left_out(
    given: Sequence[Row], saved: Families, chosen: Chosen, key: Callable[[Row], str]
) -> Iterator[Row]:
    """Each row, with the bar that all those make which have another key."""
    for name, own in grouped(given, key).items():
        rest = [row for row in given if key(row) != name]
        others = {
            chip: {f: errors for f, errors in families.items() if name not in (chip, cause(f))}
            for chip, families in saved.items()
        }
        with patch.object(constants, "bars", return_value=made(rest, others, chosen)):
            yield from [*map(with_present_bar, own)]


def tables(given: Sequence[Row], saved: Families, chosen: Chosen) -> Iterator[str]:
    """What rows are within that had no part in their bar. One is too wide that is more than twice
    what nine of ten errors are within."""
    plain = [row for row in given if not _is_kernel(row)]
    yield "| left out | of | rows | within | nine of ten errors | bar, median | too wide |"
    yield "|---|---|---|---|---|---|---|"
    for what, rows, key in (
        ("problem", given, problem),
        ("cause", _of_kernels(given), lambda row: cause(family(row))),
        ("chip", given, itemgetter("chip")),
        ("family", plain, family),
        ("kind", plain, main_kind),
    ):
        left = [*left_out(rows, saved, chosen, key)]
        groups = grouped(left, family if key is problem else key)
        for name, own in sorted(groups.items()):
            yield f"| {what} | {name or 'arithmetic and moves'} | {_cells(own)} |"
        for is_kernel, all_of in sorted(grouped(left, _is_kernel).items()):
            yield f"| {what} | **{'kernels' if is_kernel else 'XLA'}** | {_cells(all_of)} |"


def _cells(rows: Sequence[Row]) -> str:
    within = sum(error_of(row) <= row["bar"] for row in rows)
    most, wide = quantile(sorted(map(error_of, rows)), SHARE), median(row["bar"] for row in rows)
    too_wide = "yes" if wide > _TOO_WIDE * most else ""
    return f"{len(rows)} | {within} | {most:.1%} | {wide:.1%} | {too_wide}"


def problem(row: Row) -> str:
    return json.dumps(row["problem"], sort_keys=True)


def family(row: Row) -> str:
    return str(row["family"])


def main_kind(row: Row) -> str:
    shares = _of_xla(row, 0.0).shares
    return max(shares, key=lambda kind: shares[kind], default="")


def _is_kernel(row: Row) -> bool:
    return family(row).startswith(PALLAS)


def _of_kernels(given: Sequence[Row]) -> list[Row]:
    return [row for row in given if _is_kernel(row)]


def _pattern(row: Row) -> str:
    return KERNELS[family(row).removeprefix(PALLAS)]


def never_seen(errors: Families, rows: Sequence[Row]) -> dict[str, Any]:
    """The bar of kernels of other families, and what makes it wider: what no given row shows."""
    by_cause = f"Student's t by cause, other chips together as {_ELSEWHERE:g} causes: {_WHERE}"
    return {
        "never seen": {
            chip: {"value": round(new_cause(errors, chip), 3), "source": by_cause}
            for chip in constants.CHIPS
        },
        "shown": {
            chip: {
                "value": shown(rows) | ({LATENCY: 1.0} if chip == _WAITING else {}),
                "source": f"the share of each part that {_LEAST_ROWS} of {len(rows)} given rows "
                "reach; what waits for HBM or the matrix units alone plain XLA shows, and for "
                f"latency the matmuls of v5e: {_WHERE}",
            }
            for chip in constants.CHIPS
        },
        "shortest step": {
            chip: {"value": _WAITING_STEP_US, "source": "the matmuls of the JAX docs, 525 cycles"}
            if chip == _WAITING
            else {
                "value": round(_shortest(rows), 2),
                "source": f"us, {_LEAST_ROWS} of {len(rows)} given rows have no longer: {_WHERE}",
            }
            for chip in constants.CHIPS
        },
        "part": {
            chip: {"value": known, "source": _UNSURE[known]}
            for chip in constants.CHIPS
            for known in [min(_UNSURE) if _knows_latency(chip) else max(_UNSURE)]
        },
        "other": {
            "step": {
                "value": round(_short_steps(rows), 3),
                "source": f"us: nine of ten errors of a step, of given rows with steps of at most "
                f"{_SHORT} times the shortest: {_WHERE}",
            },
        },
    }


def _knows_latency(chip: str) -> bool:
    known = json.loads((constants.FOLDER / "hardware.json").read_text())[chip]
    return "read_latency_cycles" in known


def new_cause(errors: Families, chip: str) -> float:
    """What nine of ten errors of another cause stay within there; the widest where none is. Each
    cause counts once, with its mean square; what others show elsewhere counts as few. Rates and
    the costs of a step were chosen on these causes as a line is: two degrees less."""
    squares: dict[str, dict[str, float]] = {}
    for place, families in errors.items():
        for name, own in grouped(families, cause).items():
            each = [error**2 for family in own for error in families[family]]
            squares.setdefault(name, {})[place] = mean(each)
    here = [of[chip] for of in squares.values() if chip in of]
    if not here:
        return max(new_cause(errors, other) for other in errors)
    others = [[v for place, v in of.items() if place != chip] for of in squares.values()]
    elsewhere = mean([mean(of) for of in others if of] or here)
    square = (sum(here) + _ELSEWHERE * elsewhere) / (len(here) + _ELSEWHERE)
    degrees = max(1, len(squares) - 2)
    return student(degrees) * sqrt(square * (len(squares) + 1) / degrees)


def of_few(families: int) -> float:
    """How much wider than for very many: Student's t, errors taken for normal around none. Without
    that, the widest of n families holds n in n + 1, so nine of ten ask for nine families."""
    return student(families) / NormalDist().inv_cdf((1 + SHARE) / 2)


def student(degrees: int) -> float:
    from scipy.stats import t  # a second, which whoever collects the tests need not wait

    return float(t.ppf((1 + SHARE) / 2, degrees))


def cause(family: str) -> str:
    """What it computes: families that compute the same fail alike."""
    plain = family.replace("_", " ")
    return next((name for name in _CAUSES if name in plain), family)


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


def _kernel_us(row: Row) -> float:
    return float(row["estimate_us"]) - float(row.get("xla_us", 0.0))


def step_us(row: Row) -> float:
    return _kernel_us(row) / int(row["steps"])


def _short_steps(rows: Sequence[Row]) -> float:
    short = [row for row in rows if step_us(row) <= _SHORT * _shortest(rows)]
    errors = [error_of(row) * float(row["estimate_us"]) / int(row["steps"]) for row in short]
    return quantile(sorted(errors), SHARE)


def given_of(rows: Sequence[Row]) -> list[Row]:
    """Those that may be chosen on."""
    given = [row for row in rows if row["side"] == GIVEN and "tuned" not in row]
    barred = [row for row in given if row.get("bar") is not None and is_measured(row)]
    return [row for row in barred if row["family"] != _NO_CONFIG or "made_mb" in row]


def saved_errors(pairs: Sequence[Pair]) -> Families:
    """Of kernels, as the ``published_*`` benchmarks saved them; where they did not, the width that
    the data file has of a family."""
    known = {
        chip: {name: [wide] for name, wide in families.items()}
        for chip, families in constants.bars()["families"]["value"].items()
    }
    kernels = [pair for pair in _sure(pairs) if not pair.family.startswith("XLA")]
    new = [(pair.chip, pair.family, abs(pair.kernel_ratio - 1)) for pair in kernels]
    return _with(known, new)


def _joined(saved: Families, kernels: Sequence[Row]) -> Families:
    return _with(saved, [(row["chip"], family(row), error_of(row)) for row in kernels])


def _with(known: Families, new: Sequence[tuple[str, str, float]]) -> Families:
    errors = {chip: dict(families) for chip, families in known.items()}
    for (chip, name), chosen in grouped(new, lambda item: item[:2]).items():
        errors.setdefault(chip, {})[name] = [error for *_, error in chosen]
    return {chip: families for chip, families in errors.items() if families}


def resolutions(rows: Sequence[HeldOutPoint], pairs: Sequence[Pair]) -> dict[str, object]:
    """By how much two configs of one problem are to differ (three of four), by what limits."""
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
    return {"resolution": _bars(differences, real, 0.75, most)}


def _sure(pairs: Sequence[Pair]) -> list[Pair]:
    known = [pair for pair in pairs if pair.overhead_us < _LARGEST_OVERHEAD * pair.measured_us]
    return [pair for pair in known if pair.subset != _AGREEING]


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
