"""Trials and problems beside each other: what differs in their configs, and in their times."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain.browsing import NumberedTrial, SearchedKey
from autotune.domain.comparison import NamedEstimate, compare
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config
from autotune.domain.record import GateState, Record, gate_state
from autotune.wording.config import spelled_parts
from autotune.wording.facts import why
from autotune.wording.outcome import kind_and_reason
from autotune.wording.units import error_bar, micros
from autotune_service.pages.call import PageCall
from autotune_service.pages.problem import served
from autotune_service.pages.speed import Line, bars, facts, parts
from autotune_service.pages.states import states_of
from autotune_service.pages.trial import by_line, find

MOST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One column. ``outcome``: what became of it, where it has no time; ``kind`` in one word.
    ``states``: those of a problem; ``trial``: that has the config, if one has."""

    name: str
    link: str
    searched: SearchedKey
    config: Config
    estimate: Estimate | None
    outcome: str = ""
    kind: str = ""
    states: Sequence[str] = ()
    trial: NumberedTrial | None = None


def show(call: PageCall) -> dict[str, Any]:
    """``key`` and ``trial``, each as often as wanted."""
    query, given = call.query, call.request.query_params
    kinds = {"key": _key, "trial": _trial}
    asked = [(name, text) for name in kinds for text in dict.fromkeys(given.getlist(name))]
    if len(asked) > MOST:
        query.notes.append(f"Only the first {MOST} are compared.")
    columns: list[Compared] = []
    for name, text in asked[:MOST]:
        is_number = text.isascii() and text.isdigit() and len(text) < 19
        column = kinds[name](call, int(text)) if is_number else None
        if column is None:
            query.notes.append(f"{name}={text[:40]} was ignored: there is nothing to compare.")
        else:
            columns.append(column)
    for name in kinds:
        query.given.pop(name, None)
    asked_for = {(c.searched.key.kernel, c.searched.key.problem) for c in columns}
    are_alike = len(asked_for) <= 1
    return {
        "columns": columns,
        "lines": [
            (name, cells, are_alike and len(set(cells)) > 1) for name, cells in _lines(columns)
        ],
        "are_alike": are_alike,
        "bars": bars([column.estimate for column in columns]),
        "sentences": _first_against_others(columns),
        **_by_line(call, columns if are_alike else ()),
    }


def _by_line(call: PageCall, columns: Sequence[Compared]) -> dict[str, Any]:
    """Of ``two`` trials: the lines of their source that differ the most come first."""
    trials = [column.trial for column in columns if column.trial and column.estimate]
    if len({trial.id for trial in trials}) != 2 or len(columns) != 2:
        return {"profile": None, "two": ()}
    return {"profile": by_line(call, trials), "two": trials}


def _key(call: PageCall, number: int) -> Compared | None:
    """What is served for a problem, or else the best trial of it."""
    searched = call.browse.searched(number)
    if searched is None:
        return None
    record = call.record(searched.key)
    place = _place(searched.key)
    if record is not None:
        trial = call.browse.with_config(number, record.config)
        state = record.standing if record.verified else GateState.NOT_VERIFIED
        return Compared(
            name=place if record.proves(record.config) else f"{place} ({state})",
            link=f"/keys/{number}",
            searched=searched,
            states=states_of(call, [searched], [record])[0],
            config=record.config,
            estimate=served(record, trial.trial.estimate if trial else None),
            trial=trial,
        )
    best = call.browse.trials(number, None, fastest=True, offset=0, limit=1)
    name = f"the best trial of {place}"
    return _compared(name, searched, best[0], record) if best else None


def _place(key: Key) -> str:
    shape = "x".join(str(size) for _, size in key.problem.dims)
    return f"{key.kernel} {shape} on {key.chip.value}, {key.toolchain.label}"


def _trial(call: PageCall, number: int) -> Compared | None:
    pair = find(call, number)
    return _compared(f"trial {number}", *pair, call.record(pair[0].key)) if pair else None


def _compared(
    name: str, searched: SearchedKey, numbered: NumberedTrial, record: Record | None
) -> Compared:
    trial = numbered.trial
    return Compared(
        name=f"{name} ({gate_state(trial, record)})" if trial.estimate else name,
        link=f"/trials/{numbered.id}",
        searched=searched,
        config=trial.config,
        estimate=trial.estimate,
        outcome=kind_and_reason(trial.outcome),
        kind=trial.outcome.kind,
        trial=numbered,
    )


def _lines(columns: Sequence[Compared]) -> Iterator[Line]:
    """What they are, then what is known of their times."""
    yield from _described(columns)
    estimates = [column.estimate for column in columns]
    known = dict(facts(estimates))
    times = known.pop("time", [""] * len(columns))
    yield from _with_dashes(parts(estimates))
    yield "time", [time or _time(column) for time, column in zip(times, columns, strict=True)]
    yield from _with_dashes(known.items())


def _with_dashes(lines: Iterable[Line]) -> Iterator[Line]:
    for name, cells in lines:
        yield name, [cell or "–" for cell in cells]


def _described(columns: Sequence[Compared]) -> Iterator[Line]:
    keys = [column.searched.key for column in columns]
    yield "kernel", [key.kernel for key in keys]
    yield "source", [key.fingerprint for key in keys]
    yield "problem", [str(key.problem) for key in keys]
    yield "chip", [key.chip.value for key in keys]
    yield "toolchain", [str(key.toolchain) for key in keys]
    configs = [spelled_parts(column.config) for column in columns]
    for name in dict.fromkeys(name for config in configs for name in config):
        yield name, [str(config.get(name, "–")) for config in configs]


def _time(column: Compared) -> str:
    """Where no parts of it are known."""
    e = column.estimate
    return f"{micros(e.time_us)} {error_bar(e.error)}" if e else column.outcome


def _first_against_others(columns: Sequence[Compared]) -> list[str]:
    timed = [
        (column.searched, NamedEstimate(name=column.name, estimate=column.estimate))
        for column in columns
        if column.estimate
    ]
    return [
        why(compare(timed[0][1], named, alike=timed[0][0].id == searched.id))
        for searched, named in timed[1:]
        if (timed[0][0].key.kernel, timed[0][0].key.problem)
        == (searched.key.kernel, searched.key.problem)
    ]
