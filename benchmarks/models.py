"""Of the Pallas calls of models that others have written, how many are problems?

    python -m benchmarks models [--model WORDS] [--kept FOLDER] [--write]

The models are those of ``tests/samples/models/models.toml``, traced with abstract weights, where
the variable that it names has an interpreter with their package, with ``--declare``. The share of
problems and declared functions is by weight. ``--kept``: what was found is put there, and not
looked for again. ``--write``: the table is put into docs/results.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.documents import markdown_table, show

FOLDER = Path(__file__).parents[1] / "tests" / "samples" / "models"
HEAD = (
    "model",
    "package",
    "step",
    "calls",
    "problems",
    "declared",
    "undeclared",
    "share",
    "seconds",
)

_DECLARED = "declared.py"

Model = dict[str, Any]


def models() -> list[Model]:
    text = (FOLDER / "models.toml").read_text(encoding="utf-8")
    listed: list[Model] = tomllib.loads(text)["model"]
    return listed


def collected(model: Model) -> dict[str, Any]:
    """What ``autotune collect`` finds, and in how many seconds."""
    words = ("--args", model["args"], "--chip", model.get("chip", "v6e"), "--json")
    python = ("--python", os.environ[model["python"]])
    command = [sys.executable, "-m", "autotune", "collect", model["call"], *words, *python]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command += ["--declare", f"{folder}/{_DECLARED}"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"problems": [], "undeclared": [], "error": done.stderr.strip()[-500:], "seconds": 0}
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"seconds": round(time.monotonic() - started)}


def kept(model: Model, folder: Path | None) -> dict[str, Any]:
    """From an earlier run, or found now."""
    file = folder and folder / f"{model['package']} {model['name']} {model['args']}.json"
    if file is not None and file.is_file():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    found = collected(model)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return found


def row(model: Model, found: dict[str, Any]) -> list[str]:
    known = sum(problem["weight"] for problem in found["problems"])
    calls = known + sum(kernel["weight"] for kernel in found["undeclared"])
    share = f"{known / calls:.0%}" if calls else found["error"].splitlines()[-1]
    words = (word.partition("=") for word in model["args"].split(", "))
    step = ", ".join(f"{name} {value.strip(chr(39))}" for name, _, value in words)
    declared = sum(_DECLARED in problem["kernel"] for problem in found["problems"])
    kinds = (len(found["problems"]) - declared, declared, len(found["undeclared"]))
    counts = (f"{calls:g}", *map(str, kinds))
    return [model["name"], model["package"], step, *counts, share, str(found["seconds"])]


def rows(args: argparse.Namespace) -> Iterator[list[str]]:
    for model in models():
        if args.model in f"{model['package']} {model['name']}" and model["python"] in os.environ:
            yield row(model, kept(model, args.kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="", help="those with these words in package and name")
    parser.add_argument("--kept", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    table = markdown_table(HEAD, *rows(args))
    show(table, "results/whole-model.md", "models", write=args.write)
