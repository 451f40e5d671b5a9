"""What does ``autotune check`` cost, does it raise false alarms, and what does it miss?

    python -m benchmarks check [--only cost|silence|slow]

*Cost*: processor seconds for a record against those of compiling winner and default once, start
apart. *Silence*: changes of kernels that change nothing (comments, names, order, layout) are
compared with what was there before. *Slow*: kernels that do a known share of their work twice. All
by the real compiler; no TPU is used. Exit code 1 where a required figure is missed.
"""

import argparse
import ast
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import autotune_kernels
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import catalogue, find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import DescribeKernel, DescribeToolchain, ListChoices
from autotune.domain.key import Chip, KernelRef, Toolchain
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict
from autotune.estimating.space import default_config
from autotune.publishing.checking.against import compare_revision, priors_of
from autotune.publishing.checking.fail_on import parse_fail_on
from autotune.publishing.checking.record_check import PriorConfig
from autotune.publishing.checking.run import CheckRun
from autotune.searching.one_config import evaluate
from autotune.searching.subject import Subject, describe_subject
from autotune.wording.match import finding, subject_line
from autotune_db import open_store
from benchmarks.upgrades import CASES

MOST_RATIO = 1.3
LEAST_SILENT = 30
_TURNS = 3  # another process may take the core meanwhile
SLOWER = 0.10
SAMPLE = Path(__file__).parents[1] / "tests" / "samples" / "fused_matmul.py"
_BEFORE = Toolchain(jax="0", jaxlib="0", libtpu="0")  # nobody's: what is checked is not that of it

# Two kernels in one file would get the same change twice.
_SILENT = (
    "matmul",
    "flash_attention",
    "rmsnorm",
    "vector_add",
    "tiled_dot",
    "gathered_matmul",
    "jax_flash_attention",
    "jax_splash_attention",
    "jax_gmm",
    "jax_paged_attention",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCost:
    """Processor seconds of compiling two configs, and of checking a record that has them."""

    name: str
    compile_s: float
    check_s: float

    @property
    def ratio(self) -> float:
        return self.check_s / self.compile_s


def costs() -> Iterator[CheckCost]:
    """Of each case that has two configs which compile: the least of some turns, compiled first in
    every other one."""
    with CompilerPool(1) as pool, tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            subject = describe_subject(
                pool,
                find_kernel(case.kernel),
                Chip.V5E,
                ProblemWords(shape=case.shape, options=case.options),
            )
            pair = _pair(pool, subject)
            if pair is None:
                print(f"{case}: no second config that compiles", flush=True)
                continue
            turns = [
                _turn(pool, subject, pair, Path(folder) / f"{number}-{n}.db", first=bool(n % 2))
                for n in range(_TURNS)
            ]
            compile_s, check_s = map(min, zip(*turns, strict=True))
            cost = CheckCost(name=str(case), compile_s=compile_s, check_s=check_s)
            print(
                f"{cost.ratio:5.2f}  {cost.check_s:6.2f} s  {cost.compile_s:6.2f} s  {case}",
                flush=True,
            )
            yield cost


def _turn(
    pool: CompilerPool,
    subject: Subject,
    pair: tuple[Config, Config, Estimated],
    place: Path,
    *,
    first: bool,
) -> tuple[float, float]:
    """Seconds of compiling both, and of the check; ``first``: which is done first."""
    early = _compile(pool, subject, pair) if first else None
    check_s = _check(pool, subject, *pair, place)
    return (_compile(pool, subject, pair) if early is None else early), check_s


def _pair(pool: CompilerPool, subject: Subject) -> tuple[Config, Config, Estimated] | None:
    """A config beside the default, the default, and what became of the first."""
    choices = pool.ask(subject.question(ListChoices))
    default = default_config(choices)
    for name, values in choices.axes.items():
        for value in values:
            axes = tuple((n, value if n == name else v) for n, v in default.axes)
            config = default.replace(axes=axes)
            if config != default:
                outcome = evaluate(pool, subject, config)
                if isinstance(outcome, Estimated):
                    return config, default, outcome
    return None


def _check(
    pool: CompilerPool,
    subject: Subject,
    config: Config,
    tried: Config,
    estimated: Estimated,
    place: Path,
) -> float:
    """Seconds of one record in ``autotune check``, the store's opening apart."""
    key = replace(subject.key, toolchain=_BEFORE)
    prior = PriorConfig(key=key, config=config, outcome=estimated, default=tried)
    with open_store(str(place), create=True) as store:
        started = _clock()
        run = CheckRun(compilers=pool, store=store, refs={key.kernel: subject.ref})
        (check,) = run.run([prior], (), lambda _: None)
        seconds = _clock() - started
    assert check.verdict in (CheckVerdict.SAME, CheckVerdict.DEFAULT_WINS), finding(check)
    return seconds


def _compile(pool: CompilerPool, subject: Subject, pair: tuple[Config, Config, Estimated]) -> float:
    """Seconds of compiling and estimating both configs, once each; first the one that was not
    traced last, as the check does it."""
    started = _clock()
    for config in pair[1::-1]:
        evaluate(pool, subject, config)
    return _clock() - started


def _clock() -> float:
    """Seconds of processors, of this process and its compilers: the wall clock says little where
    others use the cores too. What the disk takes is not in it."""
    process = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))


