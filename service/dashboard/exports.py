"""The tables of the pages as CSV and JSON, whole, with the filters of the page."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from autotune.browsing import Numbered, Only, Searched
from autotune.config import config_to_data
from autotune.key import Key, key_to_data
from autotune.outcome import outcome_to_data
from autotune.standing import measured, measured_data
from autotune.trial import Record
from service.dashboard.filters import query_of
from service.dashboard.kernel import Row, rows
from service.dashboard.overview import newest_first
from service.dashboard.pages import number_of
from service.parts import ask, held, store
from service.refusal import Refusal

exports = APIRouter(include_in_schema=False)

_AT_ONCE = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}

Line = Mapping[str, Any]


@exports.get("/export/coverage.{form}")
async def coverage(request: Request, form: str) -> Response:
    """Where something was searched, and how much of it is published."""
    places = await ask(request, store(request).browse.places)
    published = held(request).current.places()
    lines = (
        {
            "kernel": p.kernel, "chip": p.chip.value, **asdict(p.toolchain), "searched": p.searched,
            "published": published[p.kernel, p.chip, p.toolchain],
        }
        for p in places
    )  # fmt: skip
    return await _table(request, "coverage", form, lines)


@exports.get("/export/misses.{form}")
async def misses(request: Request, form: str) -> Response:
    found = await ask(request, store(request).browse.wanted, 0, 10_000)
    lines = (
        {
            "miss": one.miss.number, **_key(one.miss.key), "answer": one.miss.answer,
            "count": one.miss.count, "first_at": one.miss.first_at.isoformat(),
            "last_at": one.miss.last_at.isoformat(),
        }
        for one in found
    )  # fmt: skip
    return await _table(request, "misses", form, lines)


@exports.get("/export/kernel.{form}")
async def kernel(request: Request, form: str, name: str) -> Response:
    """The problems of a kernel with what is published."""
    query, browse, snapshot = query_of(request), store(request).browse, held(request).current
    places = await ask(request, browse.places, name)
    only = Only(
        chip=query.chip({p.chip for p in places}),
        toolchain=query.toolchain(newest_first({p.toolchain for p in places})),
    )

    def read(offset: int) -> list[Row]:
        return rows(browse.problems(name, only, offset, _AT_ONCE), snapshot)

    return await _table(request, "problems", form, map(_problem, _all(read)))


@exports.get("/export/keys/{key_id}/trials.{form}")
async def trials(request: Request, key_id: str, form: str) -> Response:
    """All trials of a key, or those of one kind; as JSON with all that is known of each."""
    query, browse = query_of(request), store(request).browse
    number = number_of(key_id, "problem")
    searched = await ask(request, browse.searched, number)
    if searched is None:
        raise Refusal(404, "unknown_key", f"There is no problem {key_id}.")
    kind = query.choice("kind", [kind for kind, _ in searched.outcomes])

    def read(offset: int) -> list[Numbered]:
        return list(browse.trials(number, kind, fastest=False, offset=offset, limit=_AT_ONCE))

    record = held(request).current.index.exact(searched.key)
    line = partial(_whole if form == "json" else _trial, record=record)
    return await _table(request, "trials", form, map(line, _all(read)))


@exports.get("/export/trials/{trial_id}.json")
async def trial(request: Request, trial_id: str) -> dict[str, Any]:
    """One, with its key and all that is known of it."""
    number = number_of(trial_id, "trial")
    found = await ask(request, store(request).trial, number)
    if found is None:
        raise Refusal(404, "unknown_trial", f"There is no trial {trial_id}.")
    key, one = found[0], Numbered(id=number, trial=found[1])
    return {"key": key_to_data(key), **_whole(one, held(request).current.index.exact(key))}


def _all(read: Any) -> Iterator[Any]:
    """Page after page, so that no answer is held in memory."""
    offset = 0
    while found := read(offset):
        yield from found
        if len(found) < _AT_ONCE:
            return
        offset += len(found)


async def _table(request: Request, name: str, form: str, lines: Iterable[Line]) -> Response:
    if form not in _KINDS:
        raise Refusal(404, "not_found", f"There is no export as {form[:20]}: csv and json.")
    kept = iter(lines)
    first = await ask(request, next, kept, None)  # what is wrong shows before the answer begins
    found = iter(()) if first is None else _from(first, kept)
    text = _json(found) if form == "json" else _csv(first, found)
    return StreamingResponse(
        text, media_type=_KINDS[form],
        headers={"Content-Disposition": f'attachment; filename="{name}.{form}"'},
    )  # fmt: skip


def _from(first: Line, rest: Iterator[Line]) -> Iterator[Line]:
    yield first
    yield from rest


def _json(lines: Iterator[Line]) -> Iterator[str]:
    before = "["
    for line in lines:
        yield before + json.dumps(line)
        before = ",\n"
    yield "]\n" if before != "[" else "[]\n"


def _csv(first: Line | None, lines: Iterator[Line]) -> Iterator[str]:
    if first is None:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(first), extrasaction="ignore", restval="")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in line.items()})
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is made one that it shows."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _key(key: Key) -> dict[str, Any]:
    return {
        "kernel": key.kernel, "fingerprint": key.fingerprint, "problem": str(key.problem),
        "chip": key.chip.value, **asdict(key.toolchain),
    }  # fmt: skip


def _problem(row: Row) -> Line:
    searched: Searched = row.searched
    record, speed = row.record, row.speed
    return {
        "key": searched.id, **_key(searched.key), "trials": searched.trials,
        "best_estimated_us": searched.best_us, "default_estimated_us": searched.default_us,
        "published": record is not None,
        "published_estimated_us": record and record.estimate.time_us,
        "error": record and record.estimate.error,
        "method": record and record.method,
        "published_measured_us": speed and speed.measured_us,
        "measured_by": record and record.measurement and record.measurement.method,
        "device": record and record.measurement and record.measurement.device,
        "config": record and str(record.config),
        "times_default": speed and speed.over_default,
        "times_xla_at_least": speed and speed.over_xla_least,
        "times_xla_own_estimate": speed and speed.over_xla_own,
        "times_default_measured": speed and speed.measured_over_default,
        "times_xla_measured": speed and speed.measured_over_xla,
        "xla": speed and speed.xla,
    }  # fmt: skip


def _trial(one: Numbered, record: Record | None) -> Line:
    trial, e = one.trial, one.trial.estimate
    run, timed = measured(record, trial.config) or (None, None)
    return {
        "trial": one.id, "number": trial.number, "config": str(trial.config),
        "outcome": trial.outcome.kind, "reason": trial.outcome.reason,
        "estimated_us": e and e.time_us, "error": e and e.error,
        "limited_by": e and e.limited_by, "vmem_used_bytes": e and e.vmem_used_bytes,
        "vmem_allowed_bytes": e and e.vmem_allowed_bytes, "hbm_bytes": e and e.hbm_bytes,
        "flops": e and e.flops, "compiled_in_s": trial.seconds,
        "finished_at": trial.created_at.isoformat(), "pushed_by": trial.pushed_by,
        "measured_us": timed and timed.median_us, "measured_by": run and run.method,
        "device": run and run.device, "samples": timed and len(timed.samples_us),
        "times_fastest": timed and timed.ratio, "times_fastest_low": timed and timed.low,
        "times_fastest_high": timed and timed.high, "slower": timed and timed.slower,
        "void": run and run.void,
    }  # fmt: skip


def _whole(one: Numbered, record: Record | None) -> Line:
    trial = one.trial
    return {
        "trial": one.id, "number": trial.number, "config": config_to_data(trial.config),
        "outcome": outcome_to_data(trial.outcome), "seconds": trial.seconds,
        "finished_at": trial.created_at.isoformat(), "pushed_by": trial.pushed_by,
        "measurement": measured_data(measured(record, trial.config)),
    }  # fmt: skip
