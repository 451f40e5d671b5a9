"""``autotune advise``: what to change in the source of a kernel, and what that saves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.cli import shared
from autotune.cli.problems import problem_options
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError, NoDeclarationError
from autotune.domain.finding import Advice
from autotune.measuring.attached import chip_or_attached
from autotune.wording.advice import advice_lines
from autotune.wording.output import echo
from autotune.wording.units import counted, micros


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", help="TPU generation; default: the attached TPU.")
@shared.default_option(
    "--config",
    "text",
    default="default",
    metavar="block_m=256,…",
    help="The kernel with these blocks, as for `estimate`.",
)
@shared.output_option(
    "--apply",
    "patch",
    metavar="FILE.patch",
    help="Write the changes that go together to this file, for `git apply`. No source is changed.",
)
@shared.compiler_options
@shared.json_option
def advise(
    kernel: str,
    words: ProblemWords,
    chip: str | None,
    text: str,
    patch: Path | None,
    as_json: bool,
    **compilers: Any,
) -> None:
    """Say what to change in the source of KERNEL, and what that saves, without a TPU.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME, of a declaration or of a
    function. Each change is made, compiled, simulated and verified; none is listed that is not
    faster. Exit code 1 when there is none.
    """
    from autotune.searching.advice import advise as advice_of
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import describe_subject

    target, ref = chip_or_attached(chip), find_kernel(kernel)
    with shared.new_pool(**compilers) as pool:
        try:
            subject = describe_subject(pool, ref, target, words)
        except NoDeclarationError as error:
            if not words.call:
                sentence = f"{error}; of a function say how it is called, as --args 'x=f32[8,128]'"
                raise InvalidInputError(sentence) from error
            subject = describe_subject(pool, replace(ref, plain=True), target, words)
        config = config_judge(pool, subject).read(text)

        def announce(what: str, count: int) -> None:
            if not as_json and count:
                echo(f"{what} {counted(count, 'change')}", err=True)

        advice = advice_of(pool, subject, config, announce)
    if as_json:
        about = {"kernel": kernel, "key": to_data(subject.key), "config": to_data(config)}
        shared.print_json({**about, "advice": to_data(advice)})
    else:
        echo(f"{kernel} on {target} with {subject.toolchain}: {micros(advice.time_us)}")
        for line in advice_lines(advice):
            echo(line)
    if patch:
        _write(patch, advice)
    raise SystemExit(0 if advice.findings or advice.together else 1)


def _write(patch: Path, advice: Advice) -> None:
    """The changes together, or the best one that has a diff."""
    ordered = [advice.together, *advice.findings]
    text = next((each.diff for each in ordered if each is not None and each.diff), "")
    if not text:
        raise InvalidInputError(f"{patch} is not written: no change has a diff of the source")
    shared.write_file(patch, text)
