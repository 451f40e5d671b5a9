"""The table at the end of a search, and the same as JSON."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.cli.asdata import evidence_data, key_data, record_data, trial_data
from autotune.cli.units import mebibytes, micros, ratio, seconds
from autotune.search.loop import Result
from autotune.search.publish import Publication
from autotune.trial import Trial

_TOP = 5

Ids = dict[int, int | None]


def as_data(result: Result, published: Publication, ids: Ids) -> dict[str, Any]:
    """Everything that the table says."""
    space = result.space
    return {
        "key": key_data(result.subject.key),
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
        "baseline": evidence_data(published.baseline),
        "top": [_trial_data(t, ids) for t in top(result.trials)],
        "record": None if published.record is None else record_data(published.record),
        "reason": published.reason,
        "wrong": [
            {"trial": _trial_data(trial, ids), "reason": reason}
            for trial, reason in published.wrong
        ],
        "chip": {**asdict(result.subject.chip), "chip": result.subject.chip.chip.value},
    }


def top(trials: list[Trial]) -> list[Trial]:
    """The best estimated trials, the fastest first."""
    timed = [t for t in trials if t.estimate is not None]
    return sorted(timed, key=lambda t: t.estimate.time_us if t.estimate else 0.0)[:_TOP]


def print_result(result: Result, published: Publication, ids: Ids, place: str) -> None:
    """The table for people."""
    console = Console()
    key = result.subject.key
    console.print(f"[bold]{key.kernel}[/] {key.problem} on [bold]{key.chip}[/] ({key.toolchain})",
                  highlight=False)  # fmt: skip
    console.print(_table(result, published, ids))
    for line in (*_winner_lines(published), *_count_lines(result, published)):
        console.print(line, highlight=False)
    state = published.record and ("verified" if published.record.verified else "NOT VERIFIED")
    console.print(f"{'Published, ' + state if state else 'Nothing published'}: "
                  f"{published.reason}. Kept in {place}.", highlight=False)  # fmt: skip


def _table(result: Result, published: Publication, ids: Ids) -> Table:
    table = Table(title_justify="left")
    for name in ("", "trial", "config", "time (est.)", "vs default", "limited by", "VMEM used"):
        table.add_column(name, overflow="fold", justify="right" if "time" in name else "left")
    default = published.default
    default_us = default.estimate.time_us if default and default.estimate else None
    winner = published.winner
    rows = top(result.trials)
    if winner is not None and winner not in rows:
        rows.insert(0, winner)
    for trial in rows:
        _row(table, "winner" if trial is winner else "", trial, default_us, ids)
    if default is not None and default not in rows:
        _row(table, "default", default, default_us, ids)
    baseline_us = published.baseline.time_us
    table.add_row("plain XLA", "", "", f"≥ {micros(baseline_us)}" if baseline_us else "–",
                  "", "lower bound" if baseline_us else published.baseline.note, "")  # fmt: skip
    return table


def _row(table: Table, label: str, trial: Trial, default_us: float | None, ids: Ids) -> None:
    number = ids.get(trial.number)
    if trial.number == 0:
        label = f"{label}, default" if label == "winner" else "default"
    e = trial.estimate
    if e is None:
        table.add_row(label, str(number), str(trial.config), "–", "–", trial.outcome.kind, "–")
        return
    table.add_row(
        label, str(number), str(trial.config), micros(e.time_us),
        ratio(default_us, e.time_us), e.limited_by,
        f"{mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}",
    )  # fmt: skip


def _winner_lines(published: Publication) -> list[str]:
    winner = published.winner
    if winner is None or winner.estimate is None:
        return []
    e = winner.estimate
    lines = [
        f"The winner's time: core busy {micros(e.compute_us)}, HBM {micros(e.memory_us)}, "
        f"step overhead {micros(e.overhead_us)}, pipeline fill {micros(e.fill_us)} "
        f"(they overlap); limited by {e.limited_by}."
    ]
    lines += [f"Note: {note}." for note in e.notes]
    baseline_us = published.baseline.time_us
    if baseline_us is not None and baseline_us > e.time_us:
        lines.append("Plain XLA cannot be faster than this estimate: its own roofline is above it.")
    elif baseline_us is not None:
        lines.append(
            f"Plain XLA may be faster: its roofline is {ratio(e.time_us, baseline_us)} below this "
            "estimate; XLA rarely reaches it. Compare on a TPU."
        )
    return lines


def _count_lines(result: Result, published: Publication) -> list[str]:
    kinds = Counter(t.outcome.kind for t in result.trials)
    reused = f" ({result.reused} from earlier runs)" if result.reused else ""
    lines = [
        f"{len(result.trials)} trials{reused} of {len(result.space.candidates)} candidates in "
        f"{seconds(result.seconds)}, stopped by {result.stopped_by}: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        + "."
    ]
    failed = Counter(
        (t.outcome.kind, t.outcome.reason) for t in result.trials if t.outcome.kind != "estimated"
    )
    lines += [f"  {n} × {kind}: {reason}" for (kind, reason), n in failed.most_common(_TOP)]
    lines += [f"  wrong result: {trial.config}: {reason}" for trial, reason in published.wrong]
    return lines


def _trial_data(trial: Trial | None, ids: Ids) -> dict[str, Any] | None:
    return None if trial is None else {"id": ids.get(trial.number), **trial_data(trial)}
