"""What to do next: what is broken, missing, slower, stale or can gain, by what it saves."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

from autotune.domain.browsing import SILENT, CheckFilter, KeyMiss, NumberedCheck
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Chip, Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.wording.match import finding, retune, search_command
from autotune.wording.units import ratio
from autotune_db import SqlStore
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.jobs import job_for
from autotune_service.pages.upgrades import fate
from autotune_service.snapshot_cache import IndexedSnapshot

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
