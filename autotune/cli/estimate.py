"""``autotune estimate``: single configs of a kernel, side by side; nothing is kept or
published. The parts and facts of two are a table."""

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich import box
from rich.table import Table

from autotune.cli import shared
from autotune.cli.problems import configs_option, problem_options
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare
from autotune.domain.explanation import PARTS, Explanation
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config, parts_of
from autotune.measuring.attached import chip_or_attached
from autotune.wording.facts import FACTS, explanation_data, why
from autotune.wording.outcome import ConfigEstimate, in_words, reason_of
from autotune.wording.output import echo
from autotune.wording.screen import screen
from autotune.wording.units import part_us

_BAR = 24

Explained = tuple[Estimate, Explanation]


def print_breakdown(
    titles: Sequence[str],
    estimates: Sequence[Explained],
    first_rows: Sequence[tuple[str, ...]] = (),
) -> None:
    """Where the time goes, then the facts; a column for each estimate, and of two the difference of
    the second from the first. ``first_rows`` open the facts."""
    console = screen()
    console.print(_parts_table(titles, estimates))
    console.print(_facts_table(titles, estimates, first_rows))


def differing_rows(configs: Sequence[Config]) -> list[tuple[str, ...]]:
    """Where configs differ, value beside value."""
    parts = [parts_of(config) for config in configs]
    names = dict.fromkeys(name for part in parts for name in part)
    rows = [(name, *(str(part.get(name, "–")) for part in parts)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _parts_table(titles: Sequence[str], estimates: Sequence[Explained]) -> Table:
    table = _table("where the time goes")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
    if len(estimates) == 1:
        table.add_column("", no_wrap=True)
    elif len(estimates) == 2:
        table.add_column("difference", justify="right", no_wrap=True)
    for name in PARTS:
        parts_us = [why.part_us(name) for _, why in estimates]
        if any(parts_us):
            table.add_row(name, *_time_cells(estimates, parts_us))
    table.add_section()
    table.add_row("total", *_time_cells(estimates, [e.time_us for e, _ in estimates], bar=False))
    return table


def _time_cells(
    estimates: Sequence[Explained], us: Sequence[float], *, bar: bool = True
) -> list[str]:
    shares = [part / e.time_us for part, (e, _) in zip(us, estimates, strict=True)]
    cells = [c for n, s in zip(us, shares, strict=True) for c in (part_us(n), f"{s:.1%}")]
    if len(estimates) > 2:
        return cells
    if len(estimates) == 2:
        change = us[1] - us[0]
        sign = "+" if change > 0 else "−" if change < 0 else ""
        return [*cells, sign + part_us(abs(change))]
    return [*cells, "█" * round(shares[0] * _BAR) if bar else ""]


def _facts_table(
    titles: Sequence[str], estimates: Sequence[Explained], first_rows: Sequence[tuple[str, ...]]
) -> Table:
    table = _table("", header=len(estimates) > 1)
    for title in titles:
        table.add_column(title if len(estimates) > 1 else "", overflow="fold")
    for row in first_rows:
        table.add_row(*row)
    for name, cell in FACTS:
        cells = [cell(e, why) for e, why in estimates]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _table(title: str, *, header: bool = True) -> Table:
    style = box.SIMPLE_HEAD if header else None
    table = Table(box=style, padding=(0, 1, 0, 0 if header else 1), show_header=header)
    table.add_column(title, no_wrap=True)
    return table


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
