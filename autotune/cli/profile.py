"""``autotune profile``: the time of a kernel by line, of whatever it is; and how profiles
are written: the options for it, and a file for each kind of reader."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import shared
from autotune.cli.problems import configs_option, problem_options
from autotune.cli.shared import output_option, write_file
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeChip, DescribeToolchain
from autotune.domain.errors import InvalidInputError
from autotune.measuring.attached import chip_or_attached
from autotune.wording.output import echo

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

    @shared.flag_option(
        "--unfold",
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
    from autotune.searching.profiles import STEPS, ask_profiles
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
