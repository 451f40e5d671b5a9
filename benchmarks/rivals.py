"""Who accepts a broken kernel: our gate, or other autotuners for Pallas?

    python -m benchmarks rivals --python RIVALS/bin/python [--case NAME]… [--json FILE]

RIVALS is an environment with tune-jax, tonno and pallas-forge (Python 3.12 or newer). Each is
asked twice for each kernel: which of the right and the broken config it chooses, and, since that is
a matter of their times, whether it takes the broken one when it has no other. Kernels run there in
plain interpret mode, which itself raises for some of the broken ones: these have no time then.

Exit code 1 when our gate accepts a broken config or refuses a right one.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import (
    Compilers,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    VerifyConfig,
)
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import AxisValue, make_config
from benchmarks.harness.points import as_they_come
from benchmarks.harness.rivals_worker import RIVALS

_ROOT = Path(__file__).parents[1]
_WORKER = "benchmarks.harness.rivals_worker"
_LIMIT_S = 1800.0
_console = Console(width=170)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel with a config that is right and one that is wrong, by the axes that differ from the
    default. As plain data: the interpreter of the rivals may lack what our engine imports."""

    case: str
    path: str
    kernel: str
    shape: str
    right: Mapping[str, AxisValue]
    wrong: Mapping[str, AxisValue]

    def verify(self, compilers: Compilers, axes: Mapping[str, AxisValue]) -> Verdict:
        """What the gate says of the kernel's default with some axes replaced."""
        ref = KernelRef(path=self.path, attribute=self.kernel)
        problem = compilers.ask(DescribeKernel(ref=ref)).problems.parse(self.shape)
        default = compilers.ask(ListChoices(ref=ref, problem=problem)).default
        config = make_config({**default, **axes})
        return compilers.ask(VerifyConfig(ref=ref, problem=problem, config=config, chip=Chip.V5E))

    def __str__(self) -> str:
        return self.case


def read_cases() -> list[Case]:
    """Those of the tests."""
    command = [sys.executable, "-m", "tests.samples.broken.cases"]
    printed = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Case(**json.loads(line)) for line in printed.stdout.splitlines()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What our gate says of both configs of a case."""

    case: Case
    broken: Verdict
    right: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a rival did with one question. ``said``: words about a wrong result, where it had any.

    ``chosen`` is "right", "broken" or None.
    """

    chosen: str | None
    error: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A rival's answers by case; ``missing`` says why there are none, or not all."""

    name: str
    version: str = ""
    jax: str = ""
    missing: str = ""
    both: Mapping[str, Asked] = field(default_factory=dict)
    alone: Mapping[str, Asked] = field(default_factory=dict)

    def accepted(self, case: Case) -> bool:
        """Whether it gives the broken config as the best one without a word."""
        asked = self.alone.get(str(case))
        return asked is not None and asked.chosen == "broken" and not asked.said


def our_verdicts(compilers: int, cases: Sequence[Case]) -> list[Ours]:
    def judge(case: Case) -> Ours:
        broken, right = (case.verify(pool, axes) for axes in (case.wrong, case.right))
        return Ours(case=case, broken=broken, right=right)

    with CompilerPool(compilers) as pool, ThreadPoolExecutor(compilers) as threads:
        _console.print(f"our gate: {pool.ask(DescribeToolchain())}", highlight=False)
        pending = {threads.submit(judge, case): case for case in cases}
        done = [ours for _, ours in as_they_come(pending, "our gate")]
    return sorted(done, key=lambda ours: cases.index(ours.case))


def ask_rival(name: str, python: str, cases: Sequence[Case]) -> Rival:
    """In a process of its own: a kernel that hangs or crashes it ends this rival only."""
    _console.print(f"{name} …")
    try:
        ran = subprocess.run(
            [python, "-m", _WORKER, name],
            input="".join(f"{json.dumps(asdict(case))}\n" for case in cases),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            cwd=_ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Rival(name=name, missing=f"{name}: {error}")
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    if not answers:
        last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Rival(name=name, missing=f"{name} did not start: {last}")
    if answers[0]["installed"] is None:
        return Rival(name=name, missing=f"{name} is not installed in that environment.")
    return _rival(name, answers[0], answers[1:], ran.returncode)


def _rival(
    name: str, start: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], code: int
) -> Rival:
    ended = f"{name} ended with exit code {code} after {len(answers)} kernels." if code else ""
    return Rival(
        name=name,
        version=start["installed"],
        jax=start["jax"],
        missing=ended,
        both={a["case"]: Asked(**a["both"]) for a in answers},
        alone={a["case"]: Asked(**a["alone"]) for a in answers},
    )


