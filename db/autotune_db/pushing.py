"""Taking in what another machine has found: a handful of statements, however many results."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, func, insert, select

from autotune.domain.check import Check
from autotune.domain.errors import InvalidInputError
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.record import Method, Record
from autotune.domain.result import KeyResult, Pushed
from autotune_db import query, rows, snapshots
from autotune_db.audit import note, some_of
from autotune_db.checks import save_check
from autotune_db.known_checks import (
    Finding,
    noted,
    publish,
    with_findings,
    with_known_checks,
)
from autotune_db.query import in_parts, sum_up
from autotune_db.tables import CHECKS, PUSHES, RECORDS, SPACES, TRIALS
from autotune_db.transaction import Adapter

_Values = dict[str, Any]
_SAME_RECORD = ("config", "evidence", "created_at")


@dataclass(frozen=True, slots=True)
class _Result:
    """A result as the values of its rows: the record without its checks, for whether it is there
    already is not for them to say."""

    record: Record
    checks: Sequence[Finding]
    record_values: _Values
    trial_values: Sequence[_Values]
    space_values: _Values | None


class SqlPushes(Adapter):
    """Implements ``PushTarget``."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        specs = list(kernels)
        given = [_as_values(result) for result in results]
        digest = _digest([rows.kernel_values(spec) for spec in specs], given)
        before = self._work.read(lambda connection: _same_push(connection, digest))
        if before is not None:
            return before

        def write(connection: Connection, _: bool) -> Pushed:
            query.one_publisher(connection)
            now = self._clock()
            add_kernels(connection, specs, now)
            ids = query.key_ids(connection, [one.record.key for one in given])
            trials = _add_trials(connection, given, ids, by)
            spaces = [(ids[one.record.key], one.space_values) for one in given if one.space_values]
            query.insert_new(connection, SPACES, [{**own, "key_id": key} for key, own in spaces])
            added, lost = _add_records(connection, given, ids, by)
            new = len(added)
            number = _publish(connection, given, new, now, by)
            if new or trials:
                what = f"{new} records, {trials} trials, snapshot {number}"
                keys = added or [one.record.key for one in given]
                note(connection, now, "push", f"{what}: {some_of(keys)}")
            if not lost:  # else what lost now may win after a roll-back
                query.insert_new(connection, PUSHES, [{"digest": digest, "created_at": now}])
            return Pushed(records=new, trials=trials, lost=lost, snapshot=number)

        return self._work.write(write)

    def push_checks(self, checks: Sequence[Check], by: str) -> Sequence[Check]:
        oldest_first = sorted(checks, key=lambda check: check.checked_at)
        given = {(check.key, check.target): replace(check, pushed_by=by) for check in oldest_first}

        def write(connection: Connection, _: bool) -> Sequence[Check]:
            ids = query.key_ids(connection, [key for places in given for key in places])
            query.lock_keys(connection, ids.values(), shared=True)
            there = _checked_at(connection, [ids[key] for key, _ in given])
            kept: list[Check] = []
            by_ids = {(ids[key], ids[target]): check for (key, target), check in given.items()}
            in_order = sorted(by_ids.items(), key=itemgetter(0))  # else two pushes could deadlock
            for place, check in in_order:
                at = there.get(place)
                if at is None or at < check.checked_at:
                    save_check(connection, check, *place)
                if at is None or at <= check.checked_at:
                    kept.append(check)
            if kept:
                keys = some_of(check.key for check in kept)
                note(connection, self._clock(), "push", f"{len(kept)} checks: {keys}")
            return kept

        return self._work.write(write) if given else ()


def add_kernels(connection: Connection, specs: Sequence[KernelSpec], now: datetime) -> None:
    """Raises ``InvalidInputError`` where there is no room for all."""
    if query.add_kernels(connection, specs, now):
        most = query.MOST_KERNELS
        raise InvalidInputError(f"{most} kernels are described there, and no more can be")


def _publish(
    connection: Connection, given: Sequence[_Result], new: int, now: datetime, by: str
) -> int:
    """One snapshot with the new records, and with what is new of those that are there; the latest
    where nothing is."""
    before = snapshots.latest(connection)
    top = connection.scalar(select(func.max(RECORDS.c.id))) or 0 if new else None
    draft = snapshots.draft(before, top)
    checked = (
        noted(connection, draft, [check for one in given for check in one.checks]) if draft else []
    )
    if draft is None or not (new or checked):
        return before.id if before else 0
    note = f"{new} pushed, up to record {draft.record_id}"
    return publish(connection, draft.record_id, checked, now, by=by, note=note)


def _checked_at(connection: Connection, key_ids: Iterable[int]) -> dict[tuple[int, int], datetime]:
    """When the records of some keys were checked, by their keys and those they were checked as."""
    found: dict[tuple[int, int], datetime] = {}
    for part in in_parts(set(key_ids)):
        wanted = select(CHECKS.c.key_id, CHECKS.c.target_id, CHECKS.c.checked_at)
        for key_id, target_id, at in connection.execute(wanted.where(CHECKS.c.key_id.in_(part))):
            found[key_id, target_id] = at
    return found