def _commented(source: str) -> str:
    """A comment above each statement of the module."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        lines.insert(node.lineno - 1 - len(getattr(node, "decorator_list", ())), "# As it was.")
    return "\n".join(lines) + "\n"


def _renamed(source: str) -> str:
    """Every private function and constant of the module has another name."""
    names = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    for name in {private for private in names if private.startswith("_")}:
        source = re.sub(rf"(?<![\w.]){name}\b", f"{name}_renamed", source)
    return source


def _reordered(source: str) -> str:
    """Functions the other way round, in the places that functions had."""
    tree = ast.parse(source)
    places = [n for n, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]
    plain = [n for n in places if not tree.body[n].decorator_list]  # type: ignore[attr-defined]
    functions = [tree.body[n] for n in plain]
    for place, function in zip(plain, reversed(functions), strict=True):
        tree.body[place] = function
    return ast.unparse(_late(tree))


def _late(tree: ast.Module) -> ast.Module:
    """Statements that call at import stand behind all functions, in their order."""
    early = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    head = [node for node in tree.body if isinstance(node, early) or _is_doc(node)]
    tree.body = [*head, *(node for node in tree.body if node not in head)]
    return tree


def _is_doc(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _rewritten(source: str) -> str:
    """Another layout, no docstrings in functions, and a local name for what functions return."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            if _is_doc(node.body[0]) and len(node.body) > 1:
                del node.body[0]
            last = node.body[-1]
            if isinstance(last, ast.Return) and last.value is not None:
                name = ast.Name(id="answer_of_this", ctx=ast.Store())
                node.body[-1:] = [
                    ast.Assign(targets=[name], value=last.value),
                    ast.Return(value=ast.Name(id="answer_of_this", ctx=ast.Load())),
                ]
    return ast.unparse(ast.fix_missing_locations(tree))


CHANGES: Mapping[str, Callable[[str], str]] = {
    "comments": _commented,
    "names": _renamed,
    "order": _reordered,
    "layout": _rewritten,
}


def silence() -> Iterator[tuple[str, Check]]:
    """Each kernel after each change, at the problem that it has in ``benchmarks.upgrades``."""
    with _repository(Path(autotune_kernels.__file__).parent) as tree:
        installed = catalogue()
        for change, function in CHANGES.items():
            _git(tree, "checkout", "-q", "--", ".")
            refs = {name: _moved(installed[name], tree) for name in _SILENT}
            for path in {Path(ref.path) for ref in refs.values()}:
                path.write_text(function(path.read_text()))
            shapes = {c.kernel: c for c in CASES if c.kernel in refs}
            for check in _against(refs, {n: [shapes[n]] for n in refs}, (Chip.V5E,)):
                print(
                    f"{change:9} {check.verdict:12} {subject_line(check)}: {finding(check)}",
                    flush=True,
                )
                yield change, check


