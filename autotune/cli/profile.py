"""``autotune profile``: the time of a kernel by line, of whatever it is."""

from pathlib import Path
from typing import Any

import click

from autotune.cli import shared
from autotune.cli.problems import configs_option, problem_options
from autotune.cli.profile_output import Format, checked, output_options, profile_data, write
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeChip, DescribeToolchain
from autotune.measuring.attached import chip_or_attached
from autotune.wording.output import echo


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
