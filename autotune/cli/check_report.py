"""What ``autotune check`` prints and writes: lines and a table, Markdown, JUnit XML."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich import box
from rich.table import Table
from rich.text import Text

from autotune.cli.shared import print_json, write_file
from autotune.domain.codec import to_data
from autotune.domain.key import Toolchain
from autotune.domain.record import Check, CheckVerdict
from autotune.domain.visible import visible
from autotune.publishing.checking.selection import FailOn
from autotune.wording.checks import action, finding, in_words, markdown, place_line, subject_line
from autotune.wording.output import echo
from autotune.wording.screen import screen

_WIDTH = 160  # columns, where there is no terminal


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """One line for each, the worst first; a table where there are several toolchains."""
    if as_json:
        print_json([_data(check) for check in checks])
    elif not checks:
        echo("there is nothing to check: all that is published is of this toolchain and chip")
    else:
        if len({check.toolchain for check in checks}) > 1:
            screen(_WIDTH).print(_matrix(checks))
        _print_lines(checks)
        echo(_counts(checks))


def write_markdown(path: str, checks: Sequence[Check]) -> None:
    """For a comment on a pull request."""
    write_file(Path(path), f"{markdown(checks)}\n{_counts(checks) or 'nothing was checked'}\n")


def write_junit(path: str, checks: Sequence[Check], fail_on: FailOn) -> None:
    """One test case for each check: what CI servers show. What was not checked is skipped."""
    failed = [check for check in checks if fail_on.fails(check)]
    skipped = [check for check in checks if _is_unknown(check) and check not in failed]
    suite = ElementTree.Element(
        "testsuite",
        name="autotune check",
        tests=str(len(checks)),
        failures=str(len(failed)),
        skipped=str(len(skipped)),
        errors="0",
    )
    for check in checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=visible(check.key.kernel),
            name=visible(subject_line(check)),
        )
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


def _is_unknown(check: Check) -> bool:
    return check.verdict is CheckVerdict.NOT_CHECKED


def _data(check: Check) -> dict[str, Any]:
    return {**to_data(in_words(check)), "finding": finding(check), "action": action(check)}


def _print_lines(checks: Sequence[Check]) -> None:
    """Under each what to do."""
    for check in checks:
        echo(f"{check.verdict.value:<13}{subject_line(check)}: {finding(check)}")
        todo = action(check)
        if todo:
            echo(f"{'':<13}{todo}")


def _matrix(checks: Sequence[Check]) -> Table:
    """Verdicts by record and toolchain."""
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
