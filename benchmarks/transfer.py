"""How many compiles does a problem need once others of its kernel are known?

    python -m benchmarks transfer [--kernels matmul] [--chips v5e] [--count 6] [--check 3]

Problems of sizes drawn log-uniformly, ragged ones included, are searched one after the other with
the real compiler and one database, as `autotune search` does. Of some after the third, drawn at
random, every candidate is compiled: how far the winner is from the best, how far the default is
from what was predicted of it, and after how many compiles a search came within 3 % of the best,
warm and cold. A hundred: --kernels matmul,flash_attention --chips v5e --count 100 --check 10; a run
that was interrupted goes on with the same --db. Exit code 1 when a bar is missed.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from rich.console import Console
from rich.table import Table as Columns

from autotune.compiling.pool import CompilerPool
from autotune.domain.comparison import expected_range
from autotune.domain.outcome import Estimated
from autotune.domain.record import Evidence, Trial
from autotune.searching.subject import SearchLimits, explore_space
from autotune_db import SqlStore, open_store
from benchmarks.harness.searching import run_search
from benchmarks.harness.tables import SpaceCase, Table, build, subject_of
from benchmarks.search_quality import NEAR_PERCENT, TableCompiler

_FIRST = 3  # problems of a kernel that teach the others
_MOST_COMPILES, _MANY = 1.5, 100  # of a problem on average, of so many
_MEDIAN_REGRET, _WORST_REGRET = 2.0, 5.0  # percent
_NEAR_MEDIAN, _NEAR_P90 = 2, 4  # compiles to within 3 %
_console = Console(width=130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """``default``: what was predicted of it where it was not compiled. ``checked``: the exhaustive
    table, and trials of a search that knew nothing."""

    case: SpaceCase
    trials: Sequence[Trial]
    ended: str
    default: Evidence | None
    checked: tuple[Table, Sequence[Trial]] | None = None


def main() -> int:
    options = _options()
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    failures, near = [], list[tuple[float, float]]()
    each = [(k, chip) for k in options.kernels.split(",") for chip in options.chips.split(",")]
    with ExitStack() as stack:
        pool = stack.enter_context(CompilerPool(1))
        database = options.db or f"{stack.enter_context(TemporaryDirectory())}/warm.db"
        store = stack.enter_context(open_store(str(database), create=True))
        for kernel, chip in each:
            draw = random.Random(options.seed)
            cases = [_case(kernel, chip, draw, options.most) for _ in range(options.count)]
            done = _searched(pool, store, cases)
            later = range(min(_FIRST, len(done)), len(done))
            for place in sorted(draw.sample(later, min(options.check, len(later)))):
                table = build(pool, cases[place], options.tables, lambda _, __: None)
                checked = table, _cold(table)
                done[place] = replace(done[place], checked=checked)
            failures += _report(kernel, chip, done)
            near += _compiles_to_near(done)
    failures += _judged(near)
    _console.print("\n".join(failures) if failures else "every bar is held")
    return int(bool(failures))


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    cache = user_cache_path("pallas-autotune") / "search-quality"
    parser.add_argument("--kernels", default=",".join(_DRAWN))
    parser.add_argument("--chips", default="v5e,v6e")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--check", type=int, default=3)
    parser.add_argument("--db", type=Path, help="that is kept; default: none is")
    parser.add_argument("--most", type=int, default=1024, help="the largest size of a dimension")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", type=Path, default=cache, help=f"default: {cache}")
    return parser.parse_args()


def _case(kernel: str, chip: str, draw: random.Random, most: int) -> SpaceCase:
    shape, options = _DRAWN[kernel](draw, most)
    return SpaceCase(kernel=kernel, shape=shape, chip=chip, options=options)


def _size(draw: random.Random, most: int) -> int:
    """A third is ragged."""
    size: float = 128 * (most / 128) ** draw.random()
    unit = draw.choice((128, 128, 8))
    return max(unit, round(size / unit) * unit)


def _matmul(draw: random.Random, most: int) -> tuple[str, tuple[str, ...]]:
    return "x".join(str(_size(draw, most)) for _ in range(3)), ()


def _flash_attention(draw: random.Random, most: int) -> tuple[str, tuple[str, ...]]:
    q_len, kv_len = sorted(_size(draw, most) for _ in range(2))
    batch, heads, group = (draw.choice((1, 2)) for _ in range(3))
    shape = f"{batch}x{heads * group}x{heads}x{q_len}x{kv_len}x128"
    return shape, draw.choice(((), ("causal=true",)))


def _rmsnorm(draw: random.Random, most: int) -> tuple[str, tuple[str, ...]]:
    return f"{_size(draw, 4 * most)}x{_size(draw, 2 * most)}", ()


def _gathered_matmul(draw: random.Random, most: int) -> tuple[str, tuple[str, ...]]:
    groups = draw.choice((2, 4))
    return f"{groups * _size(draw, most)}x{_size(draw, most)}x{_size(draw, most)}x{groups}", ()


_DRAWN: dict[str, Callable[[random.Random, int], tuple[str, tuple[str, ...]]]] = {
    "matmul": _matmul,
    "flash_attention": _flash_attention,
    "rmsnorm": _rmsnorm,
    "gathered_matmul": _gathered_matmul,
}


def _searched(pool: CompilerPool, store: SqlStore, cases: Sequence[SpaceCase]) -> list[Searched]:
    lines = []
    for number, case in enumerate(cases, 1):
        subject = subject_of(pool, case)
        space = explore_space(pool, subject, lambda _, __: None)
        result = run_search(pool, store, subject, space, SearchLimits())
        ended, trials = result.stopped_by, result.trials
        lines.append(Searched(case=case, trials=trials, ended=ended, default=result.default))
        count = f"{len(trials)} of {len(space.candidates)}"
        print(f"{number}: {case}: {count}, {ended}", file=sys.stderr, flush=True)
    return lines


def _cold(table: Table) -> Sequence[Trial]:
    space = replace(table.space, candidates=list(table.space.candidates))
    compiler, limits = TableCompiler(table, 1), SearchLimits(full=True)
    with TemporaryDirectory() as folder, open_store(f"{folder}/cold.db", create=True) as store:
        result = run_search(compiler, store, table.subject, space, limits)
    return result.trials


def _compiles_to_near(done: Sequence[Searched]) -> list[tuple[float, float]]:
    """Warm and cold, of what has a table."""
    return [
        (
            _near(searched.trials, searched.checked[0].best_us),
            _near(searched.checked[1], searched.checked[0].best_us),
        )
        for searched in done
        if searched.checked
    ]


def _judged(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Of all kernels and chips together."""
    if not pairs:
        return []
    warm = sorted(taught for taught, _ in pairs)
    p90 = warm[int(0.9 * (len(warm) - 1) + 0.5)]
    behind = sum(taught > cold + 1 for taught, cold in pairs)
    near = f"of {len(pairs)} problems within 3 % after {median(warm):g}, p90 {p90:g}"
    _console.print(
        f"{near} (cold {median(cold for _, cold in pairs):g}); "
        f"{behind} behind a cold start by more than one compile"
    )
    missed = {
        near: median(warm) > _NEAR_MEDIAN or p90 > _NEAR_P90,
        f"{behind} behind a cold start by more than one compile": behind > 0,
    }
    return [text for text, is_missed in missed.items() if is_missed]


