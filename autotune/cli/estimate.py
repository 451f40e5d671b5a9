"""``autotune estimate``: single configs of a kernel, side by side; nothing is kept or published."""

import sys
from typing import Any

import click

from autotune.cli import shared
from autotune.cli.breakdown import differing_rows, print_breakdown
from autotune.cli.problems import configs_option, problem_options
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare
from autotune.measuring.attached import chip_or_attached
from autotune.wording.facts import explanation_data, why
from autotune.wording.outcome import ConfigEstimate, in_words, reason_of
from autotune.wording.output import echo


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", help="TPU generation; default: the attached TPU.")
@configs_option(
    "May be given several times; what is left out is as in the default, and `default` is the "
    "default. Also order=n>m, semantics=PA and vmem=64MiB."
)
@shared.compiler_options
@shared.json_option
def estimate(
    kernel: str,
    words: ProblemWords,
    chip: str | None,
    texts: tuple[str, ...],
    as_json: bool,
    **compilers: Any,
) -> None:
    """Say whether single configs of KERNEL are legal, what they need and how long they take.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME. Nothing is kept or published.
    Exit code 1 when a config has no estimate.
    """
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import describe_subject

    target, ref = chip_or_attached(chip), find_kernel(kernel)
    with shared.new_pool(**compilers) as pool:
        subject = describe_subject(pool, ref, target, words)
        judge = config_judge(pool, subject)
        configs = judge.read_all(texts)
        estimates = [ConfigEstimate(config=each, outcome=judge.outcome(each)) for each in configs]
    if as_json:
        data = [_data(*named) for named in _named(estimates)]
        shared.print_json(
            {"key": to_data(subject.key), "configs": data, "compared": _words(estimates)}
        )
    else:
        key = subject.key
        echo(f"{key.kernel} {key.problem}")
        echo(f"  on {key.chip} with {key.toolchain}")
        _print(estimates)
    sys.exit(0 if all(each.estimate for each in estimates) else 1)


def _print(estimates: list[ConfigEstimate]) -> None:
    for name, each in _named(estimates):
        echo(f"{name}: {each}")
    explained = [
        (name, each.config, (e, e.explanation))
        for name, each in _named(estimates)
        if (e := each.estimate) and e.explanation
    ]
    if explained:
        names, configs, parts = zip(*explained, strict=True)
        print_breakdown(names, parts, differing_rows(configs))
    for sentence in _words(estimates):
        echo(sentence)
    echo("Nothing is kept or published.")


def _named(estimates: list[ConfigEstimate]) -> list[tuple[str, ConfigEstimate]]:
    return [(f"config {place}", each) for place, each in enumerate(estimates, 1)]


def _words(estimates: list[ConfigEstimate]) -> list[str]:
    """Why the fastest is faster than each of the others."""
    named = [
        NamedEstimate(name=name, estimate=each.estimate)
        for name, each in _named(estimates)
        if each.estimate
    ]
    best = min(named, key=lambda each: each.estimate.time_us, default=None)
    return [why(compare(best, each)) for each in named if best is not None and each is not best]


def _data(name: str, each: ConfigEstimate) -> dict[str, Any]:
    e = each.estimate
    parts = e and e.explanation
    return {
        "name": name,
        "config": to_data(each.config),
        "outcome": to_data(in_words(each.outcome)),
        "reason": reason_of(each.outcome),
        "explanation": explanation_data(e, parts) if e and parts else None,
    }
