"""How many kernels get a change that saves a tenth of their time, and passes the gate?

    python -m benchmarks findings [--only WORD] [--seconds S] [--folder DIR] [--write]
        [--python NAME=INTERPRETER]

Each entry of benchmarks/findings.json, which stood before the first finding, is advised on in an
order drawn once. What is finished is kept in the folder, so the same command goes on. ``--python``:
the interpreter that has the packages of the entries for *jax 0.12* or *sglang*. ``--write`` puts
the table, with all misses, into docs/results/findings.md. All times are estimates; no TPU was used.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.documents import markdown_table, write_below_mark

_GOAL_GAIN, _GOAL_SHARE = 0.10, 1 / 3
_NAIVE = "written naively"
_LIMIT_S = 900.0
_ENTRIES = Path(__file__).with_suffix(".json")

Entry = Mapping[str, Any]
Row = tuple[Entry, Mapping[str, Any]]
"""An entry, and what the command said of it: empty where it was not run."""


def entries() -> list[Entry]:
    """In their order."""
    listed: list[Entry] = json.loads(_ENTRIES.read_text(encoding="utf-8"))
    Random(0).shuffle(listed)
    return listed


def advised(entry: Entry, folder: Path, pythons: Mapping[str, str], *, run: bool) -> dict[str, Any]:
    """The JSON of the command, or an ``error``; what was finished is read."""
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:12]
    file = folder / f"{digest}.json"
    if file.exists():
        earlier: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return earlier
    python = pythons.get(entry["python"], "")
    if not run or (entry["python"] and not python):
        return {}
    answer = _asked(entry, python)
    file.write_text(json.dumps(answer), encoding="utf-8")
    return answer


def _asked(entry: Entry, python: str) -> dict[str, Any]:
    kernel, more = entry["kernel"], ["--python", python] if python else []
    if python:
        where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
        kernel = kernel.replace("{site-packages}", packages)
    command = [sys.executable, "-m", "autotune", "advise", kernel, *entry["words"]]
    command += ["--chip", entry["chip"], "--config", entry["config"], *more, "--json"]
    command += ["--compilers", "1"]  # a second one did not find the stand-ins
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes more than {_LIMIT_S:.0f} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]}
    return answer


def _changes(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of all that saves time and is right, alone or together."""
    return [change for each in _right(answer) for change in each["changes"]]


def _right(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the gate has passed."""
    advice = answer.get("advice") or {}
    listed = [advice.get("together"), *advice.get("findings", ())]
    return [each for each in listed if each and each["verdict"]["ok"]]


def _best(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What saves the most of what the gate has passed."""
    return min(_right(answer), key=lambda each: each["after_us"], default=None)


def gain(answer: Mapping[str, Any]) -> float:
    """The share that the best finding saves; 1 for what compiles only with it."""
    best = _best(answer)
    if best is None:
        return 0.0
    return 1.0 - best["after_us"] / best["before_us"] if best["before_us"] else 1.0


def row(entry: Entry, answer: Mapping[str, Any]) -> list[str]:
    kernel = entry["kernel"].removeprefix("{site-packages}/")
    cells = [entry["group"], f"{kernel} {_problem(entry)}".strip(), entry["chip"], entry["config"]]
    advice, best = answer.get("advice"), _best(answer)
    if advice is None:
        return [*cells, "–", "–", answer.get("error") or "not run"]
    time_us = advice["time_us"]
    before = f"{time_us:,.0f}" if time_us else "does not compile"
    if best is None:
        refused = len(advice["wrong"])
        unsure = [each for each in advice["findings"] if not each["verdict"]["ok"]]
        said = f"nothing; {advice['tried']} tried"
        said += f", {refused} refused by the gate" * bool(refused)
        said += f", {len(unsure)} could not be checked" * bool(unsure)
        reason = advice.get("reason", "")
        said = reason[:150] if reason and not advice["findings"] else said
        return [*cells, before, "–", said]
    kinds = " and ".join(_kind(change) for change in best["changes"])
    bar = f"{gain(answer):.0%} ± {best['margin']:.0%}" if time_us else "makes it compile"
    return [*cells, before, bar, kinds]


def _kind(change: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (change["kind"], change.get("value", ""))))


def _problem(entry: Entry) -> str:
    return " ".join(word for word in entry["words"] if not word.startswith("--"))


def report(rows: Sequence[Row]) -> str:
    ran = [(entry, answer) for entry, answer in rows if answer]
    head = ["group", "kernel", "chip", "config", "µs", "saved", "by"]
    groups = ". ".join(
        _share(name.capitalize(), group) for name, group in sorted(_by_group(ran).items())
    )
    kinds = Counter(kind for _, answer in ran for kind in {c["kind"] for c in _changes(answer)})
    counted = ([kind, str(count)] for kind, count in kinds.most_common())
    others = [pair for pair in ran if pair[0]["group"] != _NAIVE]
    ordered = sorted(rows, key=lambda pair: (-gain(pair[1]), not pair[1]))
    return (
        f"{len(ran)} of {len(rows)} entries were run. {_share('Of these', ran)}; "
        f"the goal is {_GOAL_SHARE:.0%}. {_share(f'Without what is {_NAIVE}', others)}. "
        f"{groups}.\n\n{markdown_table(['kind of finding', 'kernels'], *counted)}\n\n"
        f"{markdown_table(head, *(row(*pair) for pair in ordered))}"
    )


def _by_group(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for entry, answer in rows:
        groups.setdefault(entry["group"], []).append((entry, answer))
    return groups


def _share(name: str, rows: Sequence[Row]) -> str:
    enough = sum(gain(answer) >= _GOAL_GAIN for _, answer in rows)
    return f"{name} {enough} of {len(rows)} save at least {_GOAL_GAIN:.0%}"


def _rows(args: argparse.Namespace) -> Iterator[Row]:
    ends, pythons = time.monotonic() + args.seconds, dict(p.split("=", 1) for p in args.python)
    for number, entry in enumerate(entries()):
        mine = number % args.of == args.part and args.only in f"{entry['kernel']} {entry['group']}"
        run = mine and time.monotonic() < ends
        answer = advised(entry, args.folder, pythons, run=run)
        if mine and answer:
            print(*row(entry, answer), sep=" | ", flush=True)
        yield entry, answer


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--only", default="", help="entries whose kernel or group has this word")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no entry begins after that")
    parser.add_argument("--folder", type=Path, default=Path("build/findings"))
    parser.add_argument("--python", action="append", default=[], metavar="NAME=INTERPRETER")
    parser.add_argument("--part", type=int, default=0, help="of the entries, from 0")
    parser.add_argument("--of", type=int, default=1, help="so many parts")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    text = report(list(_rows(args)))
    print(text.partition("\n")[0])
    if args.write:
        write_below_mark("results/findings.md", "findings", f"## The list\n\n{text}")
    return 0
