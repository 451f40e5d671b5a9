"""The tables of the pages as CSV and JSON, whole, with the filters of the page, sent while they are
read."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse, StreamingResponse

from autotune.domain.browsing import KeyMiss, NumberedCheck, NumberedTrial
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Key
from autotune.domain.record import Record, measured_config
from autotune.wording.match import action, finding
from autotune.wording.outcome import reason_of
from autotune_db.checks import CHECK_ORDER
from autotune_db.misses import MISS_ORDER
from autotune_db.query import batched
from autotune_service.dependencies import ask
from autotune_service.errors import HttpError
from autotune_service.pages import versions
from autotune_service.pages.call import PageCall
from autotune_service.pages.candidates import ShownTrial
from autotune_service.pages.filters import number_of
from autotune_service.pages.jobs import asked_for as jobs_asked_for
from autotune_service.pages.problem import TrialTable, drawn_trials
from autotune_service.pages.problems import Found, ProblemRow, asked_for
from autotune_service.pages.upgrades import check_filter

exports = APIRouter(include_in_schema=False)

T = TypeVar("T")
Line = Mapping[str, Any]

_MISSES = 10_000  # at most
_AT_ONCE = 500  # rows of a page
_LINES = 100  # in one piece: each is a turn of a thread
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def _pages_of(read: Callable[[int], Sequence[T]]) -> Iterator[T]:
    """Page after page of at most ``_AT_ONCE`` from a place on: no answer is held in memory."""
    offset = 0
    while page := read(offset):
        yield from page
        if len(page) < _AT_ONCE:
            return
        offset += len(page)


def coverage(call: PageCall) -> Iterable[Line]:
    """Where something was searched, and how much of it is published."""
    published, targets = call.snapshot.places, call.browse.targets()
    only = call.query.toolchain({target.toolchain for target in targets})
    return (
        {
            "kernel": p.kernel,
            "chip": p.chip.value,
            **asdict(p.toolchain),
            "searched": p.searched,
            "published": published[p.kernel, p.chip, p.toolchain],
        }
        for p in targets
        if only in (None, p.toolchain)
    )


def upgrades(call: PageCall) -> Iterable[Line]:
    """All checks that fit the filters, the worst first."""
    browse, only = call.browse, check_filter(call.query, call.browse.check_counts())
    order = call.query.order(CHECK_ORDER)
    read = _pages_of(lambda offset: browse.worst_checks(only, offset, _AT_ONCE, order))
    return map(_check, read)


def misses(call: PageCall) -> Iterable[Line]:
    return map(_miss, call.browse.missed_keys(0, _MISSES, call.query.order(MISS_ORDER)))


def jobs(call: PageCall) -> Iterable[Line]:
    """All, or those in one state."""
    states, order = jobs_asked_for(call.query)
    return map(_job, _pages_of(lambda at: call.browse.jobs(states, at, _AT_ONCE, order)))


def toolchains(call: PageCall) -> Iterable[Line]:
    """The same configs under each toolchain, a line for each trial."""
    shown, same = versions.columns(call, call.searched())
    return (
        {"key": searched.id, **_key(searched.key), **_trial(trial, column.record)}
        for config in same
        for column in shown
        if (searched := column.searched) and (trial := config.trials.get(searched.id))
    )


def problems(call: PageCall) -> Iterable[Line]:
    """The problems of a kernel, or of all, with what is published."""
    asked, _ = asked_for(call, call.query.given.pop("name", None) or None)
    call.query.hidden((), ())
    problems = Found(call, asked)
    return map(_problem, _pages_of(lambda offset: problems.page(offset, _AT_ONCE)))


def trials(call: PageCall) -> Iterable[Line]:
    """The trials of a key as its page lists them; as JSON with all that is known of each."""
    searched = call.searched()
    record = call.record(searched.key)
    read = TrialTable(call, searched, record, drawn_trials(call, searched, record)).read
    line = _whole if call.path["form"] == "json" else _trial
    return map(partial(line, record=record), _pages_of(lambda offset: read(offset, _AT_ONCE)))


_TABLES: tuple[tuple[str, Callable[[PageCall], Iterable[Line]]], ...] = (
    ("coverage", coverage),
    ("upgrades", upgrades),
    ("misses", misses),
    ("jobs", jobs),
    ("toolchains/{key_id}", toolchains),
    ("kernel", problems),
    ("keys/{key_id}/trials", trials),
)


def _add(path: str, table: Callable[[PageCall], Iterable[Line]]) -> None:
    def begun(call: PageCall) -> Iterator[str]:
        """With its first line: what is wrong shows before the answer begins."""
        lines = iter(table(call))
        call.query.done()
        form, first = call.path["form"], list(islice(lines, 1))
        text = _json if form == "json" else _csv
        return text(chain(first, lines))

    async def answer(request: Request, form: str) -> Response:
        if form not in _KINDS:
            raise HttpError(404, "not_found", f"There is no export as {form[:20]}: csv and json.")
        text = await ask(request, begun, PageCall(request, strict=True))
        return StreamingResponse(
            map("".join, batched(text, _LINES)),
            media_type=_KINDS[form],
            headers={"Content-Disposition": f'attachment; filename="{table.__name__}.{form}"'},
        )

    exports.add_api_route(f"/export/{path}.{{form}}", answer, name=path)


for _table in _TABLES:
    _add(*_table)


@exports.get("/export/trials/{trial_id}.json")
async def trial(request: Request) -> Response:
    """One, with its key and all that is known of it."""
    return JSONResponse(await ask(request, _one_trial, PageCall(request, strict=True)))


def _one_trial(call: PageCall) -> Line:
    call.query.done()
    number = number_of(call.path["trial_id"], "trial")
    stored = call.store.trial(number)
    if stored is None:
        raise HttpError(404, "unknown_trial", f"There is no trial {number}.")
    key, trial = stored
    return {"key": to_data(key), **_whole(NumberedTrial(id=number, trial=trial), call.record(key))}


def _json(lines: Iterable[Line]) -> Iterator[str]:
    before = "["
    for line in lines:
        yield before + json.dumps(line)
        before = ",\n"
    yield "]\n" if before != "[" else "[]\n"


def _csv(lines: Iterable[Line]) -> Iterator[str]:
    """The columns are those of the first line."""
    text = io.StringIO()
    writer = None
    for line in lines:
        if writer is None:
            writer = csv.DictWriter(text, list(line), extrasaction="ignore", restval="")
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in line.items()})
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is made one that it shows."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _key(key: Key) -> dict[str, Any]:
    return {
        "kernel": key.kernel,
        "fingerprint": key.fingerprint,
        "problem": str(key.problem),
        "chip": key.chip.value,
        **asdict(key.toolchain),
    }


def _miss(missed: KeyMiss) -> Line:
    miss = missed.miss
    return {
        "miss": miss.number,
        **_key(miss.key),
        "answer": miss.answer,
        "count": miss.count,
        "first_at": miss.first_at.isoformat(),
        "last_at": miss.last_at.isoformat(),
    }


def _problem(row: ProblemRow) -> Line:
    searched, record, speed, states = row
    run = record and record.measurement
    predicted = record and record.default.is_predicted and record.default.expected_error
    return {
        "key": searched.id,
        **_key(searched.key),
        "trials": searched.trials,
        "last_at": searched.last_at and searched.last_at.isoformat(),
        "best_estimated_us": searched.best_us,
        "best_verified": searched.best_verified,
        "default_estimated_us": searched.default_us,
        "states": ", ".join(states),
        "published": record is not None,
        "published_estimated_us": record and record.estimate.time_us,
        "error": record and record.estimate.error,
        "method": record and record.method,
        "published_measured_us": speed and speed.measured_us,
        "measured_by": run and run.method,
        "device": run and run.device,
        "config": record and str(record.config),
        "times_default": speed and speed.over_default,
        "times_default_predicted": speed and speed.predicted_over_default,
        "default_predicted_error": predicted or None,
        "times_xla_at_least": speed and speed.over_xla_least,
        "times_xla_own_estimate": speed and speed.over_xla_own,
        "times_default_measured": speed and speed.measured_over_default,
        "times_xla_measured": speed and speed.measured_over_xla,
        "xla": speed and speed.xla,
    }


def _check(numbered: NumberedCheck) -> Line:
    check = numbered.check
    return {
        "check": numbered.number,
        **_key(check.key),
        **{f"checked_{name}": value for name, value in asdict(check.toolchain).items()},
        "checked_chip": check.chip.value,
        "verdict": check.verdict.value,
        "before_us": check.before_us,
        "after_us": check.after_us,
        "least_limit_bytes": check.least_limit_bytes,
        "finding": finding(check),
        "action": action(check),
        "checked_at": check.checked_at.isoformat(),
        "pushed_by": check.pushed_by,
    }


def _job(job: Job) -> Line:
    asked, p = job.request, job.progress
    return {
        "job": job.number,
        "state": job.state.value,
        "kernel": asked.kernel,
        "problem": str(asked.problem),
        "chip": asked.chip.value,
        "done": p.done,
        "goal": job.goal,
        "note": p.note,
        "created_by": job.created_by,
        "created_at": job.created_at.isoformat(),
    }


def _trial(numbered: NumberedTrial | ShownTrial, record: Record | None) -> Line:
    trial, e = numbered.trial, numbered.trial.estimate
    run, timed = measured_config(record, trial.config) or (None, None)
    return {
        "trial": numbered.id,
        "number": trial.number,
        "config": str(trial.config),
        "outcome": trial.outcome.kind,
        "reason": reason_of(trial.outcome),
        "estimated_us": e and e.time_us,
        "error": e and e.error,
        "limited_by": e and e.limiting_part,
        "vmem_used_bytes": e and e.vmem_used_bytes,
        "vmem_allowed_bytes": e and e.vmem_allowed_bytes,
        "hbm_bytes": e and e.hbm_bytes,
        "flops": e and e.flops,
        "compiled_in_s": trial.seconds,
        "finished_at": trial.created_at.isoformat(),
        "pushed_by": trial.pushed_by,
        "measured_us": timed and timed.median_us,
        "measured_by": run and run.method,
        "device": run and run.device,
        "samples": timed and len(timed.samples_us),
        "times_fastest": timed and timed.ratio,
        "times_fastest_low": timed and timed.low,
        "times_fastest_high": timed and timed.high,
        "slower": timed and timed.slower,
        "void": run and run.void,
    }


def _whole(numbered: NumberedTrial | ShownTrial, record: Record | None) -> Line:
    trial = numbered.trial
    measured = measured_config(record, trial.config)
    return {
        "trial": numbered.id,
        "number": trial.number,
        "config": to_data(trial.config),
        "outcome": to_data(trial.outcome),
        "seconds": trial.seconds,
        "finished_at": trial.created_at.isoformat(),
        "pushed_by": trial.pushed_by,
        "measurement": measured and measured.to_data(),
    }
