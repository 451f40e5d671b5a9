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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from autotune.estimating.simulator import constants
from benchmarks.calibration.agreement import p90
from benchmarks.calibration.held_out import grouped
from benchmarks.harness.documents import markdown_table
from benchmarks.kernels.tokamax_rules import peak_in_mb

Row = dict[str, Any]
"""chip, family, side, problem, config, time_us, peak_mb, id; what was estimated beside. peak_mb
is of the program that was measured, made_mb of ours."""

ROWS = Path(__file__).parents[1] / "published_rows.jsonl"
"""What is known of rows, so that another machine goes on where this one ends."""
_NOT_KEPT = ("notes", "burst_bytes", "dmas", "relayout_us", "mxu_us")
_LONGEST = 2  # of XLA's operations, those that are kept
GIVEN, HELD = "given", "held"
PALLAS = "pallas_"  # what the families of kernels begin with
_DEVICES = {"tpu7x": "v7x", "tpu_v5": "v5p", "tpu_v5_lite": "v5e", "tpu_v6_lite": "v6e"}
_NEVER_GIVEN = (
    *("batched_rpa", "causal_conv1d_gated_delta_rule", "v2_ragged_dot", "_vjp", "mhc_"),
    *("multi_head_latent_attention", "triangle_multiplication", "ragged_gather", "router_top_k"),
    *("deepseek_rope", "csa_gather", "dsv4_compressor", "lowrank_proj", "proj_and_save_state"),
)
"""Families that nothing was ever chosen on: to see how far the model is from what it never saw."""
_SPLASH = "(_segmented)?(_no)?_residuals"
KERNELS = {
    "mosaic_tpu_flash_attention": f"splash_mqa_fwd{_SPLASH}",
    "mosaic_tpu_splash_attention": f"splash_mha_fwd{_SPLASH}",
    "mosaic_tpu_linear_softmax_cross_entropy_loss": r"lce_fwd_bt_\d+_ht_\d+_vt_\d+",
    "mosaic_tpu_ragged_dot": "pallas_tpu_ragged_dot_(gmm(_transpose_rhs)?|tgmm)",
}
"""What the kernels of each family of given rows are called, as JAX and tokamax name them."""
LARGEST_GRID = 50
_TOP = 3
_LEFT = ("schedule simulation 18", "schedule simulation 19")
_SAME_MB = 0.005  # programs whose memory differs by more at its peak are not the same
_COUNTS = "rows, refused, of another program of those compared, without a bar"
_ERRORS = "median, p90, worst error of others"
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
                        "peak_mb": peak_in_mb(data["peak_memory_mb"]),
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
    of is a sample too. A problem that several families were measured for comes early in all of them
    or late: kernels and their rivals are drawn together."""
    groups = list(grouped(rows, lambda row: (row["family"], row["chip"])).values())
    shuffled = [sorted(group, key=lambda row: _turn(row, seed)) for group in groups]
    random.Random(seed).shuffle(shuffled)
    turns = range(max(map(len, groups), default=0))
    return [group[turn] for turn in turns for group in shuffled if turn < len(group)][:count]


def _turn(row: Row, seed: int) -> str:
    name = f"{seed} {json.dumps(row['problem'], sort_keys=True)}"
    return f"{hashlib.sha256(name.encode()).hexdigest()} {row['id']}"


def read_done(path: Path | None) -> list[Row]:
    is_there = path is not None and path.is_file()
    return [json.loads(line) for line in path.read_text().splitlines()] if path and is_there else []


def append_done(path: Path | None, row: Row) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def brief(row: Row) -> Row:
    """What tables and causes need of it, figures rounded."""
    short = {name: value for name, value in row.items() if name not in _NOT_KEPT and value != 0}
    short["operations"] = sorted(row.get("operations", ()), key=lambda o: -o[3])[:_LONGEST]
    rounded = json.loads(json.dumps(short), parse_float=lambda text: float(f"{float(text):.6g}"))
    return {**rounded, "problem": row["problem"]}


def newest(path: Path, model: str, libtpu: str | None = None) -> list[Row]:
    """Each row once, by this model of time, of any libtpu or of one. Of a row that several libtpus
    compiled, what needs the memory that was measured; of several such, or of none, what is of
    ``measured_with``; of the same libtpu, what was made last."""
    made: dict[str, Row] = {}
    for row in read_done(path):
        is_asked = _is_of(row, model) and libtpu in (None, row["libtpu"])
        if is_asked and _standing(row) >= _standing(made.get(row["id"], {})):
            made[row["id"]] = row
    return [*made.values()]


def _is_of(row: Row, model: str) -> bool:
    """Whether this model of time has estimated it, or that before it, which it leaves as it is: of
    v5e and v6e, and kernels of v5p (ragged dots there get up to 0.25 % longer)."""
    is_left = row["chip"] in ("v5e", "v6e") or (
        row["chip"] == "v5p" and row["family"].startswith(PALLAS)
    )
    return row["model"] == model or ((row["model"], model) == _LEFT and is_left)


def measured_with(chip: str, family: str) -> str:
    """Of two libtpus, that whose programs need the memory that was measured, in rows where one
    alone does; it counts where memory does not tell, too. Such rows are of v5p, 0.0.44 but for
    cross entropies, gathers, triangles and gradients of attention, and of v7x, where attention is
    0.0.44's. Of v5e and v6e no row asks for 0.0.44."""
    newer = any(part in family for part in ("entropy", "gather", "triangle", "attention_vjp"))
    older = not newer if chip == "v5p" else chip == "v7x" and "attention" in family
    return "0.0.44" if older else "0.0.50.1"


