"""``autotune estimate``: single configs of a kernel, side by side; nothing is kept or
published; their parts and facts as a table. And ``autotune profile``: the time of a kernel by line,
of whatever it is, with a file for each kind of reader."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table

from autotune.cli import shared
from autotune.cli.problems import configs_option, problem_options
from autotune.cli.shared import output_option, write_file
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare
from autotune.domain.compilers import DescribeChip, DescribeToolchain
from autotune.domain.errors import InvalidInputError
from autotune.domain.explanation import PARTS, Explanation
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config, parts_of
from autotune.measuring.attached import chip_or_attached
from autotune.wording.facts import FACTS, explanation_data, why
from autotune.wording.outcome import ConfigEstimate, in_words, reason_of
from autotune.wording.output import echo
from autotune.wording.screen import screen
from autotune.wording.units import part_us

if TYPE_CHECKING:
    from autotune.estimating.simulator.drawing.picture import ConfigProfile


class Format(StrEnum):
    """How a profile is written."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"
    PERFETTO = "perfetto"
    FOLDED = "folded"
    PPROF = "pprof"

    @property
    def is_file(self) -> bool:
        """Whether it is for another program: nothing else may stand around it."""
        return self not in (Format.TABLE, Format.JSON)

    @property
    def is_drawn(self) -> bool:
        """Whether it shows grid steps."""
        return self in (Format.HTML, Format.PERFETTO)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--format`` as ``form``, ``--output`` and ``--unfold``; ``--json`` is a format as well."""

    @click.option(
        "--unfold",
        is_flag=True,
        help="In a table: also the lines of other files, below the lines that call them.",
    )
    @output_option("--output", help="Write the profile there instead of to the terminal.")
    @click.option(
        "--format",
        "form",
        type=click.Choice([form.value for form in Format]),
        help="Of the profile: html is one page with a timeline, perfetto for ui.perfetto.dev, "
        "folded for speedscope and flame graphs, pprof for `go tool pprof`. Default: table.",
    )
    @wraps(command)
    def taking(*arguments: Any, form: str | None, as_json: bool, **more: Any) -> Any:
        if as_json and form not in (None, Format.JSON):
            raise InvalidInputError(f"--json and --format {form} are two formats: give one of them")
        chosen = Format.JSON if as_json else Format(form or Format.TABLE)
        return command(*arguments, form=chosen, **more)

    return taking


def profile_data(named: "Sequence[ConfigProfile]") -> list[dict[str, Any]]:
    from autotune.wording.profile import NOTES

    return [
        {
            "name": config.name,
            "calls": [{**to_data(call), "note": NOTES.get(call.note, "")} for call in config.calls],
            "around": [{**to_data(each), "line": line} for each, line in config.around],
        }
        for config in named
    ]


def checked(form: Format, output: Path | None) -> Path | None:
    """It. Raises ``InvalidInputError`` before any time is spent."""
    if output is None and form is Format.PPROF and sys.stdout.isatty():
        raise InvalidInputError("pprof is not for a terminal: give --output FILE.pb.gz")
    return output


def write(
    form: Format,
    output: Path | None,
    named: "Sequence[ConfigProfile]",
    *,
    title: str,
    data: Mapping[str, Any],
    unfold: bool,
) -> None:
    """Profiles in a format, into a file or to the terminal. ``data``: what is said as JSON."""
    from autotune.wording.profile import print_profiles, profiles_text
    from autotune.wording.profile_page import folded_stacks, page, perfetto_trace, pprof

    if form is Format.TABLE and output is None:
        print_profiles(named, unfold=unfold)
        return
    makers: dict[Format, Callable[[], str | bytes]] = {
        Format.TABLE: lambda: f"{title}\n{profiles_text(named, unfold=unfold)}",
        Format.JSON: lambda: json.dumps(data, indent=2, default=str) + "\n",
        Format.HTML: lambda: page(title, named),
        Format.PERFETTO: lambda: perfetto_trace(named),
        Format.FOLDED: lambda: folded_stacks(named),
        Format.PPROF: lambda: pprof(named),
    }
    content = makers[form]()
    if output is None:
        click.echo(content, nl=False)
        return
    write_file(output, content.encode() if isinstance(content, str) else content)
    echo(f"written to {output}", err=True)


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", help="TPU generation; default: the attached TPU.")
@configs_option("As for `estimate`; of two, the lines are those that differ the most.")
@output_options
@shared.compiler_options
@shared.json_option
def profile(
    kernel: str,
    words: ProblemWords,
    chip: str | None,
    texts: tuple[str, ...],
    unfold: bool,
    form: Format,
    output: Path | None,
    **compilers: Any,
) -> None:
    """Say which lines of KERNEL its time goes to, without a TPU.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME, of a declaration or of a
    function. Each config is compiled once more, with the lines of its source. Nothing is kept.
    """
    from autotune.searching.one_config import STEPS, ask_profiles
    from autotune.wording.profile import config_profile

    target, ref = chip_or_attached(chip), find_kernel(kernel)
    output = checked(form, output)
    with shared.new_pool(**compilers) as pool:
        toolchain = pool.ask(DescribeToolchain())
        info = pool.ask(DescribeChip(chip=target, options=toolchain.options))
        steps = STEPS if form.is_drawn else 0
        answers = ask_profiles(pool, ref, target, words, lambda j: j.read_all(texts), steps)
        named = [config_profile(name, answer, info) for name, answer in answers.items()]
    title = f"{kernel} on {target} with {toolchain}"
    about = {"kernel": kernel, "chip": target, "toolchain": to_data(toolchain)}
    data = {**about, "profiles": profile_data(named)}
    if form is Format.TABLE and output is None:
        echo(title)
    write(form, output, named, title=title, data=data, unfold=unfold)


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
