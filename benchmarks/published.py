"""How far are estimates from the device times that tokamax's wheel carries, whole operations?

    python -m benchmarks published --python PYTHON [--side given] [--rows 100]
    python -m benchmarks published --python PYTHON --grids --rows 20
    python -m benchmarks published --show [--write]

PYTHON has ``jax[tpu]``, ``tokamax`` and what our compiler children need. The rows are read from its
``tokamax/data/autotuning``: times of v5e, v5p, v6e and v7x, of Pallas kernels and of plain XLA.
Each row's operation is built as tokamax's autotuner builds it, compiled and estimated.
Rows were measured with several libtpus (``measured_with`` of calibration/tokamax_rows.py). Many
plain ragged dots of v5e, v5p and v6e were measured without libtpu's kernel for them: they are
compiled with it and without. The memory of the program tells: of a row that several
made, the tables take what needs the memory that was measured, and of several such that of the
libtpu that such rows were measured with. For a PYTHON with the older one ``pip install --no-deps
libtpu==0.0.44`` comes last.
Kernels of gated delta rules on v7x are of tokamax 0.0.15: with it their programs need the memory
that was measured, to the byte but for mixed lengths. 0.0.16 has their times first, 0.0.17 the same
file and other buffers, with which some of the configs do not fit in VMEM. For a PYTHON with 0.0.15
``--tables`` names the later package.

Rows on the side ``given`` may be used to choose constants and error bars, those that are ``held``
only judge: half of the problems of each family, and whole families. A sample is drawn by family and
chip, with a seed; what benchmarks/published_rows.jsonl has of the same libtpu and model of time is
not compiled again, what is new is added to it.
``--grids`` draws rows of kernels whose config was the fastest of a grid of up to 50, and estimates
all configs of that grid.
``--show`` makes the tables of that file and compiles nothing; ``--write`` writes them to
docs/results/accuracy.md and, in short, to docs/explanation/accuracy.md.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileBaseline,
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    XlaCost,
)
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.outcome import Estimated, Outcome
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.operation import relayout_us, xla_time
from autotune.estimating.simulator import MODEL
from autotune.searching.one_config import outcome_of
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.held_out import grouped
from benchmarks.calibration.tokamax_rows import (
    GIVEN,
    HELD,
    LARGEST_GRID,
    PALLAS,
    ROWS,
    Row,
    append_done,
    brief,
    is_measured,
    newest,
    ranks,
    read_rows,
    sample,
    summary,
    tables,
    tokamax_folder,
    with_present_bar,
)
from benchmarks.harness.documents import write_below_mark
from benchmarks.kernels.tokamax_rules import compiler_options

KERNEL = Path(__file__).with_name("kernels") / "tokamax_row.py"
_GRID = KERNEL.with_name("tokamax_grid.py")
_LIMIT_S = 120.0
_LONGEST = 6  # of XLA's operations, those that are kept


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter to compile with")
    parser.add_argument("--tables", type=Path, help="the package tokamax with the rows; PYTHON's")
    parser.add_argument("--side", choices=(GIVEN, HELD), default=GIVEN)
    parser.add_argument("--chip", help="rows of one chip alone")
    parser.add_argument("--family", help="rows of the families whose name has this in it")
    parser.add_argument("--rows", type=int, default=100, help="as many, drawn by family and chip")
    parser.add_argument("--grids", action="store_true", help="with all configs of their grids")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="start no row after so many minutes")
    parser.add_argument("--done", type=Path, default=ROWS, help="rows known; new ones are added")
    parser.add_argument("--show", action="store_true", help="the tables of --done alone")
    parser.add_argument("--write", action="store_true", help="the tables to docs/results")
    args = parser.parse_args()
    if not args.show:
        _run(args)
    done = [with_present_bar(row) for row in newest(args.done, MODEL)]
    sides = grouped([row for row in done if "tuned" not in row], lambda row: str(row["side"]))
    grids = list(ranks([row for row in done if "tuned" in row]))
    text, short = ("\n".join(lines) for lines in ([*tables(sides), *grids], summary(sides)))
    print(f"{text}\n\n{short}")
    if args.write:
        write_below_mark("results/accuracy.md", "published", text)
        write_below_mark("explanation/accuracy.md", "published", short)


def _run(args: argparse.Namespace) -> None:
    rows = [
        row
        for row in read_rows(args.tables or tokamax_folder(args.python))
        if row["side"] == args.side
        and args.chip in (None, row["chip"])
        and (args.family or "") in row["family"]
    ]
    wanted = sample(rows, args.rows, args.seed)
    print(f"{len(rows)} rows of side {args.side}, {len(wanted)} drawn with seed {args.seed}")
    if args.grids:
        wanted = [row for grid in _grids(wanted, args.python) for row in grid]
    until = None if args.minutes is None else time.monotonic() + args.minutes * 60
    estimate_all(wanted, args.python, args.done, until)


def _grids(rows: Sequence[Row], python: str) -> Iterator[list[Row]]:
    """For each row of a grid that is small enough, a row for each of its configs, the tuned one
    first; ``tuned`` is the id of the row, ``grid`` the size."""
    answer = subprocess.run(
        [python, _GRID],
        input=json.dumps(rows),
        env={**os.environ, "PYTHONPATH": str(_GRID.parents[2]), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    for row, configs in zip(rows, json.loads(answer.stdout), strict=True):
        if row["config"] in configs and 1 < len(configs) <= LARGEST_GRID:
            rest = [config for config in configs if config != row["config"]]
            yield [
                row | {"config": c, "tuned": row["id"], "grid": len(configs), "id": _id(row, c)}
                for c in (row["config"], *rest)
            ]


def _id(row: Row, config: object) -> str:
    name = f"{row['id']} {json.dumps(config, sort_keys=True)}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def estimate_all(rows: Sequence[Row], python: str, done: Path, until: float | None) -> None:
    """Add to a file each row with its estimate, or why there is none, that it does not have."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder, "rows.json")).write_text(json.dumps(rows))
        memory = Path(folder, "rows.mb")
        os.environ |= {"AUTOTUNE_TOKAMAX_ROWS": str(file), "AUTOTUNE_TOKAMAX_MEMORY": str(memory)}
        with CompilerPool(1, python=python, limit_s=_LIMIT_S) as pool:
            toolchain = pool.ask(DescribeToolchain())
            print(f"{toolchain}; {MODEL}", flush=True)
            known = {row["id"] for row in newest(done, MODEL, toolchain.libtpu)}
            for number, row in enumerate(rows):
                if row["id"] in known:
                    continue
                if until is not None and time.monotonic() > until:
                    return
                made = row | _stamp(toolchain.libtpu) | _estimate(pool, number, row, memory)
                append_done(done, brief(made))
                print(_line(made), flush=True)


