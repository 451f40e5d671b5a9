"""How far estimates are from libtpu's own, on kernels that no constant was fitted on.

    .venv/bin/python benchmarks/corpus.py --chips v5e,v5p,v6e      # once: listings and references
    .venv/bin/python benchmarks/accuracy.py [--published DIR] [--write]

The held-out sweeps of ``samples.py``, as libtpu counts (each DMA alone). Ranks and regret are
within a sweep: the regret is what the config with the best estimate costs more than the best.
``--published`` reads what the ``published_*.py`` scripts saved: times of others on real TPUs.
``--write`` writes the tables to docs/accuracy.md and the error bars to the simulator's data.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from statistics import median

from autotune.cost_model.estimate import limited_by
from autotune.simulator import Refusal, constants, simulate
from benchmarks import agreement
from benchmarks.agreement import Pair, kendall, p90, quantile
from benchmarks.corpus import CHIPS, DEFAULT_FOLDER, Reference, load
from benchmarks.samples import SWEEPS

_DOCUMENT = Path(__file__).parents[1] / "docs" / "accuracy.md"
_MARK = "<!-- tables: benchmarks/accuracy.py --write -->"
_HELD_OUT = {sweep.name for sweep in SWEEPS}
_SAME_PROBLEM = ("jaxdocs_matmul_v5e", "tunejax_splash_v5e")  # several configs of one problem
# Another reading of times that are counted as "as_read", and the one that agrees: not in the bars.
_AGREEING = "tunejax_splash_v5e arrays=as_made"
_LARGEST_OVERHEAD = 0.2  # of a measured time: what the host adds is known too roughly beyond
_MEASURED = "measured on a real v5e (published; some constants were chosen on them)"
_CAUTION = 2  # for a kind of kernel that was not measured
_LEAST_ROWS = 5  # measured rows of a kind that an error bar needs

# libtpu's own estimate is wrong there, not ours; see docs/accuracy.md. Counted all the same.
_DOUBTED = {
    ("v5e", "flash 1x2x4096x128 bfloat16 causal"): "integer division in the index map",
    ("v7x", "flash 1x4x1024x64 bfloat16"): "masked matmuls without latency",
    ("v7x", "flash 1x8x2048x64 bfloat16"): "masked matmuls without latency",
    ("v7x", "emitted 4096x1024 float32"): "5,942 cycles a step for 128 KiB, 2,280 for 2 MiB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point: what it is, and our cycles against libtpu's."""

    chip: str
    libtpu: str
    sweep: str
    family: str
    pair: Pair

    @property
    def error(self) -> float:
        return abs(self.pair.ratio - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--published", type=Path, help="folder of saved pairs")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    references = [r for chip in CHIPS for r in load(args.folder, chip) if _is_held_out(r)]
    with ProcessPoolExecutor(2) as workers:
        found = list(workers.map(_row, references, chunksize=8))
    rows = [row for row in found if row is not None]
    files = sorted(args.published.glob("*.json")) if args.published else []
    pairs = [pair for file in files for pair in agreement.load(file)]
    tables = "\n".join(
        [
            *_summary(rows, len(found) - len(rows)),
            *_families(rows),
            *_sweeps(rows),
            *_hardware(pairs),
        ]
    )
    print(tables)
    if args.write:
        text = _DOCUMENT.read_text().partition(_MARK)[0]
        _DOCUMENT.write_text(f"{text}{_MARK}\n\n{tables}\n")
        _write_errors(rows, pairs)


def _is_held_out(reference: Reference) -> bool:
    return reference.sample.sweep.name in _HELD_OUT


def _row(reference: Reference) -> Row | None:
    """None where the listing is refused."""
    result = simulate(reference.listing(), chip=reference.chip, libtpu=reference.libtpu)
    if isinstance(result, Refusal):
        return None
    sweep = reference.sample.sweep
    return Row(
        chip=reference.chip,
        libtpu=reference.libtpu,
        sweep=sweep.name,
        family=sweep.family,
        pair=Pair(
            subset="libtpu",
            group=reference.sample.name,
            limited_by=limited_by(result.parts),
            measured_us=reference.cycles / result.clock_hz * 1e6,
            estimated_us=result.us_independent,
        ),
    )


def _summary(rows: Sequence[Row], refused: int) -> Iterable[str]:
    yield f"### Against libtpu's static estimate: {len(rows)} points held out, {refused} refused\n"
    yield "| chip | libtpu | points | median error | p90 | worst |"
    yield "|---|---|---|---|---|---|"
    groups = _grouped(rows, lambda row: (row.chip, row.libtpu))
    for (chip, libtpu), chosen in groups.items():
        yield f"| {chip} | {libtpu} | {_errors(chosen)} |"
    yield f"| all | | {_errors(rows)} |\n"


def _errors(rows: Sequence[Row]) -> str:
    errors = sorted(row.error for row in rows)
    return f"{len(rows)} | {median(errors):.2%} | {p90(errors):.1%} | {errors[-1]:.1%}"


def _families(rows: Sequence[Row]) -> Iterable[str]:
    yield "| family | points | median error | p90 | worst |"
    yield "|---|---|---|---|---|"
    for family, chosen in _grouped(rows, lambda row: row.family).items():
        yield f"| {family} | {_errors(chosen)} |"
    yield ""


def _sweeps(rows: Sequence[Row]) -> Iterable[str]:
    """Kendall and regret; each sweep that is not perfect has a line."""
    groups = _grouped(rows, lambda row: (row.chip, row.libtpu, row.sweep))
    sweeps = {name: [row.pair for row in chosen] for name, chosen in groups.items()}
    ranked = {name: kendall(pairs) for name, pairs in sweeps.items() if len(pairs) > 1}
    regrets = {name: _regret(sweeps[name]) for name in ranked}
    good = sum(value >= 0.95 for value in ranked.values())
    cheap = sum(value <= 0.01 for value in regrets.values())
    yield f"### Order within {len(ranked)} sweeps\n"
    yield (
        f"Kendall at least 0.95 in {good}, regret at most 1 % in {cheap}; median Kendall "
        f"{median(ranked.values()):.2f}, worst regret {max(regrets.values()):.1%}.\n"
    )
    if good == cheap == len(ranked):
        return
    yield "The others:\n"
    yield "| chip, libtpu | sweep | points | Kendall | widest wrong pair | regret | doubt |"
    yield "|---|---|---|---|---|---|---|"
    for name, value in ranked.items():
        if value < 0.95 or regrets[name] > 0.01:
            chip, libtpu, sweep = name
            doubt = _DOUBTED.get((chip, sweep), "")
            yield (
                f"| {chip}, {libtpu} | {sweep} | {len(sweeps[name])} | {value:.2f} | "
                f"{_widest_wrong(sweeps[name])} | {regrets[name]:.1%} | {doubt} |"
            )
    yield ""


def _regret(pairs: Sequence[Pair]) -> float:
    chosen = min(pairs, key=lambda pair: pair.estimated_us)
    return chosen.measured_us / min(pair.measured_us for pair in pairs) - 1


def _widest_wrong(pairs: Sequence[Pair]) -> str:
    """How far apart the two of a wrongly ordered pair are at most."""
    wrong = [
        b.measured_us / a.measured_us - 1
        for a in pairs
        for b in pairs
        if a.measured_us < b.measured_us and a.estimated_us > b.estimated_us
    ]
    return f"{max(wrong):.1%} apart" if wrong else "a tie estimated"


def _hardware(pairs: Sequence[Pair]) -> Iterable[str]:
    if not pairs:
        return
    yield "### Against times that others measured on a real v5e\n"
    yield "| what | rows | median error | p90 | worst | mean ratio | Spearman |"
    yield "|---|---|---|---|---|---|---|"
    whole = {(subset, "all"): list(p) for subset, p in _grouped(pairs, _subset).items()}
    for (subset, group), chosen in {**whole, **_grouped(pairs, _problem)}.items():
        errors = sorted(abs(pair.ratio - 1) for pair in chosen)
        mean = sum(pair.ratio for pair in chosen) / len(chosen)
        yield (
            f"| {subset} {group} | {len(chosen)} | {median(errors):.1%} | {p90(errors):.1%} | "
            f"{errors[-1]:.1%} | {mean:.3f} | {agreement.spearman(chosen):.3f} |"
        )
    yield ""


def _write_errors(rows: Sequence[Row], pairs: Sequence[Pair]) -> None:
    """Error bars (nine of ten stay within) and resolutions (three of four), by what limits."""
    differences = [
        found for group in _grouped(rows, _sweep).values() for found in _differences(group)
    ]
    known = [pair for pair in pairs if pair.overhead_us < _LARGEST_OVERHEAD * pair.measured_us]
    sure = [pair for pair in known if pair.subset != _AGREEING]
    same = [pair for pair in sure if pair.subset.startswith(_SAME_PROBLEM)]
    real = [d for group in _grouped(same, _problem).values() for d in _differences(group)]
    path = constants.FOLDER / "errors.json"
    own = [_own(row.pair) for row in rows], [_own(pair) for pair in sure]
    bars = {"error": _bars(*own, 0.9), "resolution": _bars(differences, real, 0.75)}
    path.write_text(json.dumps(bars, indent=2) + "\n")


def _subset(pair: Pair) -> str:
    return pair.subset


def _sweep(row: Row) -> tuple[str, ...]:
    return row.chip, row.libtpu, row.sweep


def _problem(pair: Pair) -> tuple[str, ...]:
    return pair.subset, "all" if pair.subset.startswith("tunejax") else pair.group


def _own(pair: Pair) -> tuple[str, float]:
    return pair.limited_by, abs(pair.kernel_ratio - 1)


def _differences(group: Sequence[Row] | Sequence[Pair]) -> Iterable[tuple[str, float]]:
    """By how much the ratio of two configs of one problem is wrong, under what limits either."""
    pairs = [item.pair if isinstance(item, Row) else item for item in group]
    for a, b in combinations(pairs, 2):
        wrong = agreement.ratio_error(a, b)
        yield from ((kind, wrong) for kind in {a.limited_by, b.limited_by})


def _bars(
    model: Iterable[tuple[str, float]], real: Iterable[tuple[str, float]], share: float
) -> dict[str, dict[str, object]]:
    """The widest of three: against libtpu, against all that was measured, and, where enough rows
    are of the kind, against those; twice the second where they are too few."""
    modelled, measured = _grouped_values(model), _grouped_values(real)
    everything = sorted({error for errors in measured.values() for error in errors})
    bars: dict[str, dict[str, object]] = {}
    for kind, errors in modelled.items():
        own = sorted(measured.get(kind, []))
        found = [(quantile(sorted(errors), share), f"{len(errors)} held out, against libtpu")]
        if everything:
            factor = 1 if len(own) >= _LEAST_ROWS else _CAUTION
            note = f"{len(everything)} {_MEASURED}" + (f", times {factor}" if factor > 1 else "")
            found.append((factor * quantile(everything, share), note))
        if len(own) >= _LEAST_ROWS:
            found.append((quantile(own, share), f"{len(own)} of this kind {_MEASURED}"))
        bar, source = max(found)
        bars[kind] = {"value": round(bar, 3), "source": f"{share:.0%} of {source}: accuracy.py"}
    return bars


def _grouped_values(items: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    return {kind: [v for _, v in found] for kind, found in _grouped(items, itemgetter(0)).items()}


def _grouped(items, key):  # type: ignore[no-untyped-def]
    found = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


if __name__ == "__main__":
    main()
