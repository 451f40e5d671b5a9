"""The table at the end of a search, and the same as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from operator import attrgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare, larger_blocks
from autotune.domain.outcome import OutcomeKind, OutOfVmem
from autotune.domain.problem import limit_text, order_text, semantics_text
from autotune.domain.record import Evidence, GateState, Trial
from autotune.publishing.publish import Publication
from autotune.publishing.task import TuningResult
from autotune.searching.subject import SearchResult
from autotune.wording.facts import parts_line, what_to_change, why
from autotune.wording.measured_table import measured_line, measured_table
from autotune.wording.option_lines import option_lines
from autotune.wording.outcome import group_text, reason_of, trial_data, verdict_reason
from autotune.wording.publication import (
    baseline_note,
    default_note,
    default_time,
    in_words,
    publication_reason,
    record_verification,
    verified_label,
)
from autotune.wording.screen import LOG_WIDTH, PlainConsole, screen
from autotune.wording.units import counted, error_bar, mebibytes, micros, ratio, seconds

_TOP = 5
_ANY_WIDTH = 1000  # columns


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What people see of a search: of this run, or of an earlier one."""

    tuned: TuningResult

    @property
    def publication(self) -> Publication:
        assert self.tuned.publication is not None
        return self.tuned.publication

    @property
    def trials(self) -> Sequence[Trial]:
        return self.tuned.trials

    @property
    def wrong(self) -> list[Trial]:
        """By the gate, in this run."""
        return [trial for trial, _ in self.publication.wrong]

    @property
    def unverified(self) -> list[Trial]:
        """Finalists of which the gate could not say whether they are right."""
        return [trial for trial, _ in self.publication.unverified]

    def state(self, trial: Trial) -> GateState:
        """What the gate said of its program."""
        return self.publication.states.get(trial.number, GateState.NOT_VERIFIED)

    def is_refused(self, trial: Trial) -> bool:
        return self.state(trial) is GateState.REFUSED

    @property
    def kinds(self) -> Counter[str]:
        """Trials by what became of them, the gate's verdicts included."""
        return Counter(
            OutcomeKind.WRONG_RESULT.value if self.is_refused(trial) else trial.outcome.kind
            for trial in self.trials
        )


def _done(report: SearchReport) -> str:
    """How many trials there are, and how the search ended."""
    trials, search, record = report.trials, report.tuned.search, report.publication.record
    count = counted(len(trials), "trial")
    if search is None:
        assert record is not None
        return f"Searched before, {record.created_at:%Y-%m-%d %H:%M} UTC: {count}"
    reused = f" ({search.reused} from earlier runs)" if search.reused else ""
    ended = f"stopped by {search.stopped_by}"
    if search.stopped_by == "prediction":
        ended = (
            "ended early: what was compiled predicts that nothing faster is left (--full goes on)"
        )
    return f"{count}{reused}, {_tried(search)}, in {seconds(search.seconds)}, {ended}"


def as_data(tuned: TuningResult) -> dict[str, Any]:
    """Everything that the table of a search of this run says."""
    report = SearchReport(tuned)
    search, published, ids = tuned.search, report.publication, tuned.ids

    def data(trial: Trial | None) -> dict[str, Any] | None:
        if trial is None:
            return None
        return {"id": ids.get(trial.number), **trial_data(trial, report.state(trial))}

    assert search is not None
    space, chip = search.space, search.subject.chip
    return {
        "key": to_data(report.tuned.key),
        "stopped_by": search.stopped_by,
        "seconds": search.seconds,
        "reused": search.reused,
        "space": {
            "raw_points": space.raw_points,
            "candidates": len(space.candidates),
            "climbed": space.climbed,
            "merged": space.merged,
            "refused": {group_text(group): n for group, n in space.refused.items()},
        },
        "outcomes": dict(report.kinds),
        "winner": data(published.winner),
        "default": data(published.default),
        "default_predicted": search.default
        and to_data(replace(search.default, note=default_note(search.default))),
        "baseline": to_data(_with_note(published)),
        "top": [data(t) for t in _top(report)],
        "given": [data(t) for t in report.tuned.given],
        "compared_with_given": _against_given(report),
        "ties": [ids.get(trial.number) for trial in published.ties],
        "record": None if published.record is None else to_data(in_words(published.record)),
        "reason": publication_reason(published),
        "verification_s": published.verification_s,
        "wrong": [{"trial": data(t), "reason": verdict_reason(v)} for t, v in published.wrong],
        "unverified": [
            {"trial": data(t), "reason": verdict_reason(v)} for t, v in published.unverified
        ],
        "chip": {**asdict(chip), "chip": chip.chip.value},
        "with_options": [
            {
                "options": of.key.toolchain.options,
                "trials": len(of.trials),
                "best": of.best and trial_data(of.best, GateState.NOT_VERIFIED),
                "record": of.record and to_data(in_words(of.record)),
            }
            for of in tuned.with_options
        ],
    }


