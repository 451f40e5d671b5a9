"""What does another JAX do to tuned configs of the catalogue's kernels, on every chip?

    AUTOTUNE_ENVIRONMENTS=DIR python -m benchmarks upgrades [--folder DIR]
        [--start JAX] [--kernel NAME] [--show] [--write]

Our own and JAX's kernels are searched under each toolchain of ``STARTS`` with a few trials, and
what wins is checked under all others of ``RELEASES`` by ``autotune check``. What is done is kept in
the folder: the same command goes on where it was; ``--start`` and ``--kernel`` do a part of it.
``--show`` only prints what there is, ``--write`` puts it into docs/results/what-upgrades-do.md.
``autotune env create`` makes the environments. All times are estimates; no TPU was used.
"""

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TypeVar

from autotune.compiling.environments.environment import environments_folder, find_environment
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import CompilerQuestion, VerifyConfig
from autotune.domain.errors import AutotuneError
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip
from autotune.domain.record import Check, CheckVerdict, Record
from autotune.publishing.publish import publish
from autotune.searching.subject import SearchLimits, describe_subject, explore_space
from autotune.wording.match import finding, subject_line
from autotune.wording.publication import publication_reason
from autotune_db import SqlStore, open_store
from benchmarks.catalogue import CHIPS, CatalogueSearch
from benchmarks.harness.documents import markdown_table, show
from benchmarks.harness.searching import run_search

T = TypeVar("T")

RELEASES = ("0.6.2", "0.9.2", "0.10.2", "0.12.0.1")
STARTS = ("0.10.2", "0.6.2")
TRIALS = 3

_FLASH = "batch=2,heads=2,q_len=512,kv_len=512,head_dim=128"
_SPLASH = "heads=4,kv_heads=2,seq=512,qk_dim=128,v_dim=128"
_GROUPED = "m=1024,k=512,n=512,groups=4"
_PAGED = "batch=4,q_heads=8,kv_heads=2,pages=8,page_size=16,head_dim=128"
_RAGGED = "seqs=4,tokens=64,q_heads=8,kv_heads=2,pages=8,page_size=16,head_dim=128"

CASES = (
    CatalogueSearch("matmul", "m=1024,k=2048,n=1024"),
    CatalogueSearch("flash_attention", "1x4x2x1024x1024x128", ("causal=true",)),
    CatalogueSearch("rmsnorm", "4096x2048"),
    CatalogueSearch("vector_add", "4194304"),
    CatalogueSearch("tiled_dot", "1048576"),
    CatalogueSearch("gathered_matmul", "tokens=1024,k=1024,n=1024,experts=4"),
    CatalogueSearch("jax_flash_attention", _FLASH),
    CatalogueSearch("jax_flash_attention_dkv", _FLASH, ("causal=true",)),
    CatalogueSearch("jax_flash_attention_dq", _FLASH, ("causal=true",)),
    CatalogueSearch("jax_splash_attention", _SPLASH, ("mask=causal",)),
    CatalogueSearch("jax_splash_attention_dkv", _SPLASH),
    CatalogueSearch("jax_splash_attention_dq", _SPLASH),
    CatalogueSearch("jax_splash_attention_fused", _SPLASH),
    CatalogueSearch("jax_gmm", _GROUPED, ("sizes=balanced",)),
    CatalogueSearch("jax_tgmm", _GROUPED),
    CatalogueSearch("jax_paged_attention", _PAGED),
    CatalogueSearch("jax_ragged_paged_attention", _RAGGED, ("batch=mixed",)),
)


class _WithoutGate(CompilerPool):
    """Runs no kernel: what compiles where is asked here, not what is right, and jax 0.6 cannot run
    one in TPU interpret mode."""

    def _answer(self, question: CompilerQuestion[T]) -> T:
        if isinstance(question, VerifyConfig):
            reason = "not run: this benchmark only compiles"
            return Verdict(ok=None, reason=reason)  # type: ignore[return-value]
        return super()._answer(question)


def search(start: str, store: SqlStore, cases: Sequence[CatalogueSearch]) -> None:
    """Every case on every chip under one toolchain; those that have a record there are not
    searched again."""
    python = find_environment(environments_folder(), start).python
    with _WithoutGate(1, python=python) as pool:
        for case, chip in product(cases, CHIPS):
            try:
                said = _searched(pool, store, case, Chip(chip))
            except AutotuneError as error:
                said = str(error)
            print(f"jax {start}: {case} on {chip}: {said}", flush=True)


