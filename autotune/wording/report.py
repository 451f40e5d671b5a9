"""The table at the end of a search, and the same as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import StringIO
from operator import attrgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare, other_blocks
from autotune.domain.evidence import Measurement
from autotune.domain.explanation import FILL
from autotune.domain.outcome import OutcomeKind, OutOfVmem
from autotune.domain.problem import limit_text, order_text, semantics_text
from autotune.domain.record import PASSED, Evidence, GateState, Trial
from autotune.publishing.publish import Publication
from autotune.publishing.task import TuningResult
from autotune.searching.subject import SearchResult
from autotune.wording import publication
from autotune.wording.facts import parts_line, what_to_change, why
from autotune.wording.measurement import ratio_interval, run_line
from autotune.wording.option_lines import option_lines
from autotune.wording.outcome import group_text, reason_of, trial_data, verdict_reason
from autotune.wording.screen import LOG_WIDTH, PlainConsole, screen
from autotune.wording.units import counted, error_bar, mebibytes, micros, ratio, seconds

_TOP = 5
_ANY_WIDTH = 1000  # columns
_ENDS = {
    "exhausted": "the whole space was tried",
    "prediction": (
        "ended early: what was compiled predicts that nothing faster is left (--full goes on)"
    ),
    "trials": "stopped at its number of trials",
    "timeout": "stopped at its time limit",
}


def _publication(tuned: TuningResult) -> Publication:
    assert tuned.publication is not None
    return tuned.publication


def _kinds(tuned: TuningResult) -> Counter[str]:
    """Trials by what became of them, the gate's verdicts included."""
    return Counter(
        OutcomeKind.WRONG_RESULT.value if _is_refused(tuned, trial) else trial.outcome.kind
        for trial in tuned.trials
    )


def _is_refused(tuned: TuningResult, trial: Trial) -> bool:
    return _publication(tuned).state(trial) is GateState.REFUSED


def _done(tuned: TuningResult) -> str:
    """How many trials there are, and how the search ended."""
    trials, search, record = tuned.trials, tuned.search, _publication(tuned).record
    count = counted(len(trials), "trial")
    if search is None:
        assert record is not None
        return f"Searched before, {record.created_at:%Y-%m-%d %H:%M} UTC: {count}"
    reused = f" ({search.reused} from earlier runs)" if search.reused else ""
    ended = _ENDS.get(search.stopped_by, search.stopped_by)
    if search.space.untraced:
        ended += f"; {counted(len(search.space.untraced), 'point')} of the space not traced"
    return f"{count}{reused}, {_tried(search)}, in {seconds(search.seconds)}, {ended}"