def table(ours: Sequence[Ours], rivals: Sequence[Rival]) -> Table:
    shown = Table("kernel", "our gate", title="Broken configs before our gate and before rivals")
    for rival in rivals:
        shown.add_column(f"{rival.name}: of both")
        shown.add_column("broken alone")
    for row in ours:
        cells = [cell for rival in rivals for cell in _cells(rival, row.case)]
        shown.add_row(str(row.case), _ours(row.broken), *cells)
    return shown


def _ours(verdict: Verdict) -> str:
    if verdict.ok is None:
        return "not verified"
    return "ACCEPTED" if verdict.ok else f"refused: {verdict.check}"


def _cells(rival: Rival, case: Case) -> tuple[str, str]:
    both, alone = rival.both.get(str(case)), rival.alone.get(str(case))
    if both is None or alone is None:
        return "–", "–"
    if rival.accepted(case):
        return both.chosen or "none", "accepted"
    return both.chosen or "none", "said wrong" if alone.said else "raised"


def notes(rivals: Sequence[Rival]) -> Iterator[str]:
    """What the table has no room for: what was raised or said instead of a choice."""
    for rival in rivals:
        for case, asked in rival.alone.items():
            if asked.error or asked.said:
                yield f"{rival.name}, {case}: {asked.said or asked.error}"


def counts(ours: Sequence[Ours], rivals: Sequence[Rival]) -> str:
    accepted = [_share("ours", [row.broken.ok is not False for row in ours])]
    chosen: list[str] = []
    for rival in rivals:
        if rival.alone:
            accepted.append(_share(rival.name, [rival.accepted(row.case) for row in ours]))
            picked = [asked.chosen == "broken" for asked in rival.both.values()]
            chosen.append(_share(rival.name, picked))
    refused = _share("ours", [row.right.ok is not True for row in ours])
    return (
        f"broken configs accepted: {', '.join(accepted)}\n"
        f"broken config chosen although the right one was there: {', '.join(chosen) or '–'}\n"
        f"right configs refused: {refused}"
    )


def _share(name: str, flags: Sequence[bool]) -> str:
    return f"{name} {sum(flags)} of {len(flags)}"


def as_data(ours: Sequence[Ours], rivals: Sequence[Rival]) -> dict[str, object]:
    verdicts = {
        str(row.case): {"broken": asdict(row.broken), "right": asdict(row.right)} for row in ours
    }
    return {"ours": verdicts, "rivals": [asdict(rival) for rival in rivals]}


def main() -> int:
    options = _options()
    every = read_cases()
    if unknown := set(options.case) - set(map(str, every)):
        raise SystemExit(f"there is no case {', '.join(unknown)}")
    cases = [case for case in every if not options.case or str(case) in options.case]
    ours = our_verdicts(options.compilers, cases)
    rivals = [ask_rival(name, options.python, cases) for name in RIVALS]
    _console.print(table(ours, [rival for rival in rivals if rival.alone]))
    for rival in rivals:
        about = f"{rival.name} {rival.version} with jax {rival.jax}. " if rival.version else ""
        _console.print(about + rival.missing, highlight=False)
    for note in notes(rivals):
        _console.print(f"  {note}", highlight=False, markup=False)
    _console.print(counts(ours, rivals), highlight=False)
    if options.json:
        text = json.dumps(as_data(ours, rivals), indent=1)
        Path(options.json).write_text(text, encoding="utf-8")
    met = all(row.broken.ok is False and row.right.ok is True for row in ours)
    return 0 if met else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="an interpreter that has the rivals")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--compilers", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="also write every answer to FILE")
    return parser.parse_args()
