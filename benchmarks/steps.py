"""How near does ``autotune step`` come to steps of whole models that others have measured?

    python -m benchmarks steps --rows PATH/steps.jsonl [--budget 1500] [--only 8B] [--done FILE]
    python -m benchmarks steps --show FILE [--write]

Rows are MaxText's recipes (AI-Hypercomputer/tpu-recipes), and those of ``steps_of_others.jsonl``,
which says where each is from. The llamas that are trained are built anew in plain JAX
(``benchmarks/kernels/llama.py``) with the settings and compiler options of the row; MaxText's own
code and the JAX of the recipe are others. The rest is MaxText's own code (``maxtext_step.py``) and
tpu-inference's (``served_step.py``), under ``--python``, an interpreter that has their releases
0.2.5 and 0.32.0: what those or their libtpu do not take is left out. Nothing is chosen on them.
Before them come four and eight layers in a scan, and decode steps of a llama of 8B. ``--budget``:
seconds of compiling for each; 0 is the first answer. What FILE has under the same budget is not
done again.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compiler_options import over
from autotune.domain.compilers import CompileStep
from autotune.domain.key import Chip
from autotune.domain.step import Basis, Step
from autotune.publishing.step import LIMIT_AFTER_S, timed_step
from autotune.wording.outcome import reason_of
from benchmarks.harness.documents import markdown_table, show

_KERNELS = Path(__file__).with_name("kernels")
_OTHERS = Path(__file__).with_name("steps_of_others.jsonl")
_TRAIN, _DECODE = "state=STATE,tokens=TOKENS", "weights=WEIGHTS,cache=CACHE,tokens=NEXT,places=NEXT"
_REFUSED = "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true"  # by libtpu 0.0.50
_SLICES = {
    4: (2, 2),
    8: (2, 4),
    16: (4, 4),
    32: (4, 8),
    64: (8, 8),
    128: (8, 16),
    256: (16, 16),
    512: (16, 32),
}
_LLAMAS: dict[str, dict[str, int]] = {
    "llama3.1-8b": {},
    "llama3.1-405b": {"layers": 126, "emb": 16384, "mlp": 53248, "heads": 128},
    "llama2-70b": {"layers": 80, "emb": 8192, "mlp": 28672, "heads": 64, "vocab": 32000},
}
_PARTS = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute")
_BLOCKS = [f"sa_block_{part}" for part in _PARTS]
_V5P_SLICES = {8: (2, 2, 1), 256: (4, 4, 8), 1024: (8, 8, 8)}
_DECODED = {
    "16 sequences of 2,048": {},
    "again": {},
    "33 layers": {"layers": 33},
    "24 sequences": {"sequences": 24},
    "pages, 4 in a block": {"pages_per_compute_block": 4},
    "pages, 8 in a block": {"pages_per_compute_block": 8},
    "pages, 8 in a block, again": {"pages_per_compute_block": 8},
}
_MEMORY_BYTES = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``settings``: of the model; ``measured_s``: None where nobody has. ``python``: for code of a
    package."""

    name: str
    file: str = "llama.py"
    function: str
    python: str = sys.executable
    call: str
    chip: Chip
    settings: dict[str, Any]
    bounds: tuple[int, ...] = ()
    options: str = ""
    measured_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=Path, help="steps.jsonl")
    parser.add_argument("--python", default="", help="an interpreter with MaxText, tpu-inference")
    parser.add_argument("--budget", type=float, default=0.0)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--done", type=Path, help="JSON lines of cases; continued where it is")
    parser.add_argument("--show", type=Path, help="such a file: its table alone")
    parser.add_argument("--write", action="store_true", help="the table to docs/results/steps.md")
    args = parser.parse_args()
    done = _read(args.show or args.done)
    for case in () if args.show else _cases(args.rows, args.python):
        key = [case.name, args.budget]
        if args.only in case.name and all(row["key"] != key for row in done):
            done.append({"key": key, **_answer(case, args.budget)})
            print(json.dumps(done[-1]), flush=True)
            if args.done:
                with args.done.open("a") as file:
                    print(json.dumps(done[-1]), file=file)
    text = _table(done)
    show(text, "results/steps.md", "steps", write=args.write)


