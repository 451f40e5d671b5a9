"""What do kernels of packages take that send to other devices, beside what bounds them?

    python -m benchmarks sends --python INTERPRETER [--only NAME] [--done FILE] [--write]

Each is compiled on v6e by ``autotune step`` with the packages of an interpreter: one for those of
JAX and tpu-inference (which wants vLLM), another for sglang-jax. What FILE has is not done again.
Bounds: what a device sends over two links of a ring, its products and its bytes of HBM, by the peak
rates of the chip, with tokens that go to all experts alike.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import CompileStep, DescribeChip
from autotune.domain.key import Chip
from autotune.domain.step import Step
from autotune.estimating.simulator.constants import link_bytes_per_us
from autotune.publishing.step import LIMIT_AFTER_S, timed_step
from autotune.wording.outcome import reason_of
from autotune.wording.units import micros
from benchmarks.harness.documents import markdown_table, show

_KERNELS = Path(__file__).with_name("kernels") / "sends.py"
_BUDGET_S = 900.0
_HEAD = "kernel", "v6e", "time", "bar", "links", "products", "HBM", "not simulated: why", "took"


class Case(NamedTuple):
    """``least``: of a device: bytes that it sends, operations, bytes of HBM."""

    name: str
    bounds: tuple[int, int]
    settings: dict[str, Any]
    least: tuple[float, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, help="an interpreter that has the packages")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--done", type=Path, help="JSON lines of cases; continued where it is")
    parser.add_argument("--write", action="store_true", help="the table to docs/results/steps.md")
    args = parser.parse_args()
    text = args.done.read_text() if args.done and args.done.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    for case in cases():
        slice_of = "x".join(map(str, case.bounds))
        if args.only in case.name and [case.name, slice_of] not in [row[:2] for row in rows]:
            rows.append([case.name, slice_of, *_answer(case, args.python)])
            if args.done:
                with args.done.open("a") as file:
                    print(json.dumps(rows[-1]), file=file)
    text = markdown_table(_HEAD, *rows)
    show(text, "results/steps.md", "sends", write=args.write)


def cases() -> Iterator[Case]:
    for bounds in ((2, 2), (2, 4)):
        n = prod(bounds)
        for rows, columns in ((256, 128), (4096, 512)):
            size = rows * columns * 2
            name = f"all_gather of JAX, {size >> 10:,} KiB a device"
            settings = {"kernel": "gathered", "rows": rows, "columns": columns}
            yield Case(name, bounds, settings, ((n - 1) * size, 0, (n + 1) * size))
        m, k, inner = 1024, 5120, 51200 // 8
        name = f"all_gather_matmul of tpu-inference, {m:,} × {k:,} × {inner:,} a device"
        settings = {"kernel": "gathered_product", "mkn": (m, k, inner * n), "bn": 1280, "bk": k}
        moved = 2 * (m * k + k * inner + m * inner)
        yield Case(name, bounds, settings, (2 * m * k * (n - 1) / n, 2 * m * k * inner, moved))
        for package, kernel in (("tpu-inference", "mixture"), ("sglang-jax", "routed_mixture")):
            tokens, hidden, inner, experts, top_k = 256, 2048, 768, 128, 8
            settings = {"kernel": kernel, "tokens": tokens, "hidden": hidden, "inner": inner}
            copies = tokens * top_k / n
            yield Case(
                f"fused mixture of {package}, {tokens} tokens, {experts} experts of "
                f"{hidden:,} × {inner:,}, {top_k} each",
                bounds,
                {**settings, "experts": experts, "top_k": top_k},
                (
                    2 * 2 * copies * hidden * (n - 1) / n,
                    6 * copies * hidden * inner,
                    2 * 3 * hidden * inner * experts / n,
                ),
            )


def _answer(case: Case, python: str) -> list[str]:
    os.environ["AUTOTUNE_SENDS"] = json.dumps(case.settings)
    question = CompileStep(
        ref=replace(find_kernel(f"{_KERNELS}:call"), call=""),
        chip=Chip.V6E,
        bounds=case.bounds,
        budget_s=_BUDGET_S,
    )
    started, limit_s = time.monotonic(), _BUDGET_S + LIMIT_AFTER_S
    with CompilerPool(1, python=python, limit_s=limit_s) as pool:
        chip = pool.ask(DescribeChip(chip=Chip.V6E))
        step = timed_step(pool, question)
    took = f"{time.monotonic() - started:.0f} s"
    sent, operations, moved = case.least
    links_us = sent / 2 / link_bytes_per_us(Chip.V6E.value)
    products_us, hbm_us = operations / chip.bf16_ops_per_s * 1e6, moved / chip.hbm_bytes_per_s * 1e6
    bounds = [micros(links_us), micros(products_us), micros(hbm_us)]
    if not isinstance(step, Step):
        return [reason_of(step), "", *bounds, "", took]
    bar = "unknown" if step.error is None else f"± {step.error:.0%}"
    return [
        micros(step.time_us),
        bar,
        *bounds,
        "; ".join(r.partition(": ")[2] for r in step.refused),
        took,
    ]
