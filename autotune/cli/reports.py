"""What the tuning of a workload found, by problem and for the whole model; and what
``autotune check`` prints and writes: lines and a table, Markdown, JUnit XML."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich import box
from rich.table import Table
from rich.text import Text

from autotune.cli.shared import print_json, write_file
from autotune.domain import workload as workloads
from autotune.domain.codec import to_data
from autotune.domain.key import Toolchain
from autotune.domain.record import Check, CheckVerdict
from autotune.domain.visible import visible
from autotune.publishing.checking.fail_on import FailOn
from autotune.publishing.task import TuningResult
from autotune.wording import publication
from autotune.wording.config import problem_cell
from autotune.wording.match import (
    action,
    check_in_words,
    finding,
    markdown,
    place_line,
    subject_line,
)
from autotune.wording.output import echo
from autotune.wording.screen import screen
from autotune.wording.units import counted, error_bar, mebibytes, micros, ratio

_WIDE = 140


def print_workload(
    tuned: Sequence[TuningResult],
    invalid: Sequence[workloads.InvalidProblem],
    undeclared: Sequence[workloads.UndeclaredKernel],
    place: str,
    steps: Sequence[Any],
    *,
    as_json: bool,
) -> None:
    """A table by problem, the sums by chip, what could not be tuned; and what is said of the
    ``steps`` of the model."""
    if as_json:
        print_json(
            {
                "problems": [_problem_data(entry) for entry in tuned],
                "model": model_times(tuned),
                "invalid": [asdict(problem) for problem in invalid],
                "undeclared": [asdict(kernel) for kernel in undeclared],
                "steps": steps,
            }
        )
        return
    console = screen()
    if tuned:
        console.print(_table(tuned, console.width))
    for row in model_times(tuned):
        left_out = row["problems"] - row["timed"]
        predicted = row["predicted"]
        times = (
            f"by weight: {micros(row['before_us'])} with the kernels' defaults, "
            f"{micros(row['after_us'])} tuned, {ratio(row['before_us'], row['after_us'])}"
        )
        echo(
            f"{counted(row['problems'], 'problem')} on {row['chip']} with jax {row['jax']}"
            + f", {times}" * bool(row["timed"])
            + f" {error_bar(row['before_error'])}" * bool(predicted)
            + f" ({left_out} without a time left out)" * bool(left_out)
            + f" (≈: {predicted} of the defaults predicted)" * bool(predicted)
            + f"; {_share(row['calls'], undeclared)}" * bool(undeclared)
        )
    for problem in invalid:
        echo(f"not tuned: {problem}")
    for kernel in undeclared:
        echo(undeclared_line(kernel))
    for line in steps:
        echo(line)
    echo(f"Kept in {place}")


def tuned_workload(
    name: str,
    tuned: Sequence[TuningResult],
    invalid: Sequence[workloads.InvalidProblem],
    undeclared: Sequence[workloads.UndeclaredKernel],
) -> workloads.TunedWorkload:
    entries = [
        workloads.TunedEntry(
            key=entry.key,
            weight=entry.task.weight,
            before_us=entry.before_us,
            before_error=entry.before_error,
            reason="" if entry.record else _why(entry) or "interrupted",
        )
        for entry in tuned
    ]
    missing = [f"not tuned: {problem}" for problem in invalid] + list(
        map(undeclared_line, undeclared)
    )
    return workloads.TunedWorkload(name=name, entries=tuple(entries), missing=tuple(missing))


def undeclared_line(kernel: workloads.UndeclaredKernel) -> str:
    limit = f" of {mebibytes(kernel.limit_bytes)}" if kernel.limit_bytes else ""
    return (
        f"not declared: {kernel.name}, {kernel.weight:g} times"
        + f", of {kernel.source}" * bool(kernel.source)
        + f", on {kernel.core}" * bool(kernel.core)
        + ", and a pipeline".join(map(_blocks_text, (kernel, *kernel.pipelines)))
        + f", VMEM {mebibytes(kernel.vmem_bytes)}{limit}" * bool(kernel.vmem_bytes)
    )


def _blocks_text(cut: Any) -> str:
    grid = "x".join(str(size or "?") for size in cut.grid)
    blocks = " ".join("[" + ",".join(map(str, block)) + "]" for block in cut.blocks)
    return f", grid {grid}" * bool(grid) + f", blocks {blocks}" * bool(blocks)


def model_times(tuned: Sequence[TuningResult]) -> list[dict[str, Any]]:
    """The weighted times of all problems that have both, by chip and toolchain."""
    rows = []
    for chip, jax in dict.fromkeys(_target(entry) for entry in tuned):
        part = [entry for entry in tuned if _target(entry) == (chip, jax)]
        times = workloads.weighted_times(
            (entry.task.weight, entry.before_us, entry.before_error, entry.after_us)
            for entry in part
        )
        calls = sum(entry.task.weight for entry in part)
        row = {"chip": chip, "jax": jax, "problems": len(part), "calls": calls}
        rows.append(row | asdict(times))
    return rows


def _share(calls: float, undeclared: Sequence[workloads.UndeclaredKernel]) -> str:
    """Of the model's Pallas calls, those that the times speak of."""
    every = calls + sum(kernel.weight for kernel in undeclared)
    return f"{calls:g} of the model's {every:g} Pallas calls, the others are not declared"


