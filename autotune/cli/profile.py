"""``autotune profile`` and ``autotune explain --source``: the time of a kernel by line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from autotune.cli import shared
from autotune.cli.problems import configs_option, problem_options
from autotune.compiling.pool import PooledCompilers
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeToolchain, ReadCall
from autotune.domain.errors import AutotuneError, NoDeclarationError
from autotune.domain.key import Chip, KernelRef
from autotune.domain.profile import Cause, Profile, ProfileRow
from autotune.measuring.attached import chip_or_attached
from autotune.wording.outcome import reason_of
from autotune.wording.output import echo
from autotune.wording.screen import screen
from autotune.wording.units import micros

_SHOWN_SHARE = 0.02  # of the time: causes with less have no column of their own
_LEAST_SOURCE, _GAP = 20, 2  # characters
_HEADS = {
    Cause.VECTOR: "vector",
    Cause.MATRIX: "matrix",
    Cause.LANE: "lanes",
    Cause.MEMORY: "ld/st",
    Cause.SPILL: "spills",
    Cause.EMPTY: "empty",
    Cause.SCALAR: "scalar",
    Cause.MATRIX_STALL: "~matrix",
    Cause.LANE_STALL: "~lanes",
    Cause.HBM: "~HBM",
    Cause.LATENCY: "~latency",
}

Named = tuple[str, Sequence[Profile]]
"""A config or trial, and a profile for each call of its function."""


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", default=None, help="TPU generation; default: the attached TPU.")
@configs_option("As for `estimate`; of two, the lines are those that differ the most.")
@click.option(
    "--unfold",
    is_flag=True,
    help="Also the lines of other files, below the lines that call them.",
)
@shared.compiler_options
@shared.json_option
def profile(
    kernel: str,
    words: ProblemWords,
    chip: str | None,
    texts: tuple[str, ...],
    unfold: bool,
    as_json: bool,
    **compilers: Any,
) -> None:
    """Say which lines of KERNEL its time goes to, without a TPU.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME, of a declaration or of a
    function. Each config is compiled once more, with the lines of its source. Nothing is kept.
    """
    from autotune.declaring.discovery import find_kernel

    target, ref = chip_or_attached(chip), find_kernel(kernel)
    with shared.new_pool(**compilers) as pool:
        toolchain = pool.ask(DescribeToolchain())
        try:
            questions = _of_configs(pool, ref, target, words, texts)
        except NoDeclarationError:
            if texts or not words.call:
                raise
            called = pool.ask(ReadCall(ref=ref, words=words))
            questions = {called.call: ProfileConfig(ref=called, chip=target)}
        named = [(name, profiles_of(pool.ask(each), name)) for name, each in questions.items()]
    if as_json:
        about = {"kernel": kernel, "chip": target, "toolchain": to_data(toolchain)}
        shared.print_json({**about, "profiles": profile_data(named)})
    else:
        echo(f"{kernel} on {target} with {toolchain}")
        print_profiles(named, unfold=unfold)


def _of_configs(
    pool: PooledCompilers, ref: KernelRef, chip: Chip, words: ProblemWords, texts: Sequence[str]
) -> dict[str, ProfileConfig]:
    """A question for each config of a declaration."""
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import describe_subject

    subject = describe_subject(pool, ref, chip, words)
    judge = config_judge(pool, subject)
    configs = judge.read_all(texts)
    return {str(config): subject.question(ProfileConfig, config=config) for config in configs}


def profiles_of(answer: Any, what: object) -> Sequence[Profile]:
    """Raises ``AutotuneError`` where there is none."""
    if isinstance(answer, Profiled) and not answer.refusal:
        return answer.profiles
    reason = answer.refusal if isinstance(answer, Profiled) else reason_of(answer)
    raise AutotuneError(f"{what} has no profile: {reason}")


def profile_data(named: Sequence[Named]) -> list[dict[str, Any]]:
    return [{"name": name, "calls": [to_data(each) for each in calls]} for name, calls in named]


def print_profiles(named: Sequence[Named], *, unfold: bool = False) -> None:
    """A table for each call; of two configs one for both, with what differs the most first."""
    for (name, calls), *others in [named] if len(named) == 2 else [[each] for each in named]:
        for number, call in enumerate(calls):
            beside = [calls[number] for _, calls in others if len(calls) > number]
            echo("")
            echo(f"{call.kernel}, {name}: {_total(call)}")
            for (other, _), each in zip(others, beside, strict=False):
                echo(f"against {other}: {_total(each)}")
            _print(*(_differences(call, beside[0]) if beside else _lines(call, unfold)))
            for file in sorted({row.frames[-1].file for row in call.folded() if row.frames}):
                echo(f"source: {file}")
            for note in dict.fromkeys(filter(None, (each.note for each in (call, *beside)))):
                echo(note)


def _total(call: Profile) -> str:
    return f"{micros(call.us)}, {call.cycles:,} cycles of a core, {call.on_lines:.0%} on a line"


Rows = tuple[list[str], list[list[str]]]
"""The heads of the columns, and the cells; the source is the last."""


def _lines(call: Profile, unfold: bool) -> Rows:
    """In the order of the source; what has no line comes last."""
    rows = call.folded()
    sums = {cause: sum(dict(row.cycles).get(cause, 0) for row in rows) for cause in Cause}
    causes = [cause for cause in Cause if sums[cause] > _SHOWN_SHARE * call.cycles]

    def cells(row: ProfileRow, mark: str = "") -> list[str]:
        own = dict(row.cycles)
        cycles = [_short(n) for n in (row.total, *(own.get(cause, 0) for cause in causes))]
        runs = _short(row.runs if row.frames else 0)
        return [f"{row.total / call.cycles:.1%}", *cycles, runs, row.unit, *_place(row, mark)]

    table = []
    for row in sorted(rows, key=lambda row: (not row.frames, row.frames or -row.total)):
        table.append(cells(row))
        table += [cells(inner, "└ ") for inner in call.called_from(row) if unfold]
    heads = ["share", "cycles", *(_HEADS[cause] for cause in causes), "runs", "busy"]
    return heads, table


def _differences(call: Profile, other: Profile) -> Rows:
    """Microseconds, as two configs may differ in all else; what differs the most comes first."""
    sides = [{(row.frames, row.part): row for row in each.folded()} for each in (call, other)]
    table = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [side.get(key) for side in sides]
        first, second = (row.total / call.clock_hz * 1e6 if row else 0.0 for row in pair)
        row = next(filter(None, pair))
        units = [row.unit if row else "" for row in pair]
        cells = [f"{first:,.2f}", f"{second:,.2f}", f"{second - first:+,.2f}", *units]
        table.append((abs(second - first), [*cells, *_place(row, "")]))
    ordered = [cells for _, cells in sorted(table, key=lambda pair: -pair[0])]
    return ["first µs", "other µs", "difference", "busy", "busy"], ordered


def _print(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The source has the room that the numbers leave; no number is cut on any screen."""
    console, table = screen(), Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = [*heads, "line"]
    for head in heads:
        table.add_column(head, justify="left" if head == "busy" else "right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    columns = zip(heads, *(cells[:-1] for cells in rows), strict=True)
    numbers = sum(max(map(len, column)) + _GAP for column in columns) + 4
    console.width = max(console.width, numbers + _LEAST_SOURCE)
    room = console.width - numbers
    for *cells, source in rows:
        table.add_row(*cells, source if len(source) <= room else f"{source[: room - 1]}…")
    console.print(table)


def _place(row: ProfileRow, mark: str) -> tuple[str, str]:
    if not row.frames:
        return "", str(row.part)
    line = row.frames[-1]
    file = f"{Path(line.file).name}: " if mark else ""
    return str(line.line), mark + file + line.text


def _short(cycles: float) -> str:
    """With three digits: 12.3k; empty for none."""
    for unit in ("", "k", "M", "G"):
        if round(cycles) < 1000:
            return f"{cycles:.3g}{unit}" if cycles else ""
        cycles /= 1000
    return f"{cycles:,.0f}T"
