"""How much of a kernel's time has a line of source, and what does a profile cost?

    python -m benchmarks profile [--kernel NAME] [--chip CHIP] [--folder DIR] [--write]

Every kernel of the catalogue is compiled with its default config on every chip, then again with the
lines of its source, each twice in the same process: the second counts. What is finished is kept in
the folder. ``--write`` puts the table into docs/results/profile.md. No TPU was used.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import CompileConfig
from autotune.domain.key import parse_chip
from autotune.domain.profile import Profile
from autotune.searching.one_config import config_judge
from autotune.searching.subject import describe_subject
from benchmarks.catalogue import CASES, CHIPS, CatalogueSearch
from benchmarks.harness.documents import markdown_table, write_below_mark

_GOAL_SHARE, _GOAL_TIMES = 0.85, 2.5


def profiled(
    case: CatalogueSearch, chip: str, folder: Path, plain: CompilerPool, lines: CompilerPool
) -> Mapping[str, Any]:
    """``shares``: of the cycles that the core issues or stalls; seconds of the compiles; or an
    ``error``. What was finished before is read."""
    file = folder / f"{str(case).replace(' ', '_')}-{chip}.json"
    if file.exists():
        earlier: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return earlier
    words = ProblemWords(shape=case.shape, options=case.options)
    subject = describe_subject(plain, find_kernel(case.kernel), parse_chip(chip), words)
    config = config_judge(plain, subject).default
    seconds = []
    for pool, kind in ((plain, CompileConfig), (lines, ProfileConfig)):
        for _ in range(2):
            started = time.perf_counter()
            answer: Any = pool.ask(subject.question(kind, config=config))
        seconds.append(time.perf_counter() - started)
    if not isinstance(answer, Profiled) or answer.refusal:
        return {"error": getattr(answer, "refusal", "") or str(answer)}
    result = {**_shares(answer.profiles), "seconds": seconds}
    file.write_text(json.dumps(result), encoding="utf-8")
    return result


def _shares(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Waits for DMAs are left out: they are no line's, but where a kernel itself waits."""
    core: dict[str, int] = {}
    for row in (row for profile in profiles for row in profile.rows):
        cycles = sum(n for cause, n in row.cycles if not cause.is_wait)
        core[row.part or "line"] = core.get(row.part or "line", 0) + cycles
    whole = sum(core.values())
    return {"shares": {name: cycles / whole for name, cycles in core.items()}}


def row(case: CatalogueSearch, chip: str, answer: Mapping[str, Any]) -> list[str]:
    name = " ".join((case.kernel, *case.options))
    if "error" in answer:
        return [name, chip, "–", f"nothing: {answer['error']}", "–"]
    shares, (plain, lines) = answer["shares"], answer["seconds"]
    parts = [(s, part) for part, s in shares.items() if part != "line" and s >= 0.005]
    rest = ", ".join(f"{part} {s:.0%}" for s, part in sorted(parts, reverse=True))
    return [name, chip, f"{shares.get('line', 0):.0%}", rest, f"{lines / plain:.1f}"]


def report(answers: Sequence[tuple[CatalogueSearch, str, Mapping[str, Any]]]) -> str:
    good = [answer for _, _, answer in answers if "error" not in answer]
    shares = [answer["shares"].get("line", 0.0) for answer in good]
    own = [
        share / (1 - answer["shares"].get("steps of the pipeline", 0.0))
        for share, answer in zip(shares, good, strict=True)
    ]
    times = [answer["seconds"][1] / answer["seconds"][0] for answer in good]
    summary = (
        f"{len(good)} of {len(answers)} have a profile. On a line of source: median "
        f"{median(shares):.0%} of the cycles that the core issues or stalls, at least "
        f"{_GOAL_SHARE:.0%} in {sum(s >= _GOAL_SHARE for s in shares)} of {len(good)}. Without the "
        f"steps of the pipeline, which are no kernel's: median {median(own):.0%}, at least "
        f"{_GOAL_SHARE:.0%} in {sum(s >= _GOAL_SHARE for s in own)} of {len(good)}. The compile "
        f"with lines takes {median(times):.1f} times as long (median), at most {max(times):.1f}; "
        f"{sum(t <= _GOAL_TIMES for t in times)} of {len(good)} at most {_GOAL_TIMES}."
    )
    head = ["kernel", "chip", "on a line", "the rest", "compile, times"]
    return f"{summary}\n\n{markdown_table(head, *(row(*answer) for answer in answers))}"


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--kernel")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--folder", type=Path, default=Path("profiles"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    answers = []
    with CompilerPool(1) as plain, CompilerPool(1) as lines:
        for case in (case for case in CASES if options.kernel in (None, case.kernel)):
            for chip in (chip for chip in case.chips if options.chip in (None, chip)):
                answer = profiled(case, chip, options.folder, plain, lines)
                answers.append((case, chip, answer))
                print(*row(*answers[-1]), sep=" | ", flush=True)
    print(report(answers).partition("\n")[0])
    if options.write:
        write_below_mark("results/profile.md", "profile", report(answers))
    return 0
