"""The table at the end of a search, and the same as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from autotune.cli.json_output import trial_data
from autotune.cli.measuring import measured_line, measured_table
from autotune.cli.screen import LOG_WIDTH, PlainConsole, screen
from autotune.cost_model.comparison import compare
from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate
from autotune.domain.outcome import OutcomeKind
from autotune.domain.trial import Trial
from autotune.publishing.publish import Publication
from autotune.searching.loop import SearchResult
from autotune.wording.comparison import why
from autotune.wording.config import limit_text, order_text, semantics_text
from autotune.wording.facts import parts_line
from autotune.wording.publication import verified_label
from autotune.wording.units import error_bar, mebibytes, micros, ratio, seconds

_TOP = 5

Ids = dict[int, int | None]


def as_data(result: SearchResult, published: Publication, ids: Ids) -> dict[str, Any]:
    """Everything that the table says."""
    space = result.space
    return {
        "key": to_data(result.subject.key),
        "stopped_by": result.stopped_by,
        "seconds": result.seconds,
        "reused": result.reused,
        "space": {
            "raw_points": space.raw_points,
            "candidates": len(space.candidates),
            "merged": space.merged,
            "refused": dict(space.refused),
        },
        "outcomes": dict(Counter(t.outcome.kind for t in result.trials)),
        "winner": _trial_data(published.winner, ids),
        "default": _trial_data(published.default, ids),
        "baseline": to_data(published.baseline),
        "top": [_trial_data(t, ids) for t in top(result.trials)],
        "given": [_trial_data(t, ids) for t in _given(result)],
        "compared_with_given": _against_given(result, published, ids),
        "ties": [ids.get(trial.number) for trial in published.ties],
        "record": None if published.record is None else to_data(published.record),
        "reason": published.reason,
        "verification_s": published.verification_s,
        "wrong": _refused(published.wrong, ids),
        "unverified": _refused(published.unverified, ids),
        "chip": {**asdict(result.subject.chip), "chip": result.subject.chip.chip.value},
    }


def top(trials: list[Trial]) -> list[Trial]:
    """The best estimated trials, the fastest first."""
    timed = [t for t in trials if t.estimate is not None]
    return sorted(timed, key=lambda t: t.estimate.time_us if t.estimate else 0.0)[:_TOP]


def result_text(result: SearchResult, published: Publication, ids: Ids, place: str) -> str:
    """What ``print_result`` prints."""
    console = PlainConsole(width=LOG_WIDTH, file=StringIO(), record=True)
    print_result(result, published, ids, place, console)
    return console.export_text()


def result_html(result: SearchResult, published: Publication, ids: Ids, place: str) -> str:
    """The same for a notebook."""
    console = PlainConsole(width=LOG_WIDTH, file=StringIO(), record=True)
    print_result(result, published, ids, place, console)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def print_result(
    result: SearchResult,
    published: Publication,
    ids: Ids,
    place: str,
    console: Console | None = None,
) -> None:
    """The table for people."""
    console = console or screen()
    key = result.subject.key
    console.print(f"{key.kernel} {key.problem} on {key.chip}", style="bold")
    console.print(str(key.toolchain))
    console.print(_table(result, published, ids))
    found = None if published.record is None else published.record.measurement
    if found is not None:
        console.print(measured_table(found, result.trials))
        console.print(measured_line(found))
    for line in _against_given(result, published, ids):
        console.print(line)
    for line in (*_winner_lines(published), *_count_lines(result, published)):
        console.print(line)
    record = published.record
    state = record and verified_label(record)
    console.print(f"{'Published, ' + state if state else 'Nothing published'}: {published.reason}.")
    if record is not None:
        console.print(f"Checked: {record.verification}.")
    console.print(f"Kept in {place}", soft_wrap=True)


def _given(result: SearchResult) -> list[Trial]:
    """The trials of the configs that the search was to start from."""
    return [trial for trial in result.trials if trial.config in result.start_from]


def _against_given(result: SearchResult, published: Publication, ids: Ids) -> list[str]:
    """The winner beside each config that was given, in words."""
    winner, lines = published.winner, []
    for trial in _given(result):
        name = f"the config you gave (trial {ids.get(trial.number)})"
        if trial.estimate is None:
            lines.append(
                f"{name[:1].upper()}{name[1:]}: {trial.outcome.kind}, {trial.outcome.reason}"
            )
        elif winner is trial:
            lines.append(f"The winner is {name}.")
        elif winner is not None and winner.estimate is not None:
            named = NamedEstimate(name="the winner", estimate=winner.estimate)
            lines.append(why(compare(named, NamedEstimate(name=name, estimate=trial.estimate))))
    return lines


def _table(result: SearchResult, published: Publication, ids: Ids) -> Table:
    """One column per axis of the config: rows stay short."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    spec = result.subject.spec
    table.add_column("", no_wrap=True)
    for name in ("trial", *spec.axes, "order", "sem.", "limit"):
        table.add_column(name, overflow="fold", justify="right" if name in spec.axes else "left")
    for name in ("estimated", "× default", "limited by", "VMEM used"):
        table.add_column(name, justify="left" if name == "limited by" else "right", no_wrap=True)
    default, winner = published.default, published.winner
    default_us = default.estimate.time_us if default and default.estimate else None
    rows = top(result.trials)
    given = _given(result)
    for extra in (*given, default, winner):
        if extra is not None and extra not in rows:
            rows.append(extra)
    for trial in rows:
        named = (("winner", winner), ("default", default))
        roles = [name for name, t in named if trial is t] + ["given"] * (trial in given) or [
            "tie"
        ] * (trial in published.ties)
        table.add_row(
            ", ".join(roles),
            str(ids.get(trial.number)),
            *_config_cells(trial),
            *_time_cells(trial, default_us),
        )
    table.add_row("plain XLA", *[""] * (4 + len(spec.axes)), *_baseline_cells(published))
    return table