def as_data(tuned: TuningResult) -> dict[str, Any]:
    """Everything that the table of a search of this run says."""
    search, published, ids = tuned.search, _publication(tuned), tuned.ids

    def data(trial: Trial | None) -> dict[str, Any] | None:
        if trial is None:
            return None
        return {"id": ids.get(trial.number), **trial_data(trial, published.state(trial))}

    assert search is not None
    space, chip = search.space, search.subject.chip
    winner = published.winner and published.winner.estimate
    note = publication.baseline_note(winner, published.baseline) if winner else ""
    return {
        "key": to_data(tuned.key),
        "stopped_by": search.stopped_by,
        "seconds": search.seconds,
        "reused": search.reused,
        "space": {
            "raw_points": space.raw_points,
            "untraced": len(space.untraced),
            "candidates": len(space.candidates),
            "climbed": space.climbed,
            "merged": space.merged,
            "refused": {group_text(group): n for group, n in space.refused.items()},
        },
        "outcomes": dict(_kinds(tuned)),
        "winner": data(published.winner),
        "default": data(published.default),
        "default_predicted": search.default
        and to_data(replace(search.default, note=publication.default_note(search.default))),
        "baseline": to_data(replace(published.baseline, note=note)),
        "top": [data(t) for t in _top(tuned)],
        "given": [data(t) for t in tuned.given],
        "compared_with_given": _against_given(tuned),
        "ties": [ids.get(trial.number) for trial in published.ties],
        "record": None
        if published.record is None
        else to_data(publication.in_words(published.record)),
        "reason": publication.publication_reason(published),
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
                "record": of.record and to_data(publication.in_words(of.record)),
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
    console = console or screen()
    key, record = tuned.key, _publication(tuned).record
    console.print(f"{key.kernel} {key.problem} on {key.chip}", style="bold")
    console.print(str(key.toolchain))
    console.print(_table_for(console, tuned))
    if record is not None and record.measurement is not None:
        console.print(measured_table(record.measurement, tuned.trials))
        console.print(run_line(record.measurement))
    for line in _own_blocks(tuned):
        console.print(line)
    if default := _predicted(tuned):
        said = f"{publication.default_time(default)}, {publication.default_note(default)}"
        console.print(f"Default {default.config}: {said}.")
    for line in (*_against_given(tuned), *_winner_lines(tuned), *_count_lines(tuned)):
        console.print(line)
    state = f"Published, {publication.verified_label(record)}" if record else "Nothing published"
    console.print(f"{state}: {publication.publication_reason(_publication(tuned))}.")
    if record is not None:
        console.print(f"Checked: {publication.record_verification(record)}.")
    for line in option_lines(tuned):
        console.print(line)
    console.print(f"Kept in {tuned.place}", soft_wrap=True)


def _own_blocks(tuned: TuningResult) -> list[str]:
    """Of a default that does not fit as it is: the limit that its blocks want."""
    default = _publication(tuned).default
    if default is None or not isinstance(default.outcome, OutOfVmem):
        return []
    blocks = attrgetter("axes", "grid_order")
    for trial in tuned.trials:
        e, config = trial.estimate, trial.config
        is_same = blocks(config) == blocks(default.config)
        if is_same and e is not None and config.vmem_limit_bytes is not None:
            return [
                f"The default's blocks fit with vmem_limit_bytes = {config.vmem_limit_bytes:_} "
                f"(trial {tuned.ids.get(trial.number)}, {micros(e.time_us)}); they use "
                f"{e.vmem_used_bytes:_}, which is the least that is enough."
            ]
    return []


def _predicted(tuned: TuningResult) -> Evidence | None:
    """What a published winner is compared with, where that was not compiled."""
    record = _publication(tuned).record
    return record.default if record and record.default.is_predicted else None


def _against_given(tuned: TuningResult) -> list[str]:
    """The winner beside each config that was given, in words."""
    winner, lines = _publication(tuned).winner, []
    for trial in tuned.given:
        name = f"the config you gave (trial {tuned.ids.get(trial.number)})"
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


def _table_for(console: Console, tuned: TuningResult) -> Table:
    """A column for each part of a config where there is room, else one for all of it: headers are
    never broken."""
    rows = _rows(tuned)
    cells = [_config_cells(trial) for trial in rows]
    names = (*tuned.spec.axes, "order", "sem.", "limit")
    shown = [n for n, column in enumerate(zip(*cells, strict=True)) if set(column) - {"", _OWN}]
    configs = [[cell[n] for n in shown] for cell in cells]
    wide = _table(tuned, rows, [names[n] for n in shown], configs, full=True)
    any_width = console.options.update(width=_ANY_WIDTH)
    if console.measure(wide, options=any_width).maximum <= console.width:
        return wide
    return _table(tuned, rows, ["config"], [[str(trial.config)] for trial in rows], full=False)


def _table(
    tuned: TuningResult,
    rows: Sequence[Trial],
    names: Sequence[str],
    configs: Sequence[Sequence[str]],
    *,
    full: bool,
) -> Table:
    """``full``: with what limits each."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("", "trial", *names):
        right = name in tuned.spec.axes
        table.add_column(name, no_wrap=name != "config", justify="right" if right else "left")
    predicted = _predicted(tuned)
    times = "× default, predicted" if predicted else "× default"
    for name in ("estimated", times, "VMEM used"):
        table.add_column(name, justify="right", no_wrap=True)
    if full:
        table.add_column("limited by", no_wrap=True)
    default, bound = _publication(tuned).default, _publication(tuned).baseline.time_us
    default_us = default.time_us if default else None
    default_us = predicted.expected_us if predicted else default_us
    width = 4 if full else 3
    for trial, config in zip(rows, configs, strict=True):
        start = [", ".join(_roles(trial, tuned)), str(tuned.ids.get(trial.number))]
        table.add_row(*start, *config, *_time_cells(trial, default_us)[:width])
    xla = [f"≥ {micros(bound)}" if bound else "–", "", "", "lower bound" if bound else "unknown"]
    table.add_row("plain XLA", "", *[""] * len(names), *xla[:width])
    return table


def _top(tuned: TuningResult) -> list[Trial]:
    """The best estimated trials that are not known to be wrong, the fastest first."""
    timed = [t for t in tuned.trials if t.estimate is not None and not _is_refused(tuned, t)]
    return sorted(timed, key=lambda t: t.time_us or 0.0)[:_TOP]


def _rows(tuned: TuningResult) -> list[Trial]:
    """The best ones, those that somebody has given, and those that were passed over."""
    rows, published = _top(tuned), _publication(tuned)
    passed_over = [trial for trial, _ in (*published.wrong, *published.unverified)]
    for extra in (*tuned.given, published.default, published.winner, *passed_over):
        if extra is not None and extra not in rows:
            rows.append(extra)
    return rows


def _roles(trial: Trial, tuned: TuningResult) -> list[str]:
    published = _publication(tuned)
    roles = {
        "WRONG": trial in (wrong for wrong, _ in published.wrong),
        "NOT VERIFIED": trial in (unverified for unverified, _ in published.unverified),
        "winner": trial is published.winner,
        "default": trial is published.default,
        "given": trial in tuned.given,
    }
    names = [name for name, is_so in roles.items() if is_so]
    names = names or ["tie"] * (trial in published.ties)
    state = published.state(trial)
    is_said = state in PASSED.values() or "NOT VERIFIED" in names or "WRONG" in names
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


def _winner_lines(tuned: TuningResult) -> list[str]:
    winner = _publication(tuned).winner
    if winner is None or winner.estimate is None:
        return []
    e, search = winner.estimate, tuned.search
    failed = {trial.config for trial in tuned.trials if trial.estimate is None}
    fitting = [c.config for c in search.space.candidates] if search else None
    sign = -1 if e.limiting_part == FILL else 1
    sizes = None if fitting is None else other_blocks(winner.config, fitting, failed, sign)
    lines = []
    if e.explanation:
        lines = [
            f"The winner's time: {parts_line(e)}.",
            f"It is limited by {e.limiting_part}: {what_to_change(e, e.explanation, sizes)}.",
        ]
    lines += [f"Note: {note}." for note in e.notes]
    note = publication.baseline_note(e, _publication(tuned).baseline)
    lines.append(f"{note[:1].upper()}{note[1:]}.")
    return lines


def _count_lines(tuned: TuningResult) -> list[str]:
    counts = ", ".join(f"{n} {kind}" for kind, n in _kinds(tuned).most_common())
    published = _publication(tuned)
    failed = Counter(
        (t.outcome.kind, reason_of(t.outcome))
        for t in tuned.trials
        if t.outcome.kind != OutcomeKind.ESTIMATED
    )
    return [
        f"{_done(tuned)}: {counts}.",
        *(f"  {n} × {kind}: {reason}" for (kind, reason), n in failed.most_common(_TOP)),
        *(f"  wrong result: {t.config}: {v.said}" for t, v in published.wrong),
        *(f"  not verified: {t.config}: {verdict_reason(v)}" for t, v in published.unverified),
    ]


def _tried(result: SearchResult) -> str:
    candidates = {candidate.config for candidate in result.space.candidates}
    others = sum(trial.config not in candidates for trial in result.trials)
    text = f"{len(result.trials) - others} of {len(candidates)} candidates"
    if result.space.climbed:
        text += f" ({result.space.climbed} added with a higher VMEM limit)"
    return text + f" and {others} other config{'s' * (others > 1)}" * bool(others)


def measured_table(measurement: Measurement, trials: Sequence[Trial]) -> Table:
    """A row for each candidate: measurement, its ratio to the winner, and its estimate beside."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("measured", overflow="fold")
    for name in (measurement.method, "samples", "× winner", "interval", "estimated"):
        table.add_column(name, justify="right", no_wrap=True)
    estimated_us: dict[object, float | None] = {trial.config: trial.time_us for trial in trials}
    for timed in measurement.timed:
        name = "plain XLA" if timed.config is None else str(timed.config)
        table.add_row(
            f"{name}: {timed.refused}" if timed.refused else name,
            micros(timed.median_us),
            str(len(timed.samples_us)),
            "–" if timed.ratio is None else f"{timed.ratio:.3f}",
            ratio_interval(timed),
            micros(estimated_us.get(timed.config)),
        )
    return table