def _read(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def _cases(rows: Path | None, python: str) -> Iterator[Case]:
    for name in ("FOUR", "EIGHT"):
        call = f"weights={name},x=X"
        yield Case(
            name=f"{name.lower()} layers of 2,048 × 8,192 in a scan",
            function="forward",
            call=call,
            chip=Chip.V5E,
            settings={},
        )
    for of, settings in _DECODED.items():
        yield Case(
            name=f"decode of a llama of 8B, {of}",
            function="decode",
            call=_DECODE,
            chip=Chip.V6E,
            settings=settings,
        )
    for row in _published(rows) if rows else ():
        if row["model_type"] in _LLAMAS:
            case = _of_llama(row)
            yield case
            if case.name.endswith("/v6e-8"):
                blocks = {**case.settings, **dict.fromkeys(_BLOCKS, 1024)}
                for of, settings in (("blocks of 1,024", blocks), ("again", case.settings)):
                    name = f"{case.name}, {of}"
                    yield replace(case, name=name, settings=settings, measured_s=None)
        elif python:
            yield _of_package(row, python)


def _published(rows: Path) -> list[dict[str, Any]]:
    """Those with a time and settings, which others may have said elsewhere."""
    published: dict[str, dict[str, Any]] = {}
    for line in [*rows.read_text().splitlines(), *_OTHERS.read_text().splitlines()]:
        row = json.loads(line)
        published.setdefault(row["recipe"], {}).update(row)
    return [row for row in published.values() if row["side"] == "given" and "settings" in row]


def _of_llama(row: dict[str, Any]) -> Case:
    slices = row["settings"].get("dcn_fsdp_parallelism", 1)  # as one that is larger
    return Case(
        name=row["recipe"].removeprefix("training/trillium/"),
        function="train",
        call=_TRAIN,
        chip=Chip(row["chip"]),
        settings=_LLAMAS[row["model_type"]] | row["settings"],
        bounds=_SLICES[int(row["device_type"].partition("-")[2]) * slices],
        options=row["compiler_flags"] or "",
        measured_s=row["step_s"],
    )


def _of_package(row: dict[str, Any], python: str) -> Case:
    chips = int(row["device_type"].partition("-")[2])
    flags = (row["compiler_flags"] or "").split()
    is_served = "sequences" in row["settings"]
    topology = {"model": row["model_type"], "topology": row["device_type"]}
    return Case(
        name=row["recipe"].removeprefix("training/").removeprefix("trillium/"),
        file="served_step.py" if is_served else "maxtext_step.py",
        function="decode" if is_served else "train",
        python=python,
        call="state=STATE,caches=CACHES,tokens=TOKENS,places=TOKENS" if is_served else "",
        chip=Chip(row["chip"]),
        settings=row["settings"] if is_served else {**topology, "settings": row["settings"]},
        bounds=_V5P_SLICES[chips] if row["chip"] == "v5p" else _SLICES[chips],
        options=" ".join(flag for flag in flags if flag != _REFUSED),
        measured_s=row["step_s"],
    )


def _answer(case: Case, budget_s: float) -> dict[str, Any]:
    os.environ["AUTOTUNE_STEP"] = json.dumps(case.settings)
    question = CompileStep(
        ref=replace(find_kernel(f"{_KERNELS / case.file}:{case.function}"), call=case.call),
        chip=case.chip,
        bounds=case.bounds,
        budget_s=budget_s,
        options=over("", case.options),
    )
    started, before_s, limit_s = time.monotonic(), _processor_s(), budget_s + LIMIT_AFTER_S
    with CompilerPool(1, python=case.python, limit_s=limit_s, memory_bytes=_MEMORY_BYTES) as pool:
        timed = timed_step(pool, question)
    took: dict[str, Any] = {"chip": case.chip, "measured_s": case.measured_s}
    took |= {"took_s": time.monotonic() - started, "processor_s": _processor_s() - before_s}
    if not isinstance(timed, Step):
        return {**took, "reason": reason_of(timed)}
    return {
        **took,
        "devices": timed.devices,
        "step_s": timed.time_us / 1e6,
        "error": timed.error,
        "flops_share": timed.flops_share,
        "simulated": timed.share_us(Basis.SIMULATED) / timed.time_us,
        "model": timed.model,
        "kinds": {kind: us / timed.time_us for kind, us, _ in timed.sums(lambda p: p.kind)},
    }


def _processor_s() -> float:
    """Of the compilers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("step", "devices", "budget", "measured", "answer", "bar", "off", "simulated", "took")
    return markdown_table((*head, "processor", "simulation"), *map(_row, rows))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    (name, budget_s), measured_s = row["key"], row["measured_s"]
    if "reason" in row:
        return name, row["chip"], f"{budget_s:.0f} s", "", row["reason"], *[""] * 6
    off = f"{row['step_s'] / measured_s - 1:+.0%}" if measured_s else "–"
    return (
        name,
        f"{row['devices']} {row['chip']}",
        f"{budget_s:.0f} s",
        _time(measured_s) if measured_s else "–",
        _time(row["step_s"]),
        "unknown" if row["error"] is None else f"± {row['error']:.0%}",
        off,
        f"{row['simulated']:.0%}",
        f"{row['took_s']:.0f} s",
        f"{row['processor_s']:.0f} s" if "processor_s" in row else "–",
        row["model"].rpartition(" ")[2],
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds > 1 else f"{seconds * 1e3:.3f} ms"
