"""Are the grid orders and ``dimension_semantics`` that the rules allow right?

    python -m benchmarks legality [--kernel NAME] [--json FILE]

Every legal combination of every kernel runs in interpret mode with two cores, random orders of the
parallel axes and race detection, against the reference; so does every illegal one, which must
come out wrong, racing or refused at least once for each kernel and rule. Exit code 1 when a legal
combination is wrong, or when a rule has no case that shows why it is there.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    DescribeKernel,
    DescribeToolchain,
    TraceConfig,
    Traces,
    VerifyConfig,
)
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import ARBITRARY, PARALLEL, Config, Problem, make_config
from autotune.domain.trace import Trace
from autotune.estimating import bad_visits, legality
from autotune.wording.outcome import verdict_reason, violation_text
from benchmarks.harness.points import as_they_come

_KERNELS = Path(__file__).with_name("kernels")

REVISITED = "output blocks visited in one go"
SEQUENTIAL = "a sequential axis is not parallel"
PREFIX = "parallel before arbitrary"
LENGTH = "one semantics per axis"

# Two blocks or more on every axis, most of them ragged.
CASES: tuple[tuple[str, str, str, str, dict[str, int]], ...] = (
    ("matmul", "32x256x256", "bfloat16", "", {"block_m": 16, "block_k": 128, "block_n": 128}),
    (
        "matmul",
        "24x200x300",
        "float32",
        "transpose_rhs=true",
        {"block_m": 16, "block_k": 128, "block_n": 256},
    ),
    (
        "matmul",
        "64x256x256",
        "int8",
        "activation=relu",
        {"block_m": 32, "block_k": 128, "block_n": 128},
    ),
    ("flash_attention", "2x2x1x32x256x128", "bfloat16", "", {"block_q": 16, "block_kv": 128}),
    (
        "flash_attention",
        "1x2x1x24x200x64",
        "float32",
        "causal=true",
        {"block_q": 16, "block_kv": 128},
    ),
    ("rmsnorm", "40x300", "bfloat16", "", {"block_rows": 16, "block_features": 128}),
    ("vector_add", "3000", "float32", "", {"block_n": 1024}),
    ("tiled_dot", "3000", "float32", "", {"block_rows": 8}),
    (
        "gathered_matmul",
        "256x200x300x3",
        "float32",
        "group=128",
        {"block_m": 128, "block_k": 128, "block_n": 256},
    ),
)

WHOLE = {"flash_attention": KernelRef(path=str(_KERNELS / "whole.py"), attribute="FLASH_ATTENTION")}

BROKEN = {
    "HALF_WRITTEN": "all of an output is written",
    "SHIFTED_ALIAS": "no aliased block is read after another step wrote it",
    "RUNNING_SUM": "no carried scratch crosses a parallel axis",
    "BY_HAND": "an output written by hand has no parallel axis",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCase:
    """One combination to run. ``rule``: what it breaks, None when it is legal."""

    ref: KernelRef
    kernel: str
    problem: Problem
    config: Config
    rule: str | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    case: GridCase
    is_right: bool
    evidence: str


def catalogue_cases(pool: CompilerPool) -> Iterator[GridCase]:
    """All orders and semantics of every kernel of the catalogue, legal and illegal."""
    for name, shape, dtype, options, axes in CASES:
        ref = WHOLE.get(name) or find_kernel(name)
        spec = pool.ask(DescribeKernel(ref=ref))
        problem = spec.problems.parse(shape, dtype, [options] if options else [])
        config = make_config(axes, grid_order=spec.grid)
        traced = pool.ask(TraceConfig(ref=ref, problem=problem, config=config, orders=True))
        assert isinstance(traced, Traces), traced
        grids: list[GridCase] = []
        for order, trace in zip(permutations(spec.grid), traced.traces, strict=True):
            assert min(trace.grid) > 1 or "batch" in spec.grid, (name, trace.grid)
            grids += _of_order(ref, name, problem, config.replace(grid_order=order), trace)
        yield from grids
        yield _too_many(grids[0])


def _of_order(
    ref: KernelRef, name: str, problem: Problem, config: Config, trace: Trace
) -> Iterator[GridCase]:
    def case(semantics: tuple[str, ...], rule: str | None, why: str = "") -> GridCase:
        chosen = config.replace(dimension_semantics=semantics)
        return GridCase(ref=ref, kernel=name, problem=problem, config=chosen, rule=rule, why=why)

    rank = len(trace.grid)
    revisited = bad_visits.bad_output_visits(trace)
    if revisited:
        yield case((ARBITRARY,) * rank, REVISITED, violation_text(revisited))
        return
    prefix = legality.parallel_prefix(trace)
    for semantics in all_prefixes(rank, prefix):
        yield case(semantics, None)
    if prefix < rank:
        first = legality.sequential_axis(trace, prefix)
        for axis in range(prefix, rank):
            blamed = legality.sequential_axis(trace, axis) or first
            kinds = (PARALLEL,) * (axis + 1) + (ARBITRARY,) * (rank - axis - 1)
            yield case(kinds, SEQUENTIAL, violation_text(blamed) if blamed else "")
    for axis in range(1, prefix):
        kinds = tuple(PARALLEL if a == axis else ARBITRARY for a in range(rank))
        yield case(kinds, PREFIX)


def _too_many(case: GridCase) -> GridCase:
    """One more semantics than the grid has axes."""
    semantics = (ARBITRARY,) * (len(case.config.grid_order) + 1)
    config = case.config.replace(dimension_semantics=semantics)
    return replace(case, config=config, rule=LENGTH)


def all_prefixes(rank: int, prefix: int) -> list[tuple[str, ...]]:
    """All arbitrary, and each number of leading parallel axes up to ``prefix``."""
    return [(PARALLEL,) * n + (ARBITRARY,) * (rank - n) for n in range(prefix + 1)]


def broken_cases(pool: CompilerPool) -> Iterator[GridCase]:
    """One case for each rule that no grid order of the catalogue breaks."""
    path = str(_KERNELS / "broken.py")
    for attribute, rule in BROKEN.items():
        ref = KernelRef(path=path, attribute=attribute)
        spec = pool.ask(DescribeKernel(ref=ref))
        config = make_config({"block_rows": 8}, dimension_semantics=(PARALLEL,))
        problem = spec.problems.parse("32")
        traced = pool.ask(TraceConfig(ref=ref, problem=problem, config=config))
        assert isinstance(traced, Traces), traced
        (trace,) = traced.traces
        broken = bad_visits.bad_output_visits(trace) or legality.sequential_axis(trace, 0)
        assert broken, f"the rules allow {attribute}"
        why = violation_text(broken)
        yield GridCase(
            ref=ref, kernel=spec.name, problem=problem, config=config, rule=rule, why=why
        )


def run_all(pool: CompilerPool, cases: Sequence[GridCase]) -> list[Ran]:
    pending = {
        pool.submit(
            VerifyConfig(ref=case.ref, problem=case.problem, config=case.config, chip=Chip.V5E)
        ): case
        for case in cases
    }
    done = [
        Ran(case=case, is_right=verdict.ok is True, evidence=verdict_reason(verdict))
        for case, verdict in as_they_come(pending, "interpreting")
    ]
    return sorted(done, key=lambda ran: cases.index(ran.case))


def report(done: Sequence[Ran]) -> bool:
    """Print the table; whether every legal one is right and every rule has its case."""
    legal = [ran for ran in done if ran.case.rule is None]
    wrong = [ran for ran in legal if not ran.is_right]
    print(f"\nlegal combinations: {len(legal)}, of them wrong: {len(wrong)} (must be 0)")
    for name in dict.fromkeys(ran.case.kernel for ran in legal):
        mine = [ran for ran in legal if ran.case.kernel == name]
        print(f"  {name}: {len(mine)}, all right: {all(ran.is_right for ran in mine)}")
    for ran in wrong:
        print(f"  WRONG {ran.case.kernel} {ran.case.problem} {ran.case.config}: {ran.evidence}")
    rows: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    for ran in done:
        if ran.case.rule is not None:
            rows[ran.case.rule, ran.case.kernel].append(ran)
    print("\nillegal combinations, by rule and kernel:")
    shown = {rule: False for rule, _ in rows}
    for (rule, kernel), runs in sorted(rows.items()):
        bad = [ran for ran in runs if not ran.is_right]
        shown[rule] = shown[rule] or bool(bad)
        print(f"  {rule} | {kernel}: {len(bad)} of {len(runs)} wrong, racing or refused")
        for ran in bad[:1]:
            print(f"      {ran.case.config}: {ran.case.why}\n      → {ran.evidence[:200]}")
        for ran in runs:
            if ran.is_right:
                print(f"      CONSERVATIVE, always right: {ran.case.config} {ran.case.why}")
    for rule, count in shown.items():
        if not count:
            print(f"no case shows why there is the rule: {rule}")
    return not wrong and all(shown.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compilers", type=int, default=2)
    parser.add_argument("--kernel", help="only this kernel")
    parser.add_argument("--json", metavar="FILE", help="also write every run to FILE")
    options = parser.parse_args()
    with CompilerPool(options.compilers, limit_s=300.0) as pool:
        print(pool.ask(DescribeToolchain()))
        cases = [*catalogue_cases(pool), *broken_cases(pool)]
        cases = [c for c in cases if options.kernel in (None, c.kernel)]
        done = run_all(pool, cases)
    if options.json:
        rows = [
            {
                "kernel": r.case.kernel,
                "problem": str(r.case.problem),
                "config": str(r.case.config),
                "rule": r.case.rule,
                "why": r.case.why,
                "right": r.is_right,
                "evidence": r.evidence,
            }
            for r in done
        ]
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if report(done) else 1
