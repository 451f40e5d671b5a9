"""How much of a kernel's time has a line of source, and what does a profile cost?

    python -m benchmarks profile [--kernel NAME] [--chip CHIP] [--folder DIR] [--untimed] [--write]

Every kernel of the catalogue is compiled with its default config on every chip, then again with the
lines of its source, each twice in the same process: the second counts. Or, with ``--untimed``, only
once with lines. Then the winner that stands
in docs/results/catalogue.md has a profile. What is finished is kept in the folder. ``--write`` puts
the table into docs/results/profile.md. No TPU was used.
"""

import argparse
import json
import time
from collections import Counter
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
from autotune.domain.profile import Cause, Profile
from autotune.searching.one_config import config_judge
from autotune.searching.subject import describe_subject
from benchmarks.catalogue import CASES, CHIPS, CatalogueSearch
from benchmarks.harness.documents import DOCS, markdown_table, write_below_mark

_GOAL_SHARE, _GOAL_TIMES = 0.85, 2.5
_WAITS = Cause.HBM, Cause.LATENCY, Cause.LINKS
_LINES = _BODY, _MAPS = "lines of the body", "index maps"


def winner(case: CatalogueSearch, chip: str) -> str:
    """Of the table of the catalogue."""
    problem = " ".join((case.shape, *case.options))
    for line in (DOCS / "results" / "catalogue.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:3] == [case.kernel, problem, chip]:
            return cells[6].replace(" ", ",")
    return "default"


def profiled(
    case: CatalogueSearch,
    chip: str,
    folder: Path,
    pools: Sequence[CompilerPool],
    text: str = "default",
    *,
    timed: bool = True,
) -> Mapping[str, Any]:
    """Of the default, with the seconds of both compiles, or of the config in ``text``. ``shares``:
    of the cycles that the core issues or stalls; or an ``error``. What was finished is read."""
    kind = "" if text == "default" else "-winner"
    file = folder / f"{str(case).replace(' ', '_')}-{chip}{kind}.json"
    if file.exists():
        earlier: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return earlier
    if not pools:
        return {}
    plain, lines = pools
    words = ProblemWords(shape=case.shape, options=case.options)
    subject = describe_subject(plain, find_kernel(case.kernel), parse_chip(chip), words)
    config = config_judge(plain, subject).read(text)
    seconds = []
    timed = timed and not kind
    for pool, asked in ((plain, CompileConfig), (lines, ProfileConfig))[not timed :]:
        for _ in range(1 + timed):
            started = time.perf_counter()
            answer: Any = pool.ask(subject.question(asked, config=config))
        seconds.append(time.perf_counter() - started)
    if not isinstance(answer, Profiled) or answer.refusal:
        return {"error": getattr(answer, "refusal", "") or str(answer)}
    result = {**_shares(answer.profiles), **({"seconds": seconds} if timed else {})}
    file.write_text(json.dumps(result), encoding="utf-8")
    return result


def _shares(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Waits for DMAs are left out: they are no line's, but where a kernel itself waits. What the
    lines of index maps have of the steps of the pipeline stands apart from the other lines."""
    core = Counter[str]()
    for row in (row for profile in profiles for row in profile.rows):
        cycles = sum(n for cause, n in row.cycles if cause not in _WAITS)
        moved = row.steps if row.frames else 0
        core.update({row.part or _BODY: cycles - moved, _MAPS: moved})
    return {"shares": {name: cycles / core.total() for name, cycles in core.items()}}


Row = tuple[CatalogueSearch, str, Mapping[str, Any], Mapping[str, Any]]
"""A case, a chip, and what was said of the default and of the winner."""


def row(case: CatalogueSearch, chip: str, *answers: Mapping[str, Any]) -> list[str]:
    cells = [" ".join((case.kernel, *case.options)), chip]
    for answer in answers:
        shares = answer.get("shares", {})
        parts = [(s, part) for part, s in shares.items() if part not in _LINES and s >= 0.005]
        rest = ", ".join(f"{part} {s:.0%}" for s, part in sorted(parts, reverse=True))
        body, maps = (shares.get(name, 0.0) for name in _LINES)
        cells += [
            f"{body + maps:.0%} = {body:.0%} + {maps:.0%}" if shares else "–",
            answer.get("error") or rest or "–",
        ]
    plain, lines = answers[0].get("seconds", (0, 0))
    return [*cells, f"{lines / plain:.1f}" if plain else "–"]


def report(rows: Sequence[Row]) -> str:
    times = [d["seconds"][1] / d["seconds"][0] for _, _, d, _ in rows if "seconds" in d]
    summary = (
        f"{_summary('Default configs', [d for _, _, d, _ in rows])} "
        f"{_summary('Winners', [w for *_, w in rows])}"
    )
    if times:
        summary += (
            f" The compile with lines takes {median(times):.1f} times as long (median), at most "
            f"{max(times):.1f}; {sum(t <= _GOAL_TIMES for t in times)} of {len(times)} take at "
            f"most {_GOAL_TIMES}."
        )
    head = ["kernel", "chip", "default", "the rest", "winner", "the rest", "compile, times"]
    return f"{summary}\n\n{markdown_table(head, *(row(*each) for each in rows))}"


def _summary(what: str, answers: Sequence[Mapping[str, Any]]) -> str:
    known = [answer["shares"] for answer in answers if "shares" in answer]
    shares = [sum(each.get(name, 0.0) for name in _LINES) for each in known]
    body = [each.get(_BODY, 0.0) for each in known]
    return (
        f"{what}: {len(shares)} of {len(answers)} have a profile. On a line are "
        f"{median(shares):.0%} of the cycles (median), in all at least {min(shares):.0%}; at least "
        f"{_GOAL_SHARE:.0%} in {sum(s >= _GOAL_SHARE for s in shares)}. On a line of the body are "
        f"{median(body):.0%} (median); at least {_GOAL_SHARE:.0%} in "
        f"{sum(s >= _GOAL_SHARE for s in body)}."
    )


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--kernel")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--folder", type=Path, default=Path("profiles"))
    parser.add_argument("--finished", action="store_true", help="nothing new: what is there")
    parser.add_argument("--untimed", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with CompilerPool(1) as plain, CompilerPool(1) as lines:
        for case in (case for case in CASES if options.kernel in (None, case.kernel)):
            for chip in (chip for chip in case.chips if options.chip in (None, chip)):
                folder, pools = options.folder, () if options.finished else (plain, lines)
                default, best = (
                    profiled(case, chip, folder, pools, text, timed=not options.untimed)
                    for text in ("default", winner(case, chip))
                )
                rows.append((case, chip, default, best))
                print(*row(*rows[-1]), sep=" | ", flush=True)
    print(report(rows).partition("\n")[0])
    if options.write:
        write_below_mark("results/profile.md", "profile", report(rows))
    return 0
