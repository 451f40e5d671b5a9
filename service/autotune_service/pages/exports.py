"""The tables of the pages as CSV and JSON, whole, with the filters of the page."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from autotune.domain.browsing import (
    NumberedCheck,
    NumberedTrial,
    SameConfig,
    SearchedKey,
)
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Key
from autotune.domain.record import Record, measured_config
from autotune.wording.checks import action, finding
from autotune_service.dependencies import KNOWN_PARAMETERS, ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.pages import versions
from autotune_service.pages.filters import number_of, query_of
from autotune_service.pages.problems import ProblemRow, key_filter, order_of, rows
from autotune_service.pages.tables import AT_ONCE, Line, pages_of, table
from autotune_service.pages.upgrades import check_filter
from autotune_service.pages.versions import ToolchainColumn

exports = APIRouter(include_in_schema=False)

_LATEST, _JOBS, _MISSES = 500, 1_000, 10_000  # at most


@exports.get("/export/coverage.{form}", dependencies=[KNOWN_PARAMETERS])
async def coverage(request: Request, form: str) -> Response:
    """Where something was searched, and how much of it is published."""
    places = await ask(request, store(request).browse.targets)
    published = snapshots_of(request).current.places()
    lines = (
        {
            "kernel": p.kernel,
            "chip": p.chip.value,
            **asdict(p.toolchain),
            "searched": p.searched,
            "published": published[p.kernel, p.chip, p.toolchain],
        }
        for p in places
    )
    return await table(request, "coverage", form, lines)


@exports.get("/export/upgrades.{form}")
async def upgrades(request: Request, form: str) -> Response:
    """All checks that fit the filters, the worst first."""
    browse, query = store(request).browse, query_of(request, strict=True)
    only = check_filter(query, await ask(request, browse.check_counts))
    query.done()
    found = pages_of(lambda offset: browse.worst_checks(only, offset, AT_ONCE))
    return await table(request, "upgrades", form, map(_check, found))


@exports.get("/export/misses.{form}", dependencies=[KNOWN_PARAMETERS])
async def misses(request: Request, form: str) -> Response:
    found = await ask(request, store(request).browse.missed_keys, 0, _MISSES)
    lines = (
        {
            "miss": one.miss.number,
            **_key(one.miss.key),
            "answer": one.miss.answer,
            "count": one.miss.count,
            "first_at": one.miss.first_at.isoformat(),
            "last_at": one.miss.last_at.isoformat(),
        }
        for one in found
    )
    return await table(request, "misses", form, lines)


@exports.get("/export/searches.{form}", dependencies=[KNOWN_PARAMETERS])
async def searches(request: Request, form: str) -> Response:
    """The latest ones."""
    found = await ask(request, store(request).browse.latest, _LATEST)
    lines = (
        {**_problem(row), "last_at": row.searched.last_at and row.searched.last_at.isoformat()}
        for row in rows(found, snapshots_of(request).current)
    )
    return await table(request, "searches", form, lines)


@exports.get("/export/jobs.{form}", dependencies=[KNOWN_PARAMETERS])
async def jobs(request: Request, form: str) -> Response:
    """Those that wait or run, the newest first."""
    found = await ask(request, store(request).browse.open_jobs, _JOBS)
    return await table(request, "jobs", form, map(_job, found))


@exports.get("/export/toolchains/{key_id}.{form}", dependencies=[KNOWN_PARAMETERS])
async def toolchains(request: Request, key_id: str, form: str) -> Response:
    """The same configs under each toolchain, a line for each trial."""
    number, browse = number_of(key_id, "problem"), store(request).browse
    searched = await ask(request, browse.searched, number)
    if searched is None:
        raise HttpError(404, "unknown_key", f"There is no problem {key_id}.")
    shown = await ask(request, versions.columns, browse, searched, snapshots_of(request).current)
    ids = [column.searched.id for column in shown]
    same = await ask(request, browse.same_configs, ids, versions.FASTEST)
    return await table(request, "toolchains", form, _versions(shown, same))


@exports.get("/export/kernel.{form}")
async def kernel(request: Request, form: str) -> Response:
    """The problems of a kernel, or of all, with what is published."""
    browse, snapshot = store(request).browse, snapshots_of(request).current
    query = query_of(request, strict=True)
    only, _ = await key_filter(request, query, query.given.pop("name", None) or None)
    order = order_of(query)
    query.done()

    def read(offset: int) -> list[ProblemRow]:
        return rows(browse.problems(only, offset, AT_ONCE, order), snapshot)

    return await table(request, "problems", form, map(_problem, pages_of(read)))


@exports.get("/export/keys/{key_id}/trials.{form}")
async def trials(request: Request, key_id: str, form: str) -> Response:
    """All trials of a key, or those of one kind; as JSON with all that is known of each."""
    query, browse = query_of(request, strict=True), store(request).browse
    number = number_of(key_id, "problem")
    searched = await ask(request, browse.searched, number)
    if searched is None:
        raise HttpError(404, "unknown_key", f"There is no problem {key_id}.")
    kind = query.choice("kind", [kind for kind, _ in searched.outcomes])
    query.done()

    def read(offset: int) -> list[NumberedTrial]:
        return list(browse.trials(number, kind, fastest=False, offset=offset, limit=AT_ONCE))

    record = snapshots_of(request).current.index.exact(searched.key)
    line = partial(_whole if form == "json" else _trial, record=record)
    return await table(request, "trials", form, map(line, pages_of(read)))


@exports.get("/export/trials/{trial_id}.json", dependencies=[KNOWN_PARAMETERS])
async def trial(request: Request, trial_id: str) -> dict[str, Any]:
    """One, with its key and all that is known of it."""
    number = number_of(trial_id, "trial")
    found = await ask(request, store(request).trial, number)
    if found is None:
        raise HttpError(404, "unknown_trial", f"There is no trial {trial_id}.")
    key, one = found[0], NumberedTrial(id=number, trial=found[1])
    return {"key": to_data(key), **_whole(one, snapshots_of(request).current.index.exact(key))}


def _key(key: Key) -> dict[str, Any]:
    return {
        "kernel": key.kernel,
        "fingerprint": key.fingerprint,
        "problem": str(key.problem),
        "chip": key.chip.value,
        **asdict(key.toolchain),
    }


def _problem(row: ProblemRow) -> Line:
    searched: SearchedKey = row.searched
    record, speed = row.record, row.speed
    return {
        "key": searched.id,
        **_key(searched.key),
        "trials": searched.trials,
        "best_estimated_us": searched.best_us,
        "default_estimated_us": searched.default_us,
        "published": record is not None,
        "published_estimated_us": record and record.estimate.time_us,
        "error": record and record.estimate.error,
        "method": record and record.method,
        "published_measured_us": speed and speed.measured_us,
        "measured_by": record and record.measurement and record.measurement.method,
        "device": record and record.measurement and record.measurement.device,
        "config": record and str(record.config),
        "times_default": speed and speed.over_default,
        "times_default_predicted": speed and speed.predicted_over_default,
        "default_predicted_error": (
            record and record.default.is_predicted and record.default.expected_error
        )
        or None,
        "times_xla_at_least": speed and speed.over_xla_least,
        "times_xla_own_estimate": speed and speed.over_xla_own,
        "times_default_measured": speed and speed.measured_over_default,
        "times_xla_measured": speed and speed.measured_over_xla,
        "xla": speed and speed.xla,
    }


def _check(one: NumberedCheck) -> Line:
    check = one.check
    return {
        "check": one.number,
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


def _versions(shown: Sequence[ToolchainColumn], same: Sequence[SameConfig]) -> Iterator[Line]:
    for one in same:
        for column in shown:
            found, key = one.trials.get(column.searched.id), column.searched.key
            if found is not None:
                line = _trial(found, column.record)
                yield {"key": column.searched.id, **_key(key), **line}


def _trial(one: NumberedTrial, record: Record | None) -> Line:
    trial, e = one.trial, one.trial.estimate
    run, timed = measured_config(record, trial.config) or (None, None)
    return {
        "trial": one.id,
        "number": trial.number,
        "config": str(trial.config),
        "outcome": trial.outcome.kind,
        "reason": trial.outcome.reason,
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


def _whole(one: NumberedTrial, record: Record | None) -> Line:
    trial = one.trial
    measured = measured_config(record, trial.config)
    return {
        "trial": one.id,
        "number": trial.number,
        "config": to_data(trial.config),
        "outcome": to_data(trial.outcome),
        "seconds": trial.seconds,
        "finished_at": trial.created_at.isoformat(),
        "pushed_by": trial.pushed_by,
        "measurement": measured and measured.to_data(),
    }