def _standing(row: Row) -> tuple[bool, bool, bool]:
    """Comes before another of the same row where it is larger."""
    if not row:
        return False, False, False
    is_preferred = row["libtpu"] == measured_with(row["chip"], row["family"])
    is_estimated = row.get("estimate_us") is not None
    return "made_mb" in row and is_measured(row), is_estimated, is_preferred


def with_present_bar(row: Row) -> Row:
    """With the error bar that the data files have now, where it has one."""
    if row.get("bar") is None:
        return row
    chip, whole_us, xla_us = row["chip"], row["estimate_us"], row.get("xla_us", 0.0)
    runs = row.get("operations_run") or sum(operation[2] for operation in row["operations"])
    plain = constants.xla_error(chip, row.get("by_kind", {}), runs / xla_us if xla_us else 0.0)
    kernel = plain
    if row["limited_by"] != "XLA":
        called = KERNELS.get(row["family"].removeprefix(PALLAS), "")
        kernel = constants.error_bar(chip, row["parts_us"], row.get("steps", 0), timed_as=called)
    if plain is None or kernel is None:
        return row | {"bar": None}
    return row | {"bar": (kernel * (whole_us - xla_us) + plain * xla_us) / whole_us}


def error_of(row: Row) -> float:
    return abs(float(row["estimate_us"]) / float(row["time_us"]) - 1)


def is_measured(row: Row) -> bool:
    """Whether our program needs as much memory as that which was measured, where that is known."""
    measured = float(row.get("peak_mb", 0.0))
    return abs(float(row.get("made_mb", measured)) - measured) <= _SAME_MB * measured


