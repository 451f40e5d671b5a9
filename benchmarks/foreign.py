"""How many kernels of packages are estimated and published, with ten lines of the user at most?

    python -m benchmarks foreign --folder DIR [--only WORD] [--limit S] [--write]
        [--python PACKAGE=INTERPRETER ...]

Each kernel of benchmarks/foreign.toml is searched as a user would, with its lines in a file. None
is of the catalogue. What is finished is kept in the folder, so the same command goes on. A check
*crosses borders* where it ran the whole problem, or, of a smaller one, two blocks at least along
each axis of the grid that has several.
``--python``: the interpreter that has a package, and what needs the same JAX. ``--write`` puts the
table into docs/results/field.md. All times are estimates; no TPU was used.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.documents import markdown_table, show

HEAD = ("kernel", "package", "lines", "estimated", "published", "crosses borders", "what came out")
CHIP, TRIALS = "v6e", 3

_FILE = Path(__file__).with_suffix(".toml")
_GOALS = (0.90, 0.85)

Entry = Mapping[str, Any]
Answer = dict[str, Any]
Row = tuple[Entry, Answer]


def entries() -> list[Entry]:
    listed: list[Entry] = tomllib.loads(_FILE.read_text(encoding="utf-8"))["kernel"]
    return listed


def lines(entry: Entry) -> int:
    """That the user writes."""
    return sum(bool(line.strip()) for line in entry["lines"].splitlines())


def searched(entry: Entry, folder: Path, python: str, limit: float) -> Answer:
    """The JSON of the command, or an ``error``; what was finished is read."""
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:12]
    place = folder / f"{entry['name']}-{digest}"
    file = place / "answer.json"
    if file.exists():
        earlier: Answer = json.loads(file.read_text(encoding="utf-8"))
        return earlier
    place.mkdir(parents=True, exist_ok=True)
    source = place / f"{entry['name']}.py"
    source.write_text(entry["lines"], encoding="utf-8")
    command = [sys.executable, "-m", "autotune", "search", f"{source}:{entry['name']}"]
    command += ["--args", entry["args"], "--chip", CHIP, "--trials", str(TRIALS)]
    command += ["--python", python, "--db", str(place / "results.db"), "--compilers", "1"]
    command += ["--candidate-timeout", str(limit)]
    done = _run([*command, "--json"])
    try:
        answer: Answer = json.loads(done.stdout)
    except ValueError:
        answer = {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]}
    if answer.get("outcomes") and not is_published(answer):  # the same trials, with their reasons
        reasons = re.findall(r"(?m)^  \d+ × .*|^  wrong result.*", _run(command).stdout)
        answer["reason"] = "; ".join(map(str.strip, reasons)) or answer["reason"]
    file.write_text(json.dumps(answer), encoding="utf-8")
    return answer


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    wide = os.environ | {"COLUMNS": "500"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=wide)


def is_estimated(answer: Answer) -> bool:
    """What the gate refuses afterwards was estimated, too."""
    return bool(answer.get("outcomes", {}).get("estimated") or answer.get("wrong"))


def is_published(answer: Answer) -> bool:
    return answer.get("record") is not None


def crosses(answer: Answer) -> bool:
    """Whether the check of what was published did."""
    proof = (answer.get("record") or {}).get("proof")
    if not proof:
        return False
    dims = answer["key"]["problem"]["dims"]
    if all(f"{name}={size}," in proof["ran"] for name, size in dims.items()):
        return True
    several = [walked or 0 for walked, whole in proof["covered"]["blocks"] if whole != 1]
    return bool(several) and min(several) > 1


def outcome(answer: Answer) -> str:
    """Its time and its check, or the reason for none."""
    record = answer.get("record")
    if record is None:
        return str(answer.get("error") or answer.get("reason") or "nothing was estimated")
    time_us = record["estimate"]["time_us"]
    return f"{time_us:.1f} µs; {record['verification']}"


def row(entry: Entry, answer: Answer) -> list[str]:
    marks = (is_estimated(answer), is_published(answer), crosses(answer))
    named = [entry["name"], entry["package"], str(lines(entry))]
    return [*named, *("yes" if mark else "no" for mark in marks), outcome(answer)]


def text(rows: list[Row]) -> str:
    answers = [answer for _, answer in rows]
    marks = {"estimated": is_estimated, "published on a check that crosses borders": crosses}
    counts = ", ".join(
        f"{sum(map(is_so, answers))} {name} ({sum(map(is_so, answers)) / len(rows):.0%}, "
        f"{goal:.0%} wanted)"
        for goal, (name, is_so) in zip(_GOALS, marks.items(), strict=True)
    )
    table = markdown_table(HEAD, *(row(*each) for each in rows))
    beside = sum(outcome(answer).partition("; ")[2].startswith("correct") for answer in answers)
    heading = f"{len(rows)} kernels on {CHIP}, {TRIALS} trials each: {counts}."
    return f"{heading} {beside} are verified beside a reference.\n\n{table}"


def _rows(args: argparse.Namespace) -> Iterator[Row]:
    pythons = dict(word.partition("=")[::2] for word in args.python)
    for entry in entries():
        python = pythons.get(entry["package"].split()[0])
        if python and args.only in f"{entry['package']} {entry['name']}":
            answer = searched(entry, args.folder, python, args.limit)
            print(*row(entry, answer), sep=" | ", flush=True)
            yield entry, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--only", default="", help="those with this in package and name")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=INTERPRETER")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one question")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    printed = text(list(_rows(args)))
    show(printed, "results/field.md", "foreign", write=args.write)