def _stamp(libtpu: str) -> Row:
    commit = ["git", "rev-parse", "--short=8", "HEAD"]
    made = subprocess.run(commit, cwd=KERNEL.parent, capture_output=True, text=True, check=True)
    today = datetime.now(UTC).date().isoformat()
    return {"model": MODEL, "libtpu": libtpu, "commit": made.stdout.strip(), "date": today}


def _estimate(pool: CompilerPool, number: int, row: Row, memory: Path) -> Row:
    """Of the program that needs the memory that was measured; where none does, of the first with an
    estimate.
    ``memory``: where what was compiled last has what it needs at its peak."""
    tried = []
    for options in compiler_options(row):
        tried.append(_estimated(pool, number, row, memory, options))
        if "made_mb" in tried[-1] and is_measured(row | tried[-1]):
            return tried[-1]
    return min(tried, key=lambda made: made["estimate_us"] is None)


def _estimated(pool: CompilerPool, number: int, row: Row, memory: Path, options: str | None) -> Row:
    try:
        ref, chip = find_kernel(f"{KERNEL}:KERNEL"), Chip(row["chip"])
        spec, info = pool.ask(DescribeKernel(ref=ref)), pool.ask(DescribeChip(chip=chip))
        problem = spec.problems.parse(f"row={number + 1}", "bfloat16")
        memory.unlink(missing_ok=True)
        if row["family"].startswith(PALLAS):
            config = make_config({"config": 0})
            question = CompileConfig(
                ref=ref, problem=problem, config=config, chip=chip, options=options
            )
            made = _kernel(outcome_of(pool.ask(question), info))
        else:
            plain = CompileBaseline(ref=ref, problem=problem, chip=chip, options=options)
            made = _plain(pool.ask(plain), info)
        return made | ({"made_mb": float(memory.read_text())} if memory.exists() else {})
    except AutotuneError as refusal:
        return {"estimate_us": None, "refusal": str(refusal)}


def _kernel(outcome: Outcome) -> Row:
    if not isinstance(outcome, Estimated):
        return {"estimate_us": None, "refusal": kind_and_reason(outcome)}
    estimate = outcome.estimate
    explained = estimate.explanation
    return {
        "estimate_us": estimate.time_us,
        "bar": estimate.error,
        "xla_us": estimate.xla_us,
        "relayout_us": relayout_us(estimate.operations),
        "limited_by": estimate.limited_by,
        "parts_us": dict(explained.parts_us) if explained else {},
        "mxu_us": explained.mxu_us if explained else 0.0,
        "steps": explained.steps if explained else 0,
        "dmas": explained.dma_count if explained else 0,
        "burst_bytes": explained.burst_bytes if explained else 0,
        "spill_bundles": explained.spill_bundles if explained else 0,
        "notes": estimate.notes,
        "operations": [(o.name, o.opcode, o.runs, o.time_us) for o in estimate.operations],
    }


def _plain(cost: XlaCost | Outcome, chip: ChipInfo) -> Row:
    if not isinstance(cost, XlaCost):
        return {"estimate_us": None, "refusal": kind_and_reason(cost)}
    whole = xla_time(cost.schedule, (), chip)
    longest = sorted(whole.operations, key=lambda o: -o.time_us)[:_LONGEST]
    refusals = {o.name: o.refusal for o in cost.schedule}
    return {
        "estimate_us": whole.time_us or None,
        "bar": None if whole.untimed else whole.error,
        "xla_us": whole.time_us,
        "relayout_us": relayout_us(whole.operations),
        "limited_by": "XLA",
        "unknown": len(whole.unknown),
        "operations_run": sum(o.runs for o in whole.operations),
        "by_kind": whole.by_kind,
        "operations": [
            (o.name, o.opcode, o.runs, o.time_us, o.hbm_bytes, refusals.get(o.name, ""))
            for o in longest
        ],
    }


def _line(row: Row) -> str:
    start = f"{row['chip']:<5}{row['family'][-44:]:<46}{row['time_us']:>11.1f}"
    if row["estimate_us"] is None:
        return f"{start}  {row['refusal'][:150]}"
    bar = f"{row['bar']:.0%}" if row["bar"] is not None else "none"
    ratio = row["estimate_us"] / row["time_us"]
    return f"{start}{row['estimate_us']:>11.1f}{ratio:>7.3f}  ±{bar:<5} {row['limited_by']}"
