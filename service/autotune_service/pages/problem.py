"""The page of a key: all that its search has found, as figures and words."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from operator import attrgetter
from shlex import quote
from typing import Any

from autotune.domain.browsing import SearchedKey
from autotune.domain.codec import to_data
from autotune.domain.comparison import NamedEstimate, compare, part_effects
from autotune.domain.outcome import Estimate, OutcomeKind
from autotune.domain.problem import limit_sizes
from autotune.domain.record import Record
from autotune.wording.facts import not_served, why
from autotune.wording.match import search_command
from autotune.wording.publication import in_words
from autotune.wording.units import micros
from autotune_service.pages import plots
from autotune_service.pages.call import PageCall
from autotune_service.pages.candidates import (
    DEFAULT,
    LEAST_US,
    WINNER,
    ShownTrial,
    candidates,
    fastest,
)
from autotune_service.pages.filters import PAGE_ROWS, Query, by_order, pages
from autotune_service.pages.jobs import MOST_JOBS, job_for
from autotune_service.pages.render import config_call
from autotune_service.pages.speed import Line, bars, facts, measured_rows, parts, speed, time_lines
from autotune_service.pages.states import states_of

FASTEST, OTHERS = 200, 100  # trials drawn; a search of a hundred trials is drawn whole
_VERSIONS = 10
_FIGURES = {"time": "time_us", "measured": "measured_us", "vmem": "used_bytes"}

Named = Sequence[tuple[str, Estimate]]
Value = str | int | bool


def show(call: PageCall) -> dict[str, Any]:
    """A problem on one chip with one toolchain: its search, and why its winner wins."""
    searched, browse = call.searched(), call.browse
    published = call.record(searched.key)
    record = published and in_words(published)
    if not searched.trials and record is None:
        return _never_searched(call, searched)
    drawn = drawn_trials(call, searched, record)
    listed = TrialTable(call, searched, record, drawn)
    shown = pages(call.query, listed.total)
    address = str(call.request.base_url).rstrip("/") + config_call(searched.key)
    status = call.store.searches.status(searched.id)
    return {
        "searched": searched,
        "record": record,
        "states": states_of(call, [searched], [published])[0],
        **view(call, searched, record, drawn),
        "table": listed,
        "pages": shown,
        "rows": listed.read(shown.offset, PAGE_ROWS),
        "newest": browse.newest(searched.id),
        "status": status,
        "is_running": bool(status and status.is_alive(datetime.now(UTC))),
        "others": len(browse.other_toolchains(searched.key)),
        "chips": browse.other_chips(searched.key),
        "served": browse.published(searched.id, _VERSIONS),
        "is_pinned": browse.is_pinned(searched.id),
        "take": taken(record, address) if record else (),
    }


def _never_searched(call: PageCall, searched: SearchedKey) -> dict[str, Any]:
    """A problem that was asked for, or has been checked, and has no trials."""
    return {
        "template": "unsearched.html",
        "searched": searched,
        "states": states_of(call, [searched], [None])[0],
        "body": json.dumps(to_data(searched.key)),
        "command": search_command(searched.key),
        "job": job_for(searched.key, call.browse.open_jobs(MOST_JOBS)),
    }


def drawn_trials(call: PageCall, searched: SearchedKey, record: Record | None) -> list[ShownTrial]:
    """The fastest trials and some others, the default and the winner among them, by number."""
    browse, key_id = call.browse, searched.id
    trials = [*browse.fastest_and_others(key_id, FASTEST, OTHERS), browse.by_number(key_id, 0)]
    if record is not None:
        trials.append(browse.with_config(key_id, record.config))
    by_id = {trial.id: trial for trial in trials if trial}
    in_order = sorted(by_id.values(), key=lambda numbered: numbered.trial.number)
    return candidates(in_order, record)


def view(
    call: PageCall, searched: SearchedKey, record: Record | None, shown: Sequence[ShownTrial]
) -> dict[str, Any]:
    """``why``: the winner against the default, in words. ``best``: why the fastest trial is not
    what is served; empty where it is. ``bars``: the parts of their times. ``hovers``: what the
    points of the plots say, by the page that a click on them opens."""
    beside = _beside(shown, record)
    named = [NamedEstimate(name=name, estimate=e) for name, e in beside]
    timed = fastest(shown)  # effects are around what is served, or else the fastest trial
    base = next((c for c in timed if c.role == WINNER), next(iter(timed), None))
    return {
        "shown": shown,
        "plots": _plots(call, searched, record, shown),
        "hovers": {c.link: c.hover for c in shown},
        "effects": part_effects(base.trial, [c.trial for c in shown]) if base else [],
        "facts": _facts(beside),
        "bars": list(zip([n for n, _ in beside], bars([e for _, e in beside]), strict=True)),
        "why": why(compare(*named)) if len(named) == 2 else "",
        "best": _best(shown, record),
        "speed": speed(record) if record else None,
        "ranges": time_lines(record) if record else (),
        "measured": measured_rows(record, shown),
    }


class Parts:
    """The parts of the config that differ among the trials that are drawn: each is a column of
    their table, sorts it and limits it. ``chosen``: the values that the address asks for."""

    def __init__(self, query: Query, shown: Sequence[ShownTrial]) -> None:
        self._sizes = limit_sizes(c.trial.config for c in shown)
        self.values = {
            name: sorted({c.values[name] for c in shown if name in c.values}, key=self.size)
            for name in plots.varying(shown)
        }
        self.chosen = {
            name: value
            for name, values in self.values.items()
            if (value := query.choice(f"is.{name}", list(map(str, values))))
        }

    def size(self, value: Value) -> tuple[bool, Any]:
        """Numbers and limits of VMEM by size, then words."""
        is_word = isinstance(value, str) and value not in self._sizes
        return is_word, self._sizes.get(str(value), value)

    def admits(self, c: ShownTrial) -> bool:
        return all(str(c.values.get(name)) == value for name, value in self.chosen.items())

    def value(self, name: str) -> Callable[[ShownTrial], Any]:
        """What a column has of a trial, to be put in order; None for nothing."""
        if name in _FIGURES:
            return attrgetter(_FIGURES[name])
        return lambda c: self.size(c.values[name]) if name in c.values else None


class TrialTable:
    """The trials that fit the filters: by number and by time all, else those that are drawn."""

    def __init__(
        self,
        call: PageCall,
        searched: SearchedKey,
        record: Record | None,
        drawn: Sequence[ShownTrial],
    ) -> None:
        self._call, self._searched, self._record = call, searched, record
        query, counts = call.query, dict(searched.outcomes)
        self.kind = kind = query.choice("kind", list(counts))
        self.parts = parts = Parts(query, drawn)
        self.order = query.order((*_FIGURES, *parts.values))
        is_whole = len(drawn) >= searched.trials
        is_timed = self.order == "time" and not is_whole
        self._fitting: list[ShownTrial] | None = None
        if parts.chosen or not (is_timed or not self.order):
            fitting = [c for c in drawn if kind in (None, c.kind) and parts.admits(c)]
            order = self.order.removeprefix("-")
            self._fitting = by_order(fitting, parts.value(order), self.order) if order else fitting
            self.total = len(fitting)
            if not is_whole and not query.strict:
                few = f"the {len(drawn):,} that are drawn of {searched.trials:,} trials"
                query.notes.append(f"Listed are {few}: the fastest, and some without a time.")
        else:
            counted = OutcomeKind.ESTIMATED if is_timed else kind
            self.total = counts.get(counted, 0) if counted else searched.trials

    def read(self, offset: int, limit: int) -> Sequence[ShownTrial]:
        if self._fitting is not None:
            return self._fitting[offset : offset + limit]
        trials = self._call.browse.trials(
            self._searched.id, self.kind, fastest=bool(self.order), offset=offset, limit=limit
        )
        return candidates(trials, self._record)


def _plots(
    call: PageCall, searched: SearchedKey, record: Record | None, shown: Sequence[ShownTrial]
) -> Mapping[str, plots.Figure | None]:
    if len(shown) < 2:  # a point makes no chart
        return {}
    baseline = record and record.baseline
    xla = [us or 0.0 for us in (baseline.time_us, baseline.expected_us)] if baseline else []
    steps = call.browse.best_so_far(searched.id)
    figures = {
        "trials": plots.over_trials(shown, steps, xla),
        "time": plots.over_time(shown, steps, xla),
        "vmem": plots.vmem(shown),
        "roofline": plots.roofline(shown),
    }
    return {name: figure and plots.described(figure) for name, figure in figures.items()}


def _beside(shown: Sequence[ShownTrial], record: Record | None) -> Named:
    """What is served, or else the fastest, and the default; one of them where they are the same."""
    timed = fastest(shown)
    winner = next((c for c in timed if c.role == WINNER), None)
    named: list[tuple[str, Estimate | None]] = []
    if record is not None and record.estimate.time_us >= LEAST_US:
        name = DEFAULT if record.is_default else WINNER
        name += f" (trial {winner.id})" if winner else ""
        named.append((name, served(record, winner.estimate if winner else None)))
    elif timed:
        winner = timed[0]
        named.append((f"fastest so far (trial {winner.id}, {winner.state})", winner.estimate))
    default = next((c for c in timed if c.trial.number == 0), None)
    if default is not None and default is not winner and not (record and record.is_default):
        named.append((f"default (trial {default.id})", default.estimate))
    return [(name, estimate) for name, estimate in named if estimate]


def served(record: Record, trial: Estimate | None) -> Estimate:
    """What is published, with the parts of its time that only ``trial`` knows: unless that was
    estimated again since, and says another time."""
    same = trial is not None and trial.time_us == record.estimate.time_us
    return trial if trial and same else record.estimate


def _best(shown: Sequence[ShownTrial], record: Record | None) -> str:
    timed = fastest(shown)
    best = timed[0].estimate if timed else None
    if record is None or best is None or timed[0].role == WINNER:
        return ""
    if best.time_us >= record.estimate.time_us:
        return ""
    winner = next((c.estimate for c in timed if c.role == WINNER), None)
    return not_served(
        compare(
            NamedEstimate(name=f"trial {timed[0].id} ({timed[0].state})", estimate=best),
            NamedEstimate(name="what is served", estimate=served(record, winner)),
        )
    )


def _facts(beside: Named) -> list[Line]:
    """A line of names, then the parts of the times, and what they come from."""
    known = [(name, e) for name, e in beside if e.explanation]
    estimates = [e for _, e in known]
    if not known:
        return []
    total = [micros(e.time_us) for e in estimates]
    names = [name for name, _ in known]
    return [("", names), *parts(estimates), ("total", total), *facts(estimates)]


def taken(record: Record, call: str) -> tuple[tuple[str, str], ...]:
    """A published config as somebody takes it along: what for, and the text. ``call``: the address
    that answers with it, without a query of its own."""
    problem, config = record.key.problem, record.config
    fields = {name: value for name, value in asdict(config).items() if value}
    python = f"autotune.Config({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    sizes = "".join(f", {name}={size!r}" for name, size in (*problem.dims, *problem.options))
    return (
        ("Python", python),
        ("JSON", json.dumps(to_data(config))),
        ("curl", f"curl {quote(call)}"),
        ("Tuned", f"TUNED.config(TUNED.problem(dtype={problem.dtype!r}{sizes}))"),
    )
