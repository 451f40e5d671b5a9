"""The device times that the package tokamax carries: read, put on a side, sampled, compared.

``tokamax/data/autotuning`` of tokamax 0.0.17 has times of real v5e, v5p, v6e and v7x, of Pallas
kernels and of plain XLA. Rows on the side ``given`` may be used to choose constants and error bars;
those that are ``held`` only judge: half of the problems of each family, and whole families.
"""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.calibration.agreement import p90
from benchmarks.calibration.held_out import grouped

Row = dict[str, Any]
"""chip, family, side, problem, config, time_us, id; what was estimated beside them."""

GIVEN, HELD = "given", "held"
_DEVICES = {"tpu7x": "v7x", "tpu_v5": "v5p", "tpu_v5_lite": "v5e", "tpu_v6_lite": "v6e"}
_NEVER_GIVEN = (
    *("batched_rpa", "causal_conv1d_gated_delta_rule", "v2_ragged_dot", "_vjp", "mhc_"),
    *("multi_head_latent_attention", "triangle_multiplication", "ragged_gather", "router_top_k"),
    *("deepseek_rope", "csa_gather", "dsv4_compressor", "lowrank_proj", "proj_and_save_state"),
)
"""Families that nothing was ever chosen on: to see how far the model is from what it never saw."""
_RIVALS = {
    "pallas_mosaic_tpu_flash_attention": (
        "dot_product_attention",
        "xla_chunked_dot_product_attention",
    ),
    "pallas_mosaic_tpu_ragged_dot": ("ragged_dot",),
    "pallas_mosaic_tpu_linear_softmax_cross_entropy_loss": (
        "linear_softmax_cross_entropy_loss",
        "chunked_xla_linear_softmax_cross_entropy_loss",
    ),
    "pallas_mosaic_tpu_splash_attention": ("splash_attention",),
}
_APART = 0.1  # pairs that differ by less say nothing of which is faster


def tokamax_folder(python: str) -> Path:
    """Where an interpreter has tokamax; ``SystemExit`` with a sentence where it has none."""
    code = "import importlib.util as u; print(u.find_spec('tokamax').submodule_search_locations[0])"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{python} has no tokamax: install tokamax==0.0.17 for it")
    return Path(result.stdout.strip())


def read_rows(folder: Path) -> Iterator[Row]:
    """The device times of TPUs in a copy of the package tokamax, each with the side it is on."""
    for path in sorted(folder.glob("data/autotuning/tpu*/*.json")):
        chip, family = _DEVICES.get(path.parent.name), path.stem
        for problem, configs in json.loads(path.read_text()).items() if chip else ():
            for config, data in configs.items():
                if times := data.get("evaluation_times_ms"):
                    name = f"{chip} {family} {problem} {config}"
                    yield {
                        "id": hashlib.sha256(name.encode()).hexdigest()[:16],
                        "chip": chip,
                        "family": family,
                        "side": side(family, problem),
                        "time_us": median(times) * 1e3,
                        "problem": json.loads(problem),
                        "config": json.loads(config),
                    }


def side(family: str, problem: str) -> str:
    """A problem is on one side on all chips; ``problem`` as its cache file spells it."""
    digest = hashlib.sha256(f"{family} {problem}".encode()).hexdigest()
    given = int(digest, 16) % 2 == 0 and not any(part in family for part in _NEVER_GIVEN)
    return GIVEN if given else HELD


def sample(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    """``count`` rows, as many of each family and chip as there are, in an order that any beginning
    of is a sample too."""
    groups = list(grouped(rows, lambda row: (row["family"], row["chip"])).values())
    shuffled = [random.Random(seed).sample(group, len(group)) for group in groups]
    random.Random(seed).shuffle(shuffled)
    turns = range(max(map(len, groups), default=0))
    return [group[turn] for turn in turns for group in shuffled if turn < len(group)][:count]


def read_done(path: Path | None) -> list[Row]:
    is_there = path is not None and path.is_file()
    return [json.loads(line) for line in path.read_text().splitlines()] if path and is_there else []


def append_done(path: Path | None, row: Row) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def error_of(row: Row) -> float:
    return abs(float(row["estimate_us"]) / float(row["time_us"]) - 1)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Errors, bars and refusals by family and chip, and which of kernel and XLA is faster."""
    yield "\n| family | chip | rows | refused | median error | p90 | worst | in bar | median bar |"
    yield "|---|---|---|---|---|---|---|---|---|"
    groups = grouped(rows, lambda row: (row["family"], row["chip"]))
    for (family, chip), chosen in [*sorted(groups.items()), (("all", "all"), list(rows))]:
        yield f"| {family} | {chip} | {len(chosen)} | {_errors(chosen)} |"
    yield f"\n{_faster(rows)}"


def _errors(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if row["estimate_us"] is not None]
    refused = str(len(rows) - len(timed))
    if not timed:
        return f"{refused} | | | | |"
    errors = sorted(map(error_of, timed))
    barred = [row for row in timed if row["bar"] is not None]
    within = sum(error_of(row) <= row["bar"] for row in barred)
    bar = f"{median(row['bar'] for row in barred):.1%}" if barred else ""
    return (
        f"{refused} | {median(errors):.1%} | {p90(errors):.1%} | {errors[-1]:.1%} | "
        f"{within} of {len(barred)} | {bar}"
    )


def _faster(rows: Sequence[Row]) -> str:
    """Of problems that both a kernel and plain XLA were measured for."""
    timed = {_problem(row): row for row in rows if row["estimate_us"] is not None}
    right = wrong = 0
    for (chip, family, problem), kernel in timed.items():
        for name in _RIVALS.get(family, ()):
            plain = timed.get((chip, name, problem))
            if plain and abs(kernel["time_us"] / plain["time_us"] - 1) > _APART:
                is_faster = kernel["time_us"] < plain["time_us"]
                right += is_faster == (kernel["estimate_us"] < plain["estimate_us"])
                wrong += is_faster != (kernel["estimate_us"] < plain["estimate_us"])
    return (
        f"Kernel or plain XLA: right in {right} of {right + wrong} pairs that differ by more than "
        f"{_APART:.0%}."
    )


def _problem(row: Row) -> tuple[str, str, str]:
    return row["chip"], row["family"], json.dumps(row["problem"], sort_keys=True)