def _config_cells(trial: Trial) -> list[str]:
    config = trial.config
    return [
        *(str(value) for _, value in config.axes),
        order_text(config.grid_order),
        semantics_text(config.dimension_semantics),
        limit_text(config.vmem_limit_bytes),
    ]


def _time_cells(trial: Trial, default_us: float | None) -> list[str]:
    e = trial.estimate
    if e is None:
        return ["–", "–", trial.outcome.kind, "–"]
    return [
        f"{micros(e.time_us)} {error_bar(e.error)}",
        ratio(default_us, e.time_us),
        e.limiting_part,
        mebibytes(e.vmem_used_bytes),
    ]


def _baseline_cells(published: Publication) -> list[str]:
    bound = published.baseline.time_us
    return [f"≥ {micros(bound)}" if bound else "–", "", "lower bound" if bound else "unknown", ""]


def _winner_lines(published: Publication) -> list[str]:
    winner = published.winner
    if winner is None or winner.estimate is None:
        return []
    e = winner.estimate
    lines = [f"The winner's time: {parts_line(e)}."] if e.explanation else []
    lines += [f"Note: {note}." for note in e.notes]
    note = published.baseline.note
    lines.append(f"{note[:1].upper()}{note[1:]}.")
    return lines


def _count_lines(result: SearchResult, published: Publication) -> list[str]:
    kinds = Counter(t.outcome.kind for t in result.trials)
    reused = f" ({result.reused} from earlier runs)" if result.reused else ""
    lines = [
        f"{len(result.trials)} trials{reused} of {len(result.space.candidates)} candidates in "
        f"{seconds(result.seconds)}, stopped by {result.stopped_by}: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        + "."
    ]
    failed = Counter(
        (t.outcome.kind, t.outcome.reason)
        for t in result.trials
        if t.outcome.kind != OutcomeKind.ESTIMATED
    )
    lines += [f"  {n} × {kind}: {reason}" for (kind, reason), n in failed.most_common(_TOP)]
    lines += [f"  wrong result: {trial.config}: {reason}" for trial, reason in published.wrong]
    lines += [f"  not verified: {trial.config}: {why}" for trial, why in published.unverified]
    return lines


def _refused(finalists: Sequence[tuple[Trial, str]], ids: Ids) -> list[dict[str, Any]]:
    return [{"trial": _trial_data(trial, ids), "reason": reason} for trial, reason in finalists]


def _trial_data(trial: Trial | None, ids: Ids) -> dict[str, Any] | None:
    return None if trial is None else {"id": ids.get(trial.number), **trial_data(trial)}
