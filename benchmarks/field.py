"""What becomes of the kernels that others ship, with the configs that their authors chose?

    python -m benchmarks field --python INTERPRETER [--kernel NAME] [--chip CHIP] [--limit S]
        [--done TABLE]

Each kernel of ``from_tokamax`` and ``from_tpu_inference`` at two realistic shapes on v5e, v6e and
v7x: is its default config traced, legal, compiled, estimated and verified, and if not, why? The
interpreter has their packages. All times are estimates; no TPU was used.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import GROUP, find_kernel
from autotune.domain.compilers import (
    CheckDeclaration,
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    ListChoices,
    TraceConfig,
    Traces,
    VerifyConfig,
)
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config, Problem, make_config
from autotune.estimating import legality
from autotune.estimating.cost_model.estimate import estimate
from autotune.wording.outcome import kind_and_reason, reason_of
from autotune.wording.publication import verification

CHIPS = ("v5e", "v6e", "v7x")
STEPS = ("traced", "legal", "compiled", "estimated", "verified")

CASES: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""Kernels, their options and shapes; a test of estimates reads the same file."""


@dataclass(slots=True)
class FieldRow:
    """``done``: of :data:`STEPS` what worked; ``notes``: time, what was verified, reasons."""

    case: str
    chip: str
    done: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        marks = " | ".join("yes" if step in self.done else "no" for step in STEPS)
        return f"| {self.case} | {self.chip} | {marks} | {'; '.join(self.notes)} |"


def looked_at(
    pool: CompilerPool,
    ref: KernelRef,
    case: str,
    problem: Problem,
    chip: Chip,
    limit_s: float = 60.0,
) -> FieldRow:
    """One default config, step by step as far as it goes, each in ``limit_s``."""
    row = FieldRow(case, chip.value)
    try:
        pool.ask(CheckDeclaration(ref=ref, problem=problem, chip=chip))
        choices = pool.ask(ListChoices(ref=ref, problem=problem, chip=chip))
        config = make_config(choices.default, grid_order=choices.grid)
        _compiled(pool, ref, problem, config, chip, row)
        _verified(pool, ref, problem, config, chip, row, limit_s)
    except AutotuneError as error:
        row.notes.append(str(error))
    return row


def _compiled(
    pool: CompilerPool, ref: KernelRef, problem: Problem, config: Config, chip: Chip, row: FieldRow
) -> None:
    info = pool.ask(DescribeChip(chip=chip))
    traces = pool.ask(TraceConfig(ref=ref, problem=problem, config=config, chip=chip))
    if not isinstance(traces, Traces):
        row.notes.append(kind_and_reason(traces))
        return
    row.done.add("traced")
    broken = legality.violation(traces.traces[0], info)
    if broken:
        row.notes.append(reason_of(legality.illegal(broken)))
        return
    row.done.add("legal")
    answer = pool.ask(CompileConfig(ref=ref, problem=problem, config=config, chip=chip)).answer
    if not isinstance(answer, tuple):
        row.notes.append(kind_and_reason(answer))
        return
    row.done.add("compiled")
    outcome = estimate(*answer, info)
    if isinstance(outcome, Estimated):
        row.done.add("estimated")
        row.notes.append(f"{outcome.estimate.time_us:.0f} us")
        why = outcome.estimate.explanation
        if why is not None and outcome.estimate.time_us < why.roofline_us:
            row.notes.append("BELOW THE PHYSICAL BOUND")
    else:
        row.notes.append(reason_of(outcome))


def _verified(
    pool: CompilerPool,
    ref: KernelRef,
    problem: Problem,
    config: Config,
    chip: Chip,
    row: FieldRow,
    limit_s: float,
) -> None:
    """Also where the compiler took too long."""
    if "legal" not in row.done:
        return
    question = VerifyConfig(ref=ref, problem=problem, config=config, chip=chip)
    verdict = pool.ask(replace(question, budget_s=limit_s))
    if verdict.ok:
        row.done.add("verified")
        verdict = replace(verdict, reason=f"{verdict.runs} run{'s' * (verdict.runs > 1)}")
    row.notes.append(f"{verification(verdict)} ({verdict.seconds:.0f} s)")


def _rows(args: argparse.Namespace, pool: CompilerPool) -> Iterator[FieldRow]:
    done = _done(args.done)
    for name, options, shapes in CASES:
        if args.kernel not in (None, name):
            continue
        ref = find_kernel(name)
        spec = pool.ask(DescribeKernel(ref=ref))
        for shape in shapes:
            case = " ".join((name, shape, *options))
            for chip in [args.chip] if args.chip else CHIPS:
                if (case, chip) not in done:
                    problem = spec.problems.parse(shape, None, options)
                    yield looked_at(pool, ref, case, problem, Chip(chip), args.limit)


def _done(table: Path | None) -> set[tuple[str, ...]]:
    """Case and chip of each row of a table that an earlier run has printed."""
    lines = table.read_text().splitlines() if table else []
    return {tuple(line.removeprefix("| ").split(" | ")[:2]) for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="that has the packages")
    parser.add_argument("--kernel", help=f"a name of the entry points {GROUP}")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--done", type=Path, help="a table whose rows are not run again")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one question")
    args = parser.parse_args()
    print("| kernel, shape | chip | " + " | ".join(STEPS) + " | notes |")
    print("|---|---|" + "---|" * len(STEPS) + "---|")
    rows = []
    with CompilerPool(1, python=args.python, limit_s=args.limit) as pool:
        for row in _rows(args, pool):
            rows.append(row)
            print(row, flush=True)
    shares = (f"{step} {sum(step in row.done for row in rows)}" for step in STEPS)
    print(f"\nof {len(rows)}: " + ", ".join(shares))
