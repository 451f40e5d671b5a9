"""Does every kernel of the catalogue end with a verified record, on every chip?

    python -m benchmarks catalogue [--kernel NAME] [--chip CHIP] [--folder DIR] [--write]

Each is searched by the command, with at most 25 trials. What is finished is kept in the folder, so
the same command goes on where it was. ``--write`` puts the table into
docs/results/catalogue.md. All times are estimates; no TPU was used.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.documents import markdown_table, write_below_mark

TRIALS = 25
TIMEOUT_S = 60  # after which no trial starts: the compiler takes a minute for large blocks on v7x
CHIPS = ("v5e", "v5p", "v6e", "v7x")
_ONE = ("v5e",)
VERIFICATION_LIMIT_S = 20.0

_FLASH = "batch=8,heads=8,q_len=1024,kv_len=1024,head_dim=128"
_SPLASH = "heads=8,kv_heads=2,seq=4096,qk_dim=128,v_dim=128"
_GROUPED = "m=8192,k=2048,n=2048,groups=16"
_PAGED = "batch=32,q_heads=32,kv_heads=8,pages=64,page_size=16,head_dim=128"
_RAGGED = "seqs=32,tokens=1024,q_heads=16,kv_heads=4,pages=64,page_size=16,head_dim=128"


@dataclass(frozen=True, slots=True)
class CatalogueSearch:
    """``chips``: more options of the same kernel are searched on one chip only."""

    kernel: str
    shape: str
    options: tuple[str, ...] = ()
    chips: tuple[str, ...] = CHIPS

    def __str__(self) -> str:
        return " ".join((self.kernel, self.shape, *self.options))


CASES = (
    CatalogueSearch("matmul", "m=4096,k=4096,n=4096"),
    CatalogueSearch("flash_attention", "2x16x4x2048x2048x128", ("causal=true",)),
    CatalogueSearch("rmsnorm", "8192x4096"),
    CatalogueSearch("vector_add", "16777216"),
    CatalogueSearch("tiled_dot", "4194304"),
    CatalogueSearch("gathered_matmul", "tokens=4096,k=2048,n=2048,experts=8"),
    CatalogueSearch("jax_flash_attention", _FLASH),
    CatalogueSearch("jax_flash_attention_dkv", _FLASH, ("causal=true",)),
    CatalogueSearch("jax_flash_attention_dq", _FLASH, ("causal=true",)),
    CatalogueSearch("jax_splash_attention", _SPLASH, ("mask=causal",)),
    CatalogueSearch("jax_splash_attention", _SPLASH, ("mask=local",), _ONE),
    CatalogueSearch("jax_splash_attention", _SPLASH, ("mask=full",), _ONE),
    CatalogueSearch("jax_splash_attention_dkv", _SPLASH),
    CatalogueSearch("jax_splash_attention_dq", _SPLASH),
    CatalogueSearch("jax_splash_attention_fused", _SPLASH),
    CatalogueSearch("jax_gmm", _GROUPED, ("sizes=balanced",)),
    CatalogueSearch("jax_gmm", _GROUPED, ("sizes=skewed",), _ONE),
    CatalogueSearch("jax_tgmm", _GROUPED),
    CatalogueSearch("jax_paged_attention", _PAGED),
    CatalogueSearch("jax_ragged_paged_attention", _RAGGED, ("batch=mixed",)),
)


def searched(case: CatalogueSearch, chip: str, folder: Path) -> Mapping[str, Any]:
    """What the command says as JSON; an earlier answer where there is one."""
    file = folder / f"{str(case).replace(' ', '_')}-{chip}.json"
    if file.exists():
        earlier: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return earlier
    options = [part for option in case.options for part in ("--option", option)]
    autotune = str(Path(sys.executable).with_name("autotune"))
    command = [autotune, "search", case.kernel, "--shape", case.shape, *options, "--chip", chip]
    command += ["--trials", str(TRIALS), "--timeout", str(TIMEOUT_S)]
    command += ["--db", str(folder / "catalogue.db"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"error": done.stderr.strip()[-500:] or f"exit code {done.returncode}"}
    if "error" not in answer:
        file.write_text(json.dumps(answer), encoding="utf-8")
    return answer


def row(case: CatalogueSearch, chip: str, answer: Mapping[str, Any]) -> list[str]:
    problem = " ".join((case.shape, *case.options))
    if answer.get("record") is None:
        said = answer.get("error") or answer["reason"]
        return [case.kernel, problem, chip, "–", "–", "–", "–", "–", f"nothing: {said}", "–", "–"]
    record, winner = answer["record"], answer["winner"]
    estimate = winner["outcome"]["estimate"]
    default_us, time_us = record["default"]["time_us"], estimate["time_us"]
    return [
        case.kernel,
        problem,
        chip,
        f"{default_us:,.0f}" if default_us else record["default"]["note"],
        f"{time_us:,.0f}",
        f"{default_us / time_us:.2f}" if default_us else "–",
        _config(record["config"]),
        f"{record['baseline']['note'].split(':')[0]}",
        f"{estimate['limited_by']}; {record['reason'] if record['is_default'] else 'verified'}",
        str(sum(answer["outcomes"].values())),
        f"{answer['verification_s']:.0f}",
    ]


def _config(config: Mapping[str, Any]) -> str:
    parts = [f"{name}={value}" for name, value in config["axes"].items()]
    limit = config["vmem_limit_bytes"]
    return " ".join(parts + ([f"vmem={limit // 2**20}MiB"] if limit else []))


def table(rows: Sequence[Sequence[str]]) -> str:
    head = [
        "kernel",
        "problem",
        "chip",
        "default µs",
        "winner µs",
        "×",
        "winner",
        "plain XLA",
        "kind; record",
        "trials",
        "verified in s",
    ]
    return markdown_table(head, *rows)


def summary(answers: Sequence[Mapping[str, Any]]) -> str:
    records = [a for a in answers if a.get("record")]
    tuned = [a for a in records if not a["record"]["is_default"]]
    longest = max((a["verification_s"] for a in records), default=0.0)
    return (
        f"{len(answers)} searches of at most {TRIALS} trials: {len(records)} ended with a verified "
        f"record, {len(tuned)} of them faster than the default; the longest verification took "
        f"{longest:.0f} s (must be at most {VERIFICATION_LIMIT_S:.0f})."
    )


def wanted(kernel: str | None, chip: str | None) -> Iterator[tuple[CatalogueSearch, str]]:
    for case in CASES:
        for name in case.chips:
            if kernel in (None, case.kernel) and chip in (None, name):
                yield case, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--folder", type=Path, default=Path("build/catalogue"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    todo, rows, answers = list(wanted(args.kernel, args.chip)), [], []
    for number, (case, chip) in enumerate(todo, start=1):
        answer = searched(case, chip, args.folder)
        answers.append(answer)
        rows.append(row(case, chip, answer))
        print(f"{number}/{len(todo)} {case} on {chip}: {' · '.join(rows[-1][3:])}", flush=True)
    print(f"\n{table(rows)}\n\n{summary(answers)}")
    if args.write:
        page = f"{summary(answers)}\n\n{table(rows)}"
        write_below_mark("results/catalogue.md", "catalogue", page)
    return 0 if all(a.get("record") or a.get("reason") for a in answers) else 1