def _moved(ref: KernelRef | str, tree: Path) -> KernelRef:
    assert isinstance(ref, KernelRef)
    path = tree / Path(ref.path).relative_to(Path(autotune_kernels.__file__).parents[1])
    return replace(ref, path=str(path), root=str(tree))


def slow() -> Iterator[Check]:
    """A matrix product whose last block of columns, one of ten, is computed twice in a row."""
    text = SAMPLE.read_text()
    again = text.replace("n // bn),", "n // bn + 1),")
    for index in ("(0, j)", "(i, j)"):
        last = index.replace("j)", "jnp.minimum(j, n // bn - 1))")
        again = again.replace(f"lambda i, j: {index}", f"lambda i, j: {last}")
    with _repository(SAMPLE) as tree:
        (tree / SAMPLE.name).write_text(again)
        ref = KernelRef(path=str(tree / SAMPLE.name), attribute="PASSES_LIMIT")
        asked = {"fused_passes_limit": [_Shape("1024x1024x1280"), _Shape("2048x512x1280")]}
        chips = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E)
        for check in _against({"fused_passes_limit": ref}, asked, chips):
            print(f"{check.verdict:9} {subject_line(check)}: {finding(check)}", flush=True)
            yield check


@dataclass(frozen=True, slots=True)
class _Shape:
    shape: str
    options: tuple[str, ...] = ()


def _against(
    refs: Mapping[str, KernelRef], shapes: Mapping[str, Sequence[Any]], chips: Sequence[Chip]
) -> list[Check]:
    """As ``autotune check --against main`` does it."""
    with tempfile.TemporaryDirectory() as folder, CompilerPool(1) as pool:
        asked = []
        for name, ref in refs.items():
            spec = pool.ask(DescribeKernel(ref=ref))
            problems = [
                (spec.problems.parse(shape.shape, None, shape.options), chip)
                for shape in shapes[name]
                for chip in chips
            ]
            asked += priors_of(spec, pool.ask(DescribeToolchain()), problems, ())
        stores = (open_store(str(Path(folder) / f"{n}.db"), create=True) for n in range(2))
        return compare_revision(
            "main", lambda: CompilerPool(1), lambda: next(stores), pool, refs, asked, lambda _: None
        )


@contextmanager
def _repository(source: Path) -> Iterator[Path]:
    """A file or a folder as the only thing in a repository, committed on ``main``."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        if source.is_dir():
            shutil.copytree(
                source, tree / source.name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(source, tree)
        _git(tree, "init", "-q", "-b", "main")
        _git(tree, "add", "-A")
        _git(tree, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "before")
        yield tree


def _git(tree: Path, *command: str) -> None:
    subprocess.run(["git", "-C", str(tree), *command], check=True)


def report_cost() -> bool:
    ratio = median(cost.ratio for cost in costs())
    print(
        f"a record takes {ratio:.2f} times as long as two compiles, median (at most {MOST_RATIO})"
    )
    return ratio <= MOST_RATIO


def report_silence() -> bool:
    verdicts = list(silence())
    alarms = [check for _, check in verdicts if check.verdict is not CheckVerdict.SAME]
    print(f"{len(alarms)} alarms over {len(verdicts)} kernels and changes that change nothing")
    return not alarms and len(verdicts) >= LEAST_SILENT


def report_slow() -> bool:
    checks = list(slow())
    missed = [check for check in checks if check.verdict is not CheckVerdict.SLOWER]
    strict = parse_fail_on("slower:5%").judged(checks)
    also = sum(check.verdict is CheckVerdict.SLOWER for check in strict)
    print(
        f"{len(checks) - len(missed)} of {len(checks)} that do {SLOWER:.0%} more are found slower"
    )
    print(f"{also} with --fail-on slower:5%")
    return bool(checks) and not missed


REPORTS = {"cost": report_cost, "silence": report_silence, "slow": report_slow}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(REPORTS))
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(REPORTS)
    met = [REPORTS[name]() for name in chosen]
    print("all required figures are met" if all(met) else "a required figure is MISSED")
    return 0 if all(met) else 1