def report_text(tuned: TuningResult) -> str:
    """What ``print_report`` prints, without padding."""
    return "\n".join(map(str.rstrip, _recorded(tuned).export_text().rstrip().splitlines()))


def report_html(tuned: TuningResult) -> str:
    """The same for a notebook."""
    return _recorded(tuned).export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _recorded(tuned: TuningResult) -> Console:
    """In a notebook nothing is displayed beside what is returned."""
    console = PlainConsole(width=LOG_WIDTH, file=StringIO(), record=True, force_jupyter=False)
    print_report(tuned, console)
    return console


def print_report(tuned: TuningResult, console: Console | None = None) -> None:
    """The table for people."""
    report = SearchReport(tuned)
    console = console or screen()
    key, record = report.tuned.key, report.publication.record
    console.print(f"{key.kernel} {key.problem} on {key.chip}", style="bold")
    console.print(str(key.toolchain))
    console.print(_table_for(console, report))
    measurement = None if record is None else record.measurement
    if measurement is not None:
        console.print(measured_table(measurement, report.trials))
        console.print(measured_line(measurement))
    first = (*_own_blocks(report), *_predicted_lines(report))
    lines = (*first, *_against_given(report), *_winner_lines(report))
    for line in (*lines, *_count_lines(report)):
        console.print(line)
    state = f"Published, {verified_label(record)}" if record else "Nothing published"
    console.print(f"{state}: {publication_reason(report.publication)}.")
    if record is not None:
        console.print(f"Checked: {record_verification(record)}.")
    for line in option_lines(tuned):
        console.print(line)
    console.print(f"Kept in {report.tuned.place}", soft_wrap=True)


def _own_blocks(report: SearchReport) -> list[str]:
    """Of a default that does not fit as it is: the limit that its blocks want."""
    default = report.publication.default
    if default is None or not isinstance(default.outcome, OutOfVmem):
        return []
    blocks = attrgetter("axes", "grid_order")
    for trial in report.trials:
        e, config = trial.estimate, trial.config
        is_same = blocks(config) == blocks(default.config)
        if is_same and e is not None and config.vmem_limit_bytes is not None:
            return [
                f"The default's blocks fit with vmem_limit_bytes = {config.vmem_limit_bytes:_} "
                f"(trial {report.tuned.ids.get(trial.number)}, {micros(e.time_us)}); they use "
                f"{e.vmem_used_bytes:_}, which is the least that is enough."
            ]
    return []


def _predicted(report: SearchReport) -> Evidence | None:
    """What a published winner is compared with, where that was not compiled."""
    record = report.publication.record
    return record.default if record and record.default.is_predicted else None


def _predicted_lines(report: SearchReport) -> list[str]:
    default = _predicted(report)
    if not default:
        return []
    return [f"Default {default.config}: {default_time(default)}, {default_note(default)}."]


def _against_given(report: SearchReport) -> list[str]:
    """The winner beside each config that was given, in words."""
    winner, lines = report.publication.winner, []
    for trial in report.tuned.given:
        name = f"the config you gave (trial {report.tuned.ids.get(trial.number)})"
        if trial.estimate is None:
            lines.append(
                f"{name[:1].upper()}{name[1:]}: {trial.outcome.kind}, {reason_of(trial.outcome)}"
            )
        elif winner is trial:
            lines.append(f"The winner is {name}.")
        elif winner is not None and winner.estimate is not None:
            named = NamedEstimate(name="the winner", estimate=winner.estimate)
            lines.append(why(compare(named, NamedEstimate(name=name, estimate=trial.estimate))))
    return lines


def _table_for(console: Console, report: SearchReport) -> Table:
    """A column for each part of a config where there is room, else one for all of it: headers are
    never broken."""
    rows = _rows(report)
    cells = [_config_cells(trial) for trial in rows]
    names = (*report.tuned.spec.axes, "order", "sem.", "limit")
    shown = [n for n, column in enumerate(zip(*cells, strict=True)) if set(column) - {"", _OWN}]
    wide = _table(
        report,
        rows,
        [names[n] for n in shown],
        [[cell[n] for n in shown] for cell in cells],
        full=True,
    )
    any_width = console.options.update(width=_ANY_WIDTH)
    if console.measure(wide, options=any_width).maximum <= console.width:
        return wide
    return _table(report, rows, ["config"], [[str(trial.config)] for trial in rows], full=False)