def _near(trials: Sequence[Trial], best_us: float) -> float:
    """After how many compiles; infinite where it never came so near."""
    limit_us = best_us * (1 + NEAR_PERCENT / 100)
    near = (n for n, t in enumerate(trials, 1) if t.estimate and t.estimate.time_us <= limit_us)
    return next(near, float("inf"))


def _regret(searched: Searched, best_us: float) -> float:
    return (min(t.estimate.time_us for t in searched.trials if t.estimate) / best_us - 1) * 100


def _is_within(true_us: float, predicted: Evidence) -> bool:
    least_us, most_us = expected_range(predicted)
    return least_us <= true_us <= most_us


def _against(true_us: float, predicted: Evidence) -> str:
    assert predicted.expected_us and predicted.expected_error is not None
    return f"{predicted.expected_us / true_us - 1:+.1%} ± {predicted.expected_error:.0%}"


def _report(kernel: str, chip: str, done: Sequence[Searched]) -> list[str]:
    """Print the problems of a kernel; the bars that are missed."""
    columns = Columns(
        "problem", "compiles", "ended by", "candidates", "regret", "within 3 %", "cold", "default"
    )
    regrets, defaults = [], []
    for searched in done:
        row = [str(searched.case), str(len(searched.trials)), searched.ended]
        if searched.checked:
            table, _ = searched.checked
            regrets.append(_regret(searched, table.best_us))
            ((warm, cold),) = _compiles_to_near([searched])
            size = str(len(table.space.candidates))
            row += [size, f"{regrets[-1]:.2f} %", f"{warm:g}", f"{cold:g}"]
            true = table.outcomes.get(table.space.default)
            if searched.default and isinstance(true, Estimated):
                defaults.append(_is_within(true.estimate.time_us, searched.default))
                row.append(_against(true.estimate.time_us, searched.default))
        columns.add_row(*row)
    _console.print(columns)
    counts = [len(searched.trials) for searched in done]
    mean, later = sum(counts) / len(counts), counts[_FIRST:]
    after = f"{sum(later) / len(later):.2f} after the third" if later else "no more than three"
    _console.print(f"{kernel} on {chip}: {mean:.2f} compiles a problem, {after}")
    with_default = sum(searched.default is not None for searched in done)
    _console.print(
        f"{with_default} of {len(done)} defaults were not compiled; of {len(defaults)} that the "
        f"tables have, {sum(defaults)} were within what was predicted"
    )
    missed = {f"{mean:.2f} compiles a problem": len(done) >= _MANY and mean > _MOST_COMPILES}
    if regrets:
        missed[f"regret {median(regrets):.2f} %, worst {max(regrets):.2f} %"] = (
            median(regrets) > _MEDIAN_REGRET or max(regrets) > _WORST_REGRET
        )
    return [f"{kernel} on {chip}: {text}" for text, is_missed in missed.items() if is_missed]
