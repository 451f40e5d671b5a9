"""How far are estimates from libtpu's own, on kernels that no constant was fitted on?

    python -m benchmarks.calibration.corpus --chips v5e,v5p,v6e      # once: listings and references
    python -m benchmarks accuracy [--published DIR] [--write]

The held-out sweeps of ``benchmarks/calibration/samples.py``, as libtpu counts (each DMA alone).
Ranks and regret are within a sweep: the regret is what the config with the best estimate costs more
than the best. ``--published`` reads what the ``published_*`` benchmarks saved: times of others on
real TPUs. ``--write`` writes the tables to docs/results/accuracy.md; the error bars of the product
are made by ``benchmarks.calibration.error_bars``.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.calibration import agreement
from benchmarks.calibration.agreement import Pair, kendall, p90
from benchmarks.calibration.corpus import DEFAULT_FOLDER
from benchmarks.calibration.held_out import HeldOutPoint, compare, grouped, problem_of, sweep_of
from benchmarks.harness.documents import show

# libtpu's own estimate is wrong there, not ours.
# Counted all the same: docs/results/accuracy.md.
_DOUBTED = {
    ("v5e", "flash 1x2x4096x128 bfloat16 causal"): "integer division in the index map",
    ("v7x", "flash 1x4x1024x64 bfloat16"): "masked matmuls without latency",
    ("v7x", "flash 1x8x2048x64 bfloat16"): "masked matmuls without latency",
    ("v7x", "emitted 4096x1024 float32"): "5,942 cycles a step for 128 KiB, 2,280 for 2 MiB",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--published", type=Path, help="folder of saved pairs")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows, refused = compare(args.folder)
    pairs = agreement.load_all(args.published)
    tables = "\n".join(
        [*_summary(rows, refused), *_families(rows), *_sweeps(rows), *_hardware(pairs)]
    )
    show(tables, "results/accuracy.md", "accuracy", write=args.write)


def _summary(rows: Sequence[HeldOutPoint], refused: int) -> Iterable[str]:
    yield f"### Against libtpu's static estimate: {len(rows)} points held out, {refused} refused\n"
    yield "| chip | libtpu | points | median error | p90 | worst |"
    yield "|---|---|---|---|---|---|"
    groups = grouped(rows, lambda row: (row.chip, row.libtpu))
    for (chip, libtpu), chosen in groups.items():
        yield f"| {chip} | {libtpu} | {_errors(chosen)} |"
    yield f"| all | | {_errors(rows)} |\n"


def _errors(rows: Sequence[HeldOutPoint]) -> str:
    errors = sorted(row.error for row in rows)
    return f"{len(rows)} | {median(errors):.2%} | {p90(errors):.1%} | {errors[-1]:.1%}"


def _families(rows: Sequence[HeldOutPoint]) -> Iterable[str]:
    yield "| family | points | median error | p90 | worst |"
    yield "|---|---|---|---|---|"
    for family, chosen in grouped(rows, lambda row: row.family).items():
        yield f"| {family} | {_errors(chosen)} |"
    yield ""


def _sweeps(rows: Sequence[HeldOutPoint]) -> Iterable[str]:
    """Kendall and regret; each sweep that is not perfect has a line."""
    groups = grouped(rows, sweep_of)
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


def _whole(pair: Pair) -> tuple[str, str, str]:
    return pair.chip, pair.subset, pair.family


def _part(pair: Pair) -> tuple[str, str, str]:
    return pair.chip, *problem_of(pair)


def _hardware(pairs: Sequence[Pair]) -> Iterable[str]:
    if not pairs:
        return
    yield "### Against times that others measured on real TPUs\n"
    yield "| chip | what | rows | median error | p90 | worst | mean ratio | Spearman |"
    yield "|---|---|---|---|---|---|---|---|"
    for (chip, subset, group), chosen in (grouped(pairs, _whole) | grouped(pairs, _part)).items():
        errors = sorted(abs(pair.ratio - 1) for pair in chosen)
        mean = sum(pair.ratio for pair in chosen) / len(chosen)
        yield (
            f"| {chip} | {subset} {group} | {len(chosen)} | {median(errors):.1%} | "
            f"{p90(errors):.1%} | {errors[-1]:.1%} | {mean:.3f} | "
            f"{agreement.spearman(chosen):.3f} |"
        )
    yield ""