def _as_values(result: KeyResult) -> _Result:
    record = replace(result.record, checks=())
    return _Result(
        record=record,
        checks=[(record.key, record.config, check) for check in result.record.checks],
        record_values=rows.record_values(record),
        trial_values=[rows.trial_values(trial) for trial in result.trials],
        space_values=None if result.refusals is None else rows.space_values(result.refusals),
    )


def _digest(specs: Sequence[_Values], given: Sequence[_Result]) -> str:
    """Of all that is kept of a push, but not of who brought it."""
    found = hashlib.sha256()
    for one in given:
        key = rows.key_identity(one.record.key)
        for values in (key, one.record_values, *one.trial_values, one.space_values or {}):
            own = [(name, str(value)) for name, value in values.items() if name != "pushed_by"]
            found.update(repr(own).encode("utf-8", "surrogatepass"))
        found.update(repr(one.checks).encode("utf-8", "surrogatepass") if one.checks else b"")
    found.update(repr([list(spec.items()) for spec in specs]).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _same_push(connection: Connection, digest: str) -> Pushed | None:
    """The answer to a push that was taken in whole before: records and trials are never taken
    away, so it changes nothing."""
    if connection.scalar(select(PUSHES.c.id).where(PUSHES.c.digest == digest)) is None:
        return None
    latest = snapshots.latest(connection)
    return Pushed(records=0, trials=0, lost=0, snapshot=latest.id if latest else 0)


def _add_records(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int], by: str
) -> tuple[Sequence[Key], int]:
    """The keys of those that are new, and how many lost against others."""
    in_force, there = snapshots.in_force(connection, ids.values()), _there(connection, given, ids)
    new: list[_Values] = []
    added: list[Key] = []
    lost = 0
    known = with_known_checks(connection, [one.record for one in given])
    for one, record in zip(given, known, strict=True):
        values = rows.record_values(record)
        key_id = ids[one.record.key]
        if is_superseded(in_force.get(key_id), one.record):
            lost += 1
            continue
        same = (key_id, *(values[name] for name in _SAME_RECORD))
        if same not in there:
            there.add(same)
            in_force[key_id] = one.record
            added.append(one.record.key)
            values = rows.record_values(with_findings(record, one.checks))
            new.append({**values, "key_id": key_id, "pushed_by": by})
    if new:
        connection.execute(insert(RECORDS), new)
    return added, lost


def _there(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int]
) -> set[tuple[Any, ...]]:
    """Records that are there already, whoever brought them."""
    columns = (RECORDS.c.key_id, *(RECORDS.c[name] for name in _SAME_RECORD))
    found: set[tuple[Any, ...]] = set()
    made_at = [one.record.created_at for one in given]
    for part in in_parts({ids[one.record.key] for one in given}):
        same = select(*columns).where(
            RECORDS.c.key_id.in_(part),
            RECORDS.c.created_at >= min(made_at),
            RECORDS.c.created_at <= max(made_at),
        )
        found.update(map(tuple, connection.execute(same)))
    return found


def is_superseded(published: Record | None, record: Record) -> bool:
    """Whether the ``published`` record of the key is newer, faster by the same kind of evidence, or
    measured where this one is only estimated.

    What is there already does not lose: it may be pushed again.
    """
    if published is None:
        return False
    faster = _same_kind(record, published) and published.time_us < record.time_us
    firmer = published.method == Method.MEASURED and record.method != Method.MEASURED
    return published.created_at > record.created_at or faster or firmer


def _same_kind(one: Record, other: Record) -> bool:
    """Whether their times may be compared: by the same model, or measured in the same way."""
    if one.method != other.method:
        return False
    if (
        one.measurement is not None
        and other.measurement is not None
        and one.method == Method.MEASURED
    ):
        return one.measurement.method == other.measurement.method
    return one.estimate.model == other.estimate.model


def _add_trials(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int], by: str
) -> int:
    """How many are new: a config that was tried keeps its own evidence; a number that is taken
    becomes the next."""
    numbers: dict[int, set[int]] = {}
    configs: dict[int, set[str]] = {}
    known = select(TRIALS.c.key_id, TRIALS.c.number, TRIALS.c.config_digest)
    own = {ids[one.record.key] for one in given if one.trial_values}
    query.lock_keys(connection, own)
    for part in in_parts(own):
        for key_id, number, config in connection.execute(known.where(TRIALS.c.key_id.in_(part))):
            numbers.setdefault(key_id, set()).add(number)
            configs.setdefault(key_id, set()).add(config)
    new = []
    for one in given:
        key_id = ids[one.record.key]
        taken, tried = numbers.setdefault(key_id, set()), configs.setdefault(key_id, set())
        for values in one.trial_values:
            if values["config_digest"] not in tried:
                number = values["number"] if values["number"] not in taken else max(taken) + 1
                new.append({**values, "number": number, "key_id": key_id, "pushed_by": by})
                taken.add(number)
                tried.add(values["config_digest"])
    if new:
        connection.execute(insert(TRIALS), new)
        sum_up(connection, {one["key_id"] for one in new})
    return len(new)