def _target(entry: TuningResult) -> tuple[str, str]:
    key = entry.key
    return key.chip.value, key.toolchain.jax


def _problem_data(entry: TuningResult) -> dict[str, Any]:
    published = entry.publication
    assert published is not None
    return {
        "line": entry.task.line,
        "key": to_data(entry.key),
        "weight": entry.task.weight,
        "before": entry.before and to_data(entry.before.config),
        "before_us": entry.before_us,
        "before_predicted_error": entry.before_error,
        "after_us": entry.after_us,
        "trials": len(entry.trials),
        "stopped_by": entry.stopped_by,
        "verification_s": published.verification_s,
        "record": published.record and to_data(publication.in_words(published.record)),
        "reason": publication.publication_reason(published),
    }


def _table(tuned: Sequence[TuningResult], width: int) -> Table:
    """What is in words stands side by side where there is room, else one under the other."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("chip")
    for name in ("weight", "trials", "before", "after", "×"):
        table.add_column(name, justify="right")
    words, is_wide = ("problem", "config", "evidence"), width >= _WIDE
    for name in words if is_wide else (", ".join(words),):
        table.add_column(name, overflow="fold")
    for entry in tuned:
        key, record = entry.key, entry.record
        before_us = micros(entry.before_us)
        times = (
            key.chip.value,
            f"{entry.task.weight:g}",
            str(len(entry.trials)),
            f"≈{before_us}" if entry.predicted else before_us,
            micros(entry.after_us),
            ratio(entry.before_us, entry.after_us),
        )
        cells = (
            problem_cell(key),
            ("default" if record.is_default else str(record.config)) if record else "–",
            f"{record.method}, {publication.verified_label(record)}" if record else _why(entry),
        )
        table.add_row(*times, *(cells if is_wide else cells[:1]))
        for cell in () if is_wide else cells[1:]:
            table.add_row(*[""] * len(times), cell)
    return table


def _why(entry: TuningResult) -> str:
    return publication.publication_reason(entry.publication) if entry.publication else ""


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """One line for each, the worst first; a table where there are several toolchains."""
    if as_json:
        words = ((c, {"finding": finding(c), "action": action(c)}) for c in checks)
        print_json([to_data(check_in_words(check)) | said for check, said in words])
    elif not checks:
        echo("there is nothing to check: all that is published is of this toolchain and chip")
    else:
        if len({check.toolchain for check in checks}) > 1:
            screen().print(_matrix(checks))
        _print_lines(checks)
        echo(_counts(checks))


def write_markdown(path: str, checks: Sequence[Check]) -> None:
    write_file(Path(path), f"{markdown(checks)}\n{_counts(checks) or 'nothing was checked'}\n")


def write_junit(path: str, checks: Sequence[Check], fail_on: FailOn) -> None:
    """One test case for each check: what CI servers show. What was not checked is skipped."""
    failed = [check for check in checks if fail_on.fails(check)]
    unknown = [check for check in checks if check.verdict is CheckVerdict.NOT_CHECKED]
    skipped = [check for check in unknown if check not in failed]
    suite = ElementTree.Element(
        "testsuite",
        name="autotune check",
        tests=str(len(checks)),
        failures=str(len(failed)),
        skipped=str(len(skipped)),
        errors="0",
    )
    for check in checks:
        kernel, name = visible(check.key.kernel), visible(subject_line(check))
        case = ElementTree.SubElement(suite, "testcase", classname=kernel, name=name)
        said = visible(f"{check.verdict}: {finding(check)}")
        if check in failed:
            ElementTree.SubElement(case, "failure", message=said).text = visible(action(check))
        elif check in skipped:
            ElementTree.SubElement(case, "skipped", message=said)
        else:
            ElementTree.SubElement(case, "system-out").text = said
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
    write_file(Path(path), f"{text}\n")


def _print_lines(checks: Sequence[Check]) -> None:
    for check in checks:
        echo(f"{check.verdict.value:<13}{subject_line(check)}: {finding(check)}")
        todo = action(check)
        if todo:
            echo(f"{'':<13}{todo}")


def _matrix(checks: Sequence[Check]) -> Table:
    columns = sorted({check.toolchain for check in checks})
    rows: dict[str, dict[Toolchain, str]] = {}
    for check in checks:
        rows.setdefault(place_line(check), {})[check.toolchain] = check.verdict.value
    table = Table("record", *(f"jax {column.jax}" for column in columns), box=box.SIMPLE_HEAD)
    for place in sorted(rows):
        table.add_row(*map(Text, [place, *(rows[place].get(column, "") for column in columns)]))
    return table


def _counts(checks: Sequence[Check]) -> str:
    counts = {v: sum(check.verdict is v for check in checks) for v in CheckVerdict}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
