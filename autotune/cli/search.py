"""``autotune search``."""

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from autotune.cli.parts import (
    chip_or_attached,
    database_option,
    json_option,
    open_database,
    print_json,
    problem_options,
)

if TYPE_CHECKING:
    from autotune.catalogue import KernelRef
    from autotune.chip import Chip
    from autotune.compiler.pool import CompilerPool
    from autotune.search.loop import Result, Subject


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", default=None, help="TPU generation; default: the attached TPU.")
@click.option(
    "--trials",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="Stop when the key has this many trials, earlier runs included.",
)
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Start no more trials after this time.",
)
@click.option(
    "--compilers",
    default=2,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Compiler processes side by side.",
)
@click.option(
    "--candidate-timeout",
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="Kill a compiler that takes longer for one.",
)
@click.option(
    "--candidate-memory",
    default=8.0,
    show_default=True,
    metavar="GIB",
    type=click.FloatRange(min=1),
    help="Kill a compiler that holds more than this.",
)
@click.option(
    "--python",
    default=sys.executable,
    metavar="INTERPRETER",
    help="Compile with the JAX of this interpreter (3.11+).",
)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--method",
    default="gp",
    show_default=True,
    type=click.Choice(["gp", "tpe", "random"]),
    help="How candidates are proposed.",
)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Publish a winner that could not be verified; it carries the label.",
)
@database_option
@json_option
def search(
    kernel: str, shape: str, dtype: str | None, options: tuple[str, ...], chip: str | None,
    trials: int, timeout: float | None, compilers: int, candidate_timeout: float,
    candidate_memory: float, python: str, seed: int, method: str, allow_unverified: bool,
    database: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Find the best legal config of KERNEL for a problem and a TPU generation.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME. Ctrl-C loses nothing: the
    same command resumes.
    """
    from autotune.catalogue import find_kernel
    from autotune.cli import progress, report
    from autotune.compiler.pool import CompilerPool
    from autotune.search.loop import Limits, run_search
    from autotune.search.publish import publish
    from autotune.space import explore

    target, ref = chip_or_attached(chip), find_kernel(kernel)
    pool = CompilerPool(
        compilers, python=python, limit_s=candidate_timeout,
        memory_bytes=round(candidate_memory * 2**30),
    )  # fmt: skip
    with pool, progress.watcher(silent=as_json) as watcher:
        subject = _subject(pool, ref, shape, dtype, options, target)
        choices = pool.run(lambda c: c.choices(ref, subject.problem, target))
        pool.run(lambda c: c.check(ref, subject.problem, target))
        space = explore(pool, ref, subject.problem, choices, subject.chip, watcher.tracing)
        with open_database(database, create=True) as store:
            limits = Limits(trials=trials, timeout_s=timeout)
            result = run_search(
                pool, store, subject, space, limits, watcher,
                study_url=store.url, seed=seed, method=method,
            )  # fmt: skip
            if result.stopped_by == "interrupted":
                _say_interrupted(result, str(store))
            published = publish(
                pool, store, result, allow_unverified=allow_unverified, announce=watcher.announce
            )
            ids = {t.number: store.trial_id(subject.key, t.number) for t in result.trials}
            place = str(store)
    if as_json:
        print_json(report.as_data(result, published, ids))
    else:
        report.print_result(result, published, ids, place)
    sys.exit(0 if published.record else 1)


def _subject(
    pool: "CompilerPool", ref: "KernelRef", shape: str, dtype: str | None,
    options: tuple[str, ...], chip: "Chip",
) -> "Subject":  # fmt: skip
    """Ask the compiler process what the kernel, the toolchain and the chip are."""
    from autotune.search.loop import Subject

    spec = pool.run(lambda c: c.describe(ref))
    problem = spec.problems.parse(shape, dtype, options)
    toolchain = pool.run(lambda c: c.toolchain())
    info = pool.run(lambda c: c.chip_info(chip))
    return Subject(ref=ref, spec=spec, problem=problem, chip=info, toolchain=toolchain)


def _say_interrupted(result: "Result", place: str) -> NoReturn:
    """From here on only cleaning up is left: another Ctrl-C must not cut it short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    click.echo(
        f"interrupted: {len(result.trials)} trials are kept in {place}, the same command resumes",
        err=True,
    )
    sys.exit(130)