def _searched(pool: CompilerPool, store: SqlStore, case: CatalogueSearch, chip: Chip) -> str:
    words = ProblemWords(shape=case.shape, options=case.options)
    subject = describe_subject(pool, find_kernel(case.kernel), chip, words)
    if store.record(subject.key):
        return "there already"
    limits = SearchLimits(trials=TRIALS)
    space = explore_space(pool, subject, lambda *_: None)
    result = run_search(pool, store, subject, space, limits)
    return publication_reason(publish(pool, store, result, allow_unverified=True))


def check(start: str, release: str, database: Path, kernels: Sequence[str]) -> None:
    """What was published of these kernels under ``start``, under ``release``."""
    autotune = str(Path(sys.executable).with_name("autotune"))
    command = [autotune, "check", *kernels, "--from", f"jax={start}"]
    command += ["--jax", release, "--db", str(database), "--compilers", "1", "--json"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def counts(records: Sequence[Record], checks: Sequence[Check]) -> Iterator[list[str]]:
    """One row for each step from a toolchain to another and each chip."""
    yield ["tuned with", "checked with", "chip", "records", "checked", *CheckVerdict]
    steps = [(a, b) for a, b in product(STARTS, RELEASES) if a != b]
    for (start, release), chip in product(steps, CHIPS):
        keys = {record.key for record in records}
        had = sum((key.toolchain.jax, key.chip) == (start, chip) for key in keys)
        if not had:
            continue
        of_step = [c for c in checks if _step(c) == (start, release) and c.chip == chip]
        verdicts = Counter(check.verdict for check in of_step)
        figures = [had, len(of_step), *(verdicts[verdict] for verdict in CheckVerdict)]
        yield [start, release, chip, *(str(figure or "·") for figure in figures)]


def by_kernel(checks: Iterable[Check]) -> Iterator[list[str]]:
    """One row for each kernel and start: the verdicts over the chips, for each release."""
    yield ["kernel", "tuned with", *RELEASES]
    cells: dict[tuple[str, str, str], list[Check]] = defaultdict(list)
    for check in checks:
        cells[check.key.kernel, *_step(check)].append(check)
    for case, start in product(CASES, STARTS):
        row = [_verdicts(cells[case.kernel, start, release]) for release in RELEASES]
        if any(row):
            row[RELEASES.index(start)] = "tuned here"
            yield [case.kernel, start, *row]


def _verdicts(checks: Sequence[Check]) -> str:
    """The chips of each verdict; the verdict alone where all agree."""
    chips = {v: [c.chip.value for c in checks if c.verdict is v] for v in CheckVerdict}
    named = {verdict: names for verdict, names in chips.items() if names}
    if len(named) == 1 and len(checks) == len(CHIPS):
        return next(iter(named)).value
    return "; ".join(f"{verdict} {', '.join(sorted(names))}" for verdict, names in named.items())


def _step(check: Check) -> tuple[str, str]:
    return check.key.toolchain.jax, check.toolchain.jax


def remarkable(checks: Iterable[Check]) -> Iterator[str]:
    """What became worse or better, with its figures."""
    for check in sorted(checks, key=lambda c: (list(CheckVerdict).index(c.verdict), _step(c))):
        if check.verdict not in (CheckVerdict.SAME, CheckVerdict.NOT_CHECKED):
            start = f"tuned with {check.key.toolchain.jax}"
            yield f"- {check.verdict}: {subject_line(check)}, {start}: {finding(check)}"


def report(store: SqlStore) -> str:
    """What there is so far."""
    checks = [check for check in store.checks(100_000) if _step(check)[0] in STARTS]
    records = list(store.records())
    parts = [
        f"{len(records)} records, {len(checks)} checks.",
        markdown_table(*counts(records, checks)),
        markdown_table(*by_kernel(checks)),
        "\n".join(remarkable(checks)),
    ]
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/upgrades"))
    parser.add_argument("--start", choices=STARTS, action="append", help="tune with this JAX only")
    kernels = [case.kernel for case in CASES]
    parser.add_argument("--kernel", choices=kernels, action="append", help="this kernel only")
    parser.add_argument("--show", action="store_true", help="print what is done, and do no more")
    parser.add_argument("--write", action="store_true", help="put it into the document, too")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    database = options.folder / "upgrades.db"
    store = open_store(str(database), create=True)
    cases = [case for case in CASES if case.kernel in (options.kernel or kernels)]
    for start in () if options.show else options.start or STARTS:
        search(start, store, cases)
        for release in reversed([other for other in RELEASES if other != start]):
            check(start, release, database, [case.kernel for case in cases])
    page = report(store)
    show(page, "results/what-upgrades-do.md", "upgrades", write=options.write)
    return 0
