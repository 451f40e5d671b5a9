"""The queue, with all states: what was asked for, who has it, and why nobody takes it. And
what to do next: what is broken, missing, slower, stale or can gain, by what it saves."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from autotune.domain.browsing import SILENT, CheckFilter, KeyMiss, NumberedCheck
from autotune.domain.codec import to_data
from autotune.domain.job import LEASE_S, MOST_LOG, Job, State
from autotune.domain.key import Chip, Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.wording.match import finding, retune, search_command
from autotune.wording.terms import ENDINGS, why_waiting
from autotune.wording.units import ratio, seconds
from autotune_db import SqlStore
from autotune_db.browse import JOB_ORDER, SqlBrowse
from autotune_service.errors import HttpError
from autotune_service.pages.filters import (
    PAGE_ROWS,
    PageCall,
    Query,
    number_of,
    once_for_each_snapshot,
    pages,
)
from autotune_service.pages.render import kernel_path, link
from autotune_service.pages.upgrades import fate
from autotune_service.snapshot_cache import IndexedSnapshot

MOST_JOBS = 100  # that are looked at for one of a problem
_OPEN = (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """``link``: to the problem as far as the request says which. ``again``: the body of the same
    request, empty while it is open. ``why``: what it waits for."""

    job: Job
    link: str
    again: str
    why: str

    @property
    def is_open(self) -> bool:
        return self.job.state in _OPEN


def show(call: PageCall) -> dict[str, Any]:
    """All jobs, or those in one state."""
    counts = call.store.jobs.counts()
    states, order = asked_for(call.query)
    shown = pages(call.query, sum(counts.get(state, 0) for state in states))
    jobs = call.browse.jobs(states, shown.offset, PAGE_ROWS, order)
    return {
        "state": states[0] if len(states) == 1 else None,
        "order": order,
        "counts": counts,
        "states": list(State),
        "lines": lines(call, jobs),
        "timeline": _timeline(jobs),
        "pages": shown,
    }


def asked_for(query: Query) -> tuple[list[str], str]:
    """The states that jobs may be in, and the order."""
    states = [state.value for state in State]
    state = query.choice("state", states)
    return [state] if state else states, query.order(JOB_ORDER)


def show_one(call: PageCall) -> dict[str, Any]:
    """One, with what its workers have said, and say."""
    number = number_of(call.path["number"], "job")
    job = call.store.jobs.get(number)
    if job is None:
        raise HttpError(404, "unknown_job", f"there is no job {number}", "number")
    (line,) = lines(call, [job])
    logs = call.store.jobs.logs(number)
    return {"line": line, "logs": logs, "most_log": MOST_LOG, "endings": ENDINGS}


def lines(call: PageCall, jobs: Sequence[Job]) -> list[JobLine]:
    heard_from = datetime.now(UTC) - timedelta(seconds=LEASE_S)
    running = call.store.jobs.list(State.RUNNING, PAGE_ROWS)
    alive = {job.worker for job in running if job.heard_at and job.heard_at > heard_from}
    return [_line(job, len(alive)) for job in jobs]


def _line(job: Job, workers: int) -> JobLine:
    """``workers``: how many have a job now."""
    asked = job.request
    words = " ".join(f"{name}={size}" for name, size in asked.problem.dims)
    is_repeatable = job.state not in _OPEN and asked.candidate is None
    # As ``POST /v1/jobs`` takes it.
    request = {name: value for name, value in to_data(asked).items() if value is not None}
    return JobLine(
        job=job,
        link=link(kernel_path(asked.kernel), chip=asked.chip.value, q=words),
        again=json.dumps(request) if is_repeatable else "",
        why=why_waiting(asked, workers) if job.state is State.QUEUED else "",
    )


def _timeline(jobs: Sequence[Job]) -> dict[str, Any] | None:
    """What each worker had when: (job, its start and its share in percent of the time that is
    drawn, what it was). None where no worker has or had one; one that was given back to the queue
    has no worker any more."""
    now = datetime.now(UTC)
    worked = [
        (job, job.started_at, job.finished_at or now)
        for job in sorted(jobs, key=lambda job: (job.worker, job.number))
        if job.worker and job.started_at
    ]
    if not worked:
        return None
    start, end = min(began for _, began, _ in worked), max(ended for *_, ended in worked)
    span_s = (end - start).total_seconds() or 1.0
    workers: dict[str, list[tuple[Job, float, float, str]]] = {}
    for job, began, ended in worked:
        took_s = (ended - began).total_seconds()
        at, share = (100 * s / span_s for s in ((began - start).total_seconds(), took_s))
        did = f"{job.request.kernel} {job.request.problem}: {job.state} after {seconds(took_s)}"
        workers.setdefault(job.worker, []).append((job, round(at, 2), round(share, 2), did))
    return {"start": start, "end": end, "workers": workers}


def job_for(key: Key, jobs: Iterable[Job]) -> Job | None:
    """The first that searches this key, as far as it says what it wants."""
    for job in jobs:
        wanted = job.request
        if (
            wanted.candidate is None
            and (wanted.kernel, wanted.problem, wanted.chip) == (key.kernel, key.problem, key.chip)
            and wanted.fingerprint in (None, key.fingerprint)
            and wanted.toolchain in (None, key.toolchain)
        ):
            return job
    return None


MOST = 8
_MOST_OF_A_KIND = 2  # while there are others
_MOST_WORKLOADS = 20
_MOST_BOUNDS = 100  # of what takes most of a step
WORTH = 1.1  # times the bound: what is nearer to it has nothing to gain

Place = tuple[str, Problem, Chip]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """``kind``: broken, missing, slower, stale or can gain. ``body``: what ``POST /v1/jobs`` takes;
    ``command`` does the same on this machine; ``job``: one that is open for it already; ``runs``: a
    search of it runs. ``saves_us``: the most that it saves a call, 0 where that is not known;
    ``weight``: how many calls the models make in a step, 0 where none is known to; ``calls``: how
    many questions were answered with something else."""

    kind: str
    key: Key
    link: str
    why: str
    body: str
    command: str
    saves_us: float = 0.0
    weight: float = 0.0
    calls: int = 0
    job: Job | None = None
    runs: bool = False

    @property
    def saves_in_all_us(self) -> float:
        return self.saves_us * (self.weight or 1.0)


def next_steps(call: PageCall, jobs: Sequence[Job]) -> list[NextStep]:
    """What is broken, then what saves most; of each kind a few. ``jobs``: those that are open."""
    browse, snapshot = call.browse, call.snapshot
    kinds: list[Iterable[NextStep]] = [
        _broken(browse.worst_checks(CheckFilter(), 0, MOST * 2), snapshot),
        map(_missing, browse.missed_keys(0, MOST)),
        _stale(snapshot, call.store),
        _can_gain(snapshot, call.store),
    ]
    weights = _weights(snapshot, call.store)
    ranked = [
        sorted((replace(s, weight=weights.get(_place(s.key), 0.0)) for s in kind), key=_rank)
        for kind in kinds
    ]
    first = [step for kind in ranked for step in kind[:_MOST_OF_A_KIND]]
    rest = sorted((step for kind in ranked for step in kind[_MOST_OF_A_KIND:]), key=_rank)
    going = {search.searched.key for search in browse.running(datetime.now(UTC) - SILENT)}
    return [
        replace(step, job=job_for(step.key, jobs), runs=step.key in going)
        for step in sorted([*first, *rest][:MOST], key=_rank)
    ]


def _rank(step: NextStep) -> tuple[bool, float]:
    return step.kind != "broken", -step.saves_in_all_us


def _place(key: Key) -> Place:
    return key.kernel, key.problem, key.chip


@once_for_each_snapshot
def _weights(_snapshot: IndexedSnapshot, store: SqlStore) -> Mapping[Place, float]:
    """How often a step of the models runs a problem."""
    weights: defaultdict[Place, float] = defaultdict(float)
    for name, _ in store.workloads.names()[:_MOST_WORKLOADS]:
        tuned = store.workloads.find(name)
        for entry in tuned[0].entries if tuned else ():
            weights[_place(entry.key)] += entry.weight
    return weights


def _broken(checks: Iterable[NumberedCheck], snapshot: IndexedSnapshot) -> Iterator[NextStep]:
    for numbered in checks:
        check = numbered.check
        _, job = fate(check, snapshot)
        if job and check.verdict.wants_retuning:
            yield NextStep(
                kind="slower" if check.verdict.compiles else "broken",
                key=check.target,
                link=f"/keys/{numbered.key_id}",
                why=f"checked with {check.toolchain.label}: {finding(check)}",
                body=job,
                command=retune(check),
                saves_us=check.costs_us,
            )


def _missing(missed: KeyMiss) -> NextStep:
    miss = missed.miss
    times = "once" if miss.count == 1 else f"{miss.count:,} times"
    return NextStep(
        kind="missing",
        key=miss.key,
        link=f"/keys/{missed.key_id}",
        why=f"asked for {times}, answered with: {miss.answer}",
        body=json.dumps({"miss": miss.number}),
        command=search_command(miss.key),
        calls=miss.count,
    )


def _stale(snapshot: IndexedSnapshot, store: SqlStore) -> Iterator[NextStep]:
    """Records of an older source than the newest, where the newest has none."""
    for key, number in store.browse.numbers(stale(snapshot)[:MOST]).items():
        why = f"the kernel's source has changed since it was tuned ({key.fingerprint})"
        yield _again("stale", key, number, why)


@once_for_each_snapshot
def _can_gain(snapshot: IndexedSnapshot, store: SqlStore) -> list[NextStep]:
    """What models run and is far from what no config can beat."""
    weights = _weights(snapshot, store)
    run = [record for record in snapshot.index if _place(record.key) in weights]
    run.sort(key=lambda record: -record.estimate.time_us * weights[_place(record.key)])
    bounds = bounds_us(run[:_MOST_BOUNDS], store.browse)
    numbers = store.browse.numbers(list(bounds))
    far = "{} the time that no config can beat: more trials may help"
    return [
        _again(
            "can gain",
            record.key,
            numbers[record.key],
            far.format(ratio(us, bound_us)),
            us - bound_us,
        )
        for record in run[:_MOST_BOUNDS]
        if (us := record.estimate.time_us) > WORTH * (bound_us := bounds.get(record.key, inf))
    ]


def bounds_us(records: Sequence[Record], browse: SqlBrowse) -> Mapping[Key, float]:
    """What no config takes less than, for the arithmetic and the traffic of the problem: of those
    whose trial, which knows it, is here."""
    numbers = browse.numbers([record.key for record in records])
    of_key = {number: key for key, number in numbers.items()}
    configs = {numbers[r.key]: r.config for r in records if r.key in numbers}
    bounds = {}
    for number, numbered in browse.with_configs(configs).items():
        e = numbered.trial.estimate
        if e and e.explanation:
            bounds[of_key[number]] = e.explanation.least_us or e.explanation.roofline_us
    return bounds


def _again(kind: str, key: Key, number: int, why: str, saves_us: float = 0.0) -> NextStep:
    return NextStep(
        kind=kind,
        key=key,
        link=f"/keys/{number}",
        why=why,
        body=json.dumps({name: to_data(key)[name] for name in ("kernel", "problem", "chip")}),
        command=search_command(key),
        saves_us=saves_us,
    )


@once_for_each_snapshot
def stale(snapshot: IndexedSnapshot) -> list[Key]:
    newest_of = dict(iter(snapshot.index.kernels))  # the one described last
    keys = []
    for record in snapshot.index:
        key = record.key
        newest = newest_of.get(key.kernel, key.fingerprint)
        if newest == key.fingerprint:
            continue
        if snapshot.index.exact(replace(key, fingerprint=newest)) is None:
            keys.append(key)
    return keys