def tables(sides: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Errors, bars and refusals by family and chip, the sides beside each other; when and by which
    model the estimates were made; and which of kernel and XLA is faster."""
    for side, rows in sides.items():
        made = sorted({f"{row['date']}, {row['model']} of {row['commit']}" for row in rows})
        yield f"{side.capitalize()}: {len(rows)} rows, estimated on {'; '.join(made)}."
    heads = [_COUNTS, _ERRORS, "within their bars", "median bar"]
    yield "\n" + markdown_table(
        ["family", "chip", *(f"{side}: {head}" for side in sides for head in heads)], *_lines(sides)
    )
    for side, rows in sides.items():
        yield f"\nKernel or plain XLA, {side}: {_faster(rows)}"


def ranks(rows: Sequence[Row]) -> Iterator[str]:
    """Where the config that was the fastest on a TPU stands among the estimates of its grid, of the
    grids that are whole. Nothing for none."""
    by_grid = [
        g for g in grouped(rows, lambda row: row["tuned"]).values() if len(g) == g[0]["grid"]
    ]
    lines = []
    for (name, chip), grids in sorted(grouped(by_grid, lambda grid: _place(grid[0])).items()):
        places = [_rank(grid) for grid in grids]
        first = sum(place is not None and place <= _TOP for place, _ in places)
        slower = [ratio - 1 for place, ratio in places if place is not None]
        sizes = f"{min(map(len, grids))} to {max(map(len, grids))}"
        standing = ", ".join(str(place or "refused") for place, _ in sorted(places, key=str))
        cost = f"{median(slower):.1%}, {max(slower):.1%}" if slower else ""
        lines.append(
            [name, chip, str(len(grids)), sizes, f"{first} of {len(grids)}", standing, cost]
        )
    if lines:
        yield f"\nThe tuned config in its grid, by estimates, of grids of up to {LARGEST_GRID}:\n"
        yield markdown_table(
            [
                *("family", "chip", "grids", "configs", f"in the first {_TOP}", "ranks"),
                "longer than the first (median, most)",
            ],
            *lines,
        )


def _rank(grid: Sequence[Row]) -> tuple[int | None, float]:
    """Of the tuned config, which is the first, and how much longer than the fastest it takes."""
    times = [row["estimate_us"] for row in grid]
    known = [time for time in times if time is not None]
    if times[0] is None:
        return None, 0.0
    return 1 + sum(time < times[0] for time in known), times[0] / min(known)


def summary(sides: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """The bars by chip, and how far the rows are off, of families that constants were chosen on and
    of others."""
    yield "The bars, without what is added to them:\n"
    timed, chips = constants.bars()["kernels"]["value"], constants.CHIPS
    yield markdown_table(
        ["", *chips],
        *(
            [name, *(f"{timed[pattern][c]:.0%}" if c in timed[pattern] else "" for c in chips)]
            for name, pattern in KERNELS.items()
            if pattern in timed
        ),
        ["other kernels", *(f"{constants.kernel_error(c):.0%}" for c in chips)],
        ["XLA", *(f"{constants.xla_error(c):.0%}" for c in chips)],
    )
    yield "\nThe rows of tokamax:\n"
    heads = [_COUNTS, _ERRORS, "within their bars", "median bar"]
    groups = {
        (name, side): chosen
        for side, rows in sides.items()
        for (name, _), chosen in grouped(rows, _seen).items()
    }
    yield markdown_table(
        ["families", "side", *heads],
        *([name, side, *_cells(groups[name, side])] for name, side in sorted(groups)),
    )


def _lines(sides: Mapping[str, Sequence[Row]]) -> Iterator[list[str]]:
    by_place = {side: grouped(rows, _place) for side, rows in sides.items()}
    everywhere = {side: grouped(rows, _seen) for side, rows in sides.items()}
    for groups in (by_place, everywhere):
        for name, chip in sorted({place for side in groups.values() for place in side}):
            cells = [_cells(groups[side].get((name, chip), [])) for side in sides]
            yield [name, chip, *(cell for side in cells for cell in side)]


def _place(row: Row) -> tuple[str, str]:
    return row["family"].removeprefix(PALLAS), row["chip"]


def _seen(row: Row) -> tuple[str, str]:
    seen = "never seen" if any(part in row["family"] for part in _NEVER_GIVEN) else "seen"
    return f"**{'kernels' if row['family'].startswith(PALLAS) else 'XLA'}, {seen}**", "all"


def _cells(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    """Errors are of the rows that have a bar, and the program that was measured."""
    if not rows:
        return "", "", "", ""
    estimated = [row for row in rows if row["estimate_us"] is not None]
    same = [row for row in estimated if is_measured(row)]
    barred = [row for row in same if row["bar"] is not None]
    others = f"{len(estimated) - len(same)} of {sum('made_mb' in row for row in estimated)}"
    count = f"{len(rows)}, {len(rows) - len(estimated)}, {others}, {len(same) - len(barred)}"
    if not barred:
        return count, "", "", ""
    errors = sorted(map(error_of, barred))
    within = sum(error_of(row) <= row["bar"] for row in barred)
    return (
        count,
        f"{median(errors):.1%}, {p90(errors):.1%}, {errors[-1]:.1%}",
        f"{within} of {len(barred)}",
        f"{median(row['bar'] for row in barred):.1%}",
    )


def _faster(rows: Sequence[Row]) -> str:
    """Of problems that both a kernel and plain XLA were measured for, of the measured programs that
    have a bar. Where the bars of both overlap, nothing is said."""
    apart = list(_apart(rows))
    right = [_is_faster(*pair, "time_us") == _is_faster(*pair, "estimate_us") for pair in apart]
    sure = [good for good, pair in zip(right, apart, strict=True) if not _overlap(*pair)]
    return (
        f"right in {sum(right)} of {len(right)} pairs that differ by more than {_APART:.0%}, in "
        f"{sum(sure)} of the {len(sure)} whose bars do not overlap."
    )


def _apart(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    barred = [row for row in rows if row.get("bar") is not None and is_measured(row)]
    plain = [row for row in barred if not row["family"].startswith(PALLAS)]
    others = grouped(plain, _problem)
    for kernel in barred:
        if kernel["family"].startswith(PALLAS):
            for row in others.get(_problem(kernel), ()):
                far = abs(kernel["time_us"] / row["time_us"] - 1) > _APART
                if far and row["family"].endswith(_stem(kernel)):
                    yield kernel, row


def _stem(kernel: Row) -> str:
    """What the families of plain XLA end with that do the same."""
    name = kernel["family"].removeprefix(PALLAS).removeprefix("mosaic_").removeprefix("tpu_")
    return str(name.removeprefix("v2_").replace("flash_attention", "dot_product_attention"))


def _is_faster(kernel: Row, plain: Row, what: str) -> bool:
    return bool(kernel[what] < plain[what])


def _overlap(*pair: Row) -> bool:
    faster, slower = sorted(pair, key=lambda row: float(row["estimate_us"]))
    high, low = 1 + faster["bar"], 1 - slower["bar"]
    return bool(faster["estimate_us"] * high >= slower["estimate_us"] * low)


def _problem(row: Row) -> tuple[str, str]:
    return row["chip"], json.dumps(row["problem"], sort_keys=True)
