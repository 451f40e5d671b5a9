"""How good is a rule for shapes that nobody tuned, beside the nearest record and the default?

    python -m benchmarks rules [--kernels matmul,rmsnorm] [--chips v5e,v6e,v7x] [--count 10]

Problems of sizes that models have, both ends of a range and some drawn log-uniformly between them,
are searched as `autotune search` does, but for the gate, the same ones for each chip. Each is left
out once, and answered by a rule of the others, as `autotune rule` judges it: how much longer than
the best that is known of the problem the rule takes, the nearest record, and the kernel's own
default. What was compiled stays in --db, so that the same command goes on where it was. With
--shapes 100 the compiler is asked about what each rule gives for so many other shapes. Exit
code 1 when a bar is missed, or one of these does not compile.

With --grid no rule is made: a grid of shapes is searched once, and the nearest record of it that is
safe for a shape answers the same drawn problems.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from itertools import product
from math import inf
from pathlib import Path
from statistics import median
from typing import TypeVar

from platformdirs import user_cache_path
from rich.console import Console
from rich.table import Table

from autotune.answering.matching import NEAREST, Index
from autotune.answering.rule_answers import ruled_config
from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import CompilerQuestion, DescribeKernel, VerifyConfig
from autotune.domain.evidence import Verdict
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.domain.record import Record
from autotune.domain.rule import NoRule, ShapeRule
from autotune.domain.store import Store
from autotune.publishing.publish import opened, running
from autotune.publishing.task import Plan, TuningObserver, TuningTask
from autotune.publishing.tuning import tune_one
from autotune.searching.one_config import config_judge
from autotune.searching.subject import SearchLimits
from autotune.tables.rule_maker import LeftOut, RuleMaker
from autotune.wording.match import no_rule
from autotune.wording.outcome import kind_and_reason
from autotune.wording.publication import publication_reason
from autotune_db import open_store
from benchmarks.harness.tables import SpaceCase, subject_of

_MEDIAN_REGRET, _WORST_REGRET, _FEWEST = 0.03, 0.1, 50  # of all that were answered
_MOST_DRAWN = 10_000
_console = Console(width=130)

T = TypeVar("T")

Draw = Callable[[int, int, int], int]
"""From the first size to the second, a multiple of the third."""


def _matmul(size: Draw) -> str:
    """Tokens by two dimensions of a model; a third of the batches is ragged."""
    unit = (8, 128, 128)[size(1, 4, 1) % 3]
    return f"{size(128, 4096, unit)}x{size(1024, 8192, 512)}x{size(1024, 8192, 512)}"


def _flash_attention(size: Draw) -> str:
    """A prompt, or a piece of it, with all keys before it."""
    q_len, kv_len = sorted(size(512, 8192, 128) for _ in range(2))
    return f"1x8x{(8, 2)[size(1, 2, 1) % 2]}x{q_len}x{kv_len}x128"


def _splash_attention(size: Draw) -> str:
    return f"8x{(8, 2)[size(1, 2, 1) % 2]}x{size(1024, 8192, 512)}x128x128"


def _rmsnorm(size: Draw) -> str:
    return f"{size(128, 16384, (8, 128)[size(1, 2, 1) % 2])}x{(2048, 4096)[size(1, 2, 1) % 2]}"


_DRAWN: dict[str, tuple[Callable[[Draw], str], tuple[str, ...]]] = {
    "rmsnorm": (_rmsnorm, ()),
    "matmul": (_matmul, ()),
    "flash_attention": (_flash_attention, ("causal=true",)),
    "jax_splash_attention": (_splash_attention, ()),
}


_GRIDS: dict[str, Sequence[str]] = {
    "rmsnorm": [f"{128 << n}x{width}" for n in range(8) for width in (2048, 4096)],
    "matmul": [
        f"{128 << m}x{1024 << k}x{1024 << n}" for m in range(6) for k in range(4) for n in range(4)
    ],
    "flash_attention": [
        f"1x8x{kv_heads}x{512 << q}x{512 << k}x128"
        for kv_heads in (8, 2)
        for k in range(5)
        for q in range(k + 1)
    ],
}


class _TimesAlone(CompilerPool):
    """Judged are times, and nobody uses a config from here: the gate would take most of the run."""

    def _answer(self, question: CompilerQuestion[T]) -> T:
        """The gate is not asked: what is kept says so."""
        if isinstance(question, VerifyConfig):
            reason = "taken for correct, times alone are judged"
            return Verdict(ok=True, reason=reason)  # type: ignore[return-value]
        return super()._answer(question)


def main() -> int:
    options = _options()
    options.db.parent.mkdir(parents=True, exist_ok=True)
    if options.grid:
        return _grids(options)
    table = Table("kernel, chip", "left out", "answered", "rule", "nearest", "default", "rule made")
    answers: list[LeftOut] = []
    wrong: list[str] = []
    asked = 0
    with _TimesAlone(1) as pool, open_store(str(options.db), create=True) as store:
        for kernel, chip in product(options.kernels.split(","), options.chips.split(",")):
            cases = _cases(kernel, chip, options.count + options.shapes)
            made, left_out = _ruled(pool, store, cases[: options.count], options.trials)
            answers += left_out
            why = no_rule(made) if isinstance(made, NoRule) else "yes"
            table.add_row(f"{kernel}, {chip}", *_regrets(left_out), why)
            print(f"{kernel}, {chip}:", *_regrets(left_out), why, file=sys.stderr, flush=True)
            if isinstance(made, ShapeRule):
                lines = [_compiled(pool, made, case) for case in cases[options.count :]]
                wrong += [line for line in lines if line]
                asked += len([line for line in lines if line is not None])
    table.add_row("all", *_regrets(answers))
    _console.print(table, *wrong, sep="\n")
    if options.shapes:
        _console.print(f"{asked - len(wrong)} of {asked} answers for other shapes compile")
    return int(bool(wrong) or not _is_held(answers))


def _grids(options: argparse.Namespace) -> int:
    """Of the drawn problems, how many the nearest record of a grid answers, and how well."""
    table = Table("kernel, chip", "grid", "asked", "answered", "nearest", "default")
    with _TimesAlone(1) as pool, open_store(str(options.db), create=True) as store:
        for kernel, chip in product(options.kernels.split(","), options.chips.split(",")):
            choices = _DRAWN[kernel][1]
            cases = [
                SpaceCase(kernel=kernel, shape=shape, chip=chip, options=choices)
                for shape in _GRIDS[kernel]
            ]
            searched = [_searched(pool, store, case, options.trials) for case in cases]
            spec = pool.ask(DescribeKernel(ref=subject_of(pool, cases[0]).ref))
            index = Index([record for record in searched if record is not None], [spec])
            asked = _cases(kernel, chip, options.count)
            regrets = [_beside_nearest(pool, store, index, case, options.trials) for case in asked]
            near = [regret for regret, _ in regrets]
            answered = [regret for regret in near if regret is not None]
            default = [regret for _, regret in regrets]
            row = [str(len(index)), str(len(near)), str(len(answered)), _said(near), _said(default)]
            table.add_row(f"{kernel}, {chip}", *row)
    _console.print(table)
    return 0


def _beside_nearest(
    pool: CompilerPool, store: Store, index: Index, case: SpaceCase, trials: int
) -> tuple[float | None, float | None]:
    """Of the nearest safe record and of the default; None where there is none."""
    record = _searched(pool, store, case, trials)
    assert record is not None, case
    subject = subject_of(pool, case)
    known = {t.config: t.estimate.time_us for t in store.trials(record.key) if t.estimate}
    nearest, default = index.match(record.key, (NEAREST,)).config, record.default.config
    for config in {c for c in (nearest, default) if c is not None} - known.keys():
        outcome = config_judge(pool, subject).outcome(config)
        known[config] = outcome.estimate.time_us if isinstance(outcome, Estimated) else inf
    best_us = min(known.values())
    regrets = (known[c] / best_us - 1 if c else None for c in (nearest, default))
    return next(regrets), next(regrets)


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--kernels", default=",".join(_DRAWN))
    parser.add_argument("--chips", default="v5e,v6e,v7x")
    parser.add_argument("--count", type=int, default=10, help="problems of each kernel")
    parser.add_argument("--trials", type=int, default=8, help="of each problem, at most")
    parser.add_argument("--grid", action="store_true", help="the nearest record of a grid alone")
    parser.add_argument("--shapes", type=int, default=0, help="others, for the compiler")
    cache = user_cache_path("pallas-autotune") / "rules.db"
    parser.add_argument("--db", type=Path, default=cache, help=f"default: {cache}")
    return parser.parse_args()


def _cases(kernel: str, chip: str, count: int) -> list[SpaceCase]:
    """Both ends first: what is outside of all others gets no answer."""
    draw, (shape, options) = random.Random(kernel), _DRAWN[kernel]

    def between(least: int, most: int, unit: int) -> int:
        size: float = least * (most / least) ** draw.random()
        return min(most, max(least, round(size / unit) * unit))

    shapes = {shape(lambda *size: size[0]): None, shape(lambda *size: size[1]): None}
    for _ in range(_MOST_DRAWN):  # there may not be so many
        shapes |= {shape(between): None} if len(shapes) < count else {}
    return [SpaceCase(kernel=kernel, shape=drawn, chip=chip, options=options) for drawn in shapes]


def _ruled(
    pool: CompilerPool, store: Store, cases: Sequence[SpaceCase], trials: int
) -> tuple[ShapeRule | NoRule, Sequence[LeftOut]]:
    """A rule of all, or why there is none, and what became of each that was left out."""
    records = [_searched(pool, store, case, trials) for case in cases]
    known = [record for record in records if record is not None]
    ref = subject_of(pool, cases[0]).ref
    spec = pool.ask(DescribeKernel(ref=ref))
    maker = RuleMaker(pool=pool, store=store, ref=ref, spec=spec, records=known)
    return maker.make(), maker.left_out


def _searched(pool: CompilerPool, store: Store, case: SpaceCase, trials: int) -> Record | None:
    """None where nothing was published. What is there is not searched again."""
    subject = subject_of(pool, case)
    there = (record for record in store.records(subject.spec.name) if record.key == subject.key)
    if (record := next(there, None)) is not None:
        return record
    task = TuningTask(ref=subject.ref, chip=subject.chip.chip, problem=subject.problem)
    plan = Plan(limits=SearchLimits(trials=trials))
    tuned = tune_one(running(pool), opened(store), task, plan, TuningObserver())
    if tuned.publication is None:
        raise KeyboardInterrupt
    tried = f"{len(tuned.trials)} trials, {tuned.stopped_by}"
    print(f"{case}: {tried}; {publication_reason(tuned.publication)}", file=sys.stderr, flush=True)
    return tuned.record


def _compiled(pool: CompilerPool, rule: ShapeRule, case: SpaceCase) -> str | None:
    """Why what a rule gives is not; empty where it is, None where it gives nothing."""
    subject = subject_of(pool, case)
    config = ruled_config(rule, subject.problem)
    if config is None:
        return None
    outcome = config_judge(pool, subject).outcome(config)
    if isinstance(outcome, Estimated | NotEstimated):
        return ""
    return f"{case}: {config} {kind_and_reason(outcome)}"


def _regrets(answers: Sequence[LeftOut]) -> list[str]:
    """Of the problems that a rule answered, and of the same ones by the others."""
    answered = [answer for answer in answers if answer.is_answered]
    columns = (
        [getattr(answer, name) for answer in answered] for name in ("rule", "nearest", "default")
    )
    return [str(len(answers)), str(len(answered)), *map(_said, columns)]


def _said(regrets: Sequence[float | None]) -> str:
    known = [regret for regret in regrets if regret is not None]
    return f"{median(known):.1%}, worst {max(known):.1%}" if known else "none"


def _is_held(answers: Sequence[LeftOut]) -> bool:
    regrets = [answer.rule for answer in answers if answer.is_answered and answer.rule is not None]
    return (
        len(regrets) >= _FEWEST
        and median(regrets) <= _MEDIAN_REGRET
        and max(regrets) <= _WORST_REGRET
    )