def _table(
    report: SearchReport,
    rows: Sequence[Trial],
    names: Sequence[str],
    configs: Sequence[Sequence[str]],
    *,
    full: bool,
) -> Table:
    """``full``: with what limits each."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("", "trial", *names):
        right = name in report.tuned.spec.axes
        table.add_column(name, no_wrap=name != "config", justify="right" if right else "left")
    times = "× default, predicted" if _predicted(report) else "× default"
    for name in ("estimated", times, "VMEM used"):
        table.add_column(name, justify="right", no_wrap=True)
    if full:
        table.add_column("limited by", no_wrap=True)
    default, bound = report.publication.default, report.publication.baseline.time_us
    default_us = default.estimate.time_us if default and default.estimate else None
    if predicted := _predicted(report):
        default_us = predicted.expected_us
    width = 4 if full else 3
    for trial, config in zip(rows, configs, strict=True):
        start = [", ".join(_roles(trial, report)), str(report.tuned.ids.get(trial.number))]
        table.add_row(*start, *config, *_time_cells(trial, default_us)[:width])
    xla = [f"≥ {micros(bound)}" if bound else "–", "", "", "lower bound" if bound else "unknown"]
    table.add_row("plain XLA", "", *[""] * len(names), *xla[:width])
    return table


def _top(report: SearchReport) -> list[Trial]:
    """The best estimated trials that are not known to be wrong, the fastest first."""
    timed = [t for t in report.trials if t.estimate is not None and not report.is_refused(t)]
    return sorted(timed, key=lambda t: t.estimate.time_us if t.estimate else 0.0)[:_TOP]


def _rows(report: SearchReport) -> list[Trial]:
    """The best ones, those that somebody has given, and those that were passed over."""
    rows, published = _top(report), report.publication
    passed_over = (*report.wrong, *report.unverified)
    for extra in (*report.tuned.given, published.default, published.winner, *passed_over):
        if extra is not None and extra not in rows:
            rows.append(extra)
    return rows


def _roles(trial: Trial, report: SearchReport) -> list[str]:
    roles = {
        "WRONG": trial in report.wrong,
        "NOT VERIFIED": trial in report.unverified,
        "winner": trial is report.publication.winner,
        "default": trial is report.publication.default,
        "given": trial in report.tuned.given,
    }
    names = [name for name, is_so in roles.items() if is_so]
    names = names or ["tie"] * (trial in report.publication.ties)
    state = report.state(trial)
    is_said = state is GateState.VERIFIED or "NOT VERIFIED" in names or "WRONG" in names
    return names if is_said or not {"winner", "tie"} & set(names) else [*names, state]


def _config_cells(trial: Trial) -> list[str]:
    config = trial.config
    return [
        *(str(value) for _, value in config.axes),
        order_text(config.grid_order),
        semantics_text(config.dimension_semantics),
        limit_text(config.vmem_limit_bytes),
    ]


_OWN = limit_text(None)


def _time_cells(trial: Trial, default_us: float | None) -> list[str]:
    e = trial.estimate
    if e is None:
        return ["–", "–", "–", trial.outcome.kind]
    return [
        f"{micros(e.time_us)} {error_bar(e.error)}",
        ratio(default_us, e.time_us),
        mebibytes(e.vmem_used_bytes),
        e.limiting_part,
    ]


def _winner_lines(report: SearchReport) -> list[str]:
    winner = report.publication.winner
    if winner is None or winner.estimate is None:
        return []
    e, search = winner.estimate, report.tuned.search
    failed = {trial.config for trial in report.trials if trial.estimate is None}
    fitting = [c.config for c in search.space.candidates] if search else None
    larger = None if fitting is None else larger_blocks(winner.config, fitting, failed)
    lines = []
    if e.explanation:
        lines = [
            f"The winner's time: {parts_line(e)}.",
            f"It is limited by {e.limiting_part}: {what_to_change(e, e.explanation, larger)}.",
        ]
    lines += [f"Note: {note}." for note in e.notes]
    note = baseline_note(e, report.publication.baseline)
    lines.append(f"{note[:1].upper()}{note[1:]}.")
    return lines


def _count_lines(report: SearchReport) -> list[str]:
    counts = ", ".join(f"{n} {kind}" for kind, n in report.kinds.most_common())
    published = report.publication
    failed = Counter(
        (t.outcome.kind, reason_of(t.outcome))
        for t in report.trials
        if t.outcome.kind != OutcomeKind.ESTIMATED
    )
    return [
        f"{_done(report)}: {counts}.",
        *(f"  {n} × {kind}: {reason}" for (kind, reason), n in failed.most_common(_TOP)),
        *(f"  wrong result: {t.config}: {v.said}" for t, v in published.wrong),
        *(f"  not verified: {t.config}: {verdict_reason(v)}" for t, v in published.unverified),
    ]


def _tried(result: SearchResult) -> str:
    """How many of the candidates, and what else."""
    candidates = {candidate.config for candidate in result.space.candidates}
    others = sum(trial.config not in candidates for trial in result.trials)
    text = f"{len(result.trials) - others} of {len(candidates)} candidates"
    if result.space.climbed:
        text += f" ({result.space.climbed} added with a higher VMEM limit)"
    return text + f" and {others} other config{'s' * (others > 1)}" * bool(others)


def _with_note(published: Publication) -> Evidence:
    winner = published.winner and published.winner.estimate
    note = baseline_note(winner, published.baseline) if winner else ""
    return replace(published.baseline, note=note)
