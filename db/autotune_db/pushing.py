"""Taking in what another machine has found: a handful of statements, however many results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, func, insert, select

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelSpec, Key
from autotune.domain.record import Check, Record, Standing
from autotune.domain.store import KeyResult, Pushed
from autotune_db import in_force, query, rows
from autotune_db.audit import note, some_of
from autotune_db.checks import save_check
from autotune_db.known_checks import Finding, noted, publish, with_findings, with_known_checks
from autotune_db.query import in_parts, sum_up
from autotune_db.tables import CHECKS, RECORDS, TRIALS
from autotune_db.transaction import Adapter, writes

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


class SqlPushes(Adapter):
    """What other machines bring."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        specs, given = list(kernels), [_as_values(result, by) for result in results]
        return self._take_in(specs, given, by)

    @writes
    def _take_in(
        self, connection: Connection, specs: Sequence[KernelSpec], given: Sequence[_Result], by: str
    ) -> Pushed:
        query.one_publisher(connection)
        now, keys = self._clock(), [result.record.key for result in given]
        add_kernels(connection, specs, now)
        ids = query.key_ids(connection, keys)
        trials = _add_trials(connection, given, ids, by)
        added, lost = _add_records(connection, given, ids)
        number = _publish(connection, given, len(added), now, by)
        if added or trials:
            change = f"records: {len(added)}, trials: {trials}, snapshot {number}"
            note(connection, now, "push", f"{change}: {some_of(added or keys)}")
        return Pushed(records=len(added), trials=trials, lost=lost, snapshot=number)

    def push_checks(self, checks: Sequence[Check], by: str) -> Sequence[Check]:
        """Keep what another machine has found of records under other toolchains; those that are in
        force then: a newer one of the same record, toolchain and chip stays."""
        oldest_first = sorted(checks, key=lambda check: check.checked_at)
        given = {(check.key, check.target): replace(check, pushed_by=by) for check in oldest_first}

        def write(connection: Connection, _: bool) -> Sequence[Check]:
            ids = query.key_ids(connection, [key for places in given for key in places])
            query.lock_keys(connection, ids.values(), shared=True)
            checked_at = _checked_at(connection, [ids[key] for key, _ in given])
            taken: list[Check] = []
            by_ids = {(ids[key], ids[target]): check for (key, target), check in given.items()}
            in_order = sorted(by_ids.items(), key=itemgetter(0))  # else two pushes could deadlock
            for place, check in in_order:
                at = checked_at.get(place)
                if at is None or at < check.checked_at:
                    save_check(connection, check, *place)
                if at is None or at <= check.checked_at:
                    taken.append(check)
            if taken:
                keys = some_of(check.key for check in taken)
                note(connection, self._clock(), "push", f"checks: {len(taken)}: {keys}")
            return taken

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
    where nothing is. What a token says is noted on what is claimed."""
    before = in_force.latest(connection)
    top = connection.scalar(select(func.max(RECORDS.c.id))) or 0 if new else None
    draft = in_force.draft(before, top)
    findings = [finding for result in given for finding in result.checks]
    checked = noted(connection, draft, findings, *((True,) if by else ())) if draft else []
    if draft is None or not (new or checked):
        return before.id if before else 0
    note = f"{new} pushed, up to record {draft.record_id}"
    return publish(connection, draft.record_id, checked, now, by=by, note=note)


def _checked_at(connection: Connection, key_ids: Iterable[int]) -> dict[tuple[int, int], datetime]:
    """When the records of some keys were checked, by their keys and those they were checked as."""
    checked_at: dict[tuple[int, int], datetime] = {}
    wanted = select(CHECKS.c.key_id, CHECKS.c.target_id, CHECKS.c.checked_at)
    for part in in_parts(set(key_ids)):
        for key_id, target_id, at in connection.execute(wanted.where(CHECKS.c.key_id.in_(part))):
            checked_at[key_id, target_id] = at
    return checked_at


def _as_values(result: KeyResult, by: str) -> _Result:
    record = replace(result.record, checks=(), pushed_by=by)
    return _Result(
        record=record,
        checks=[(record.key, record.config, check) for check in result.record.checks],
        record_values=rows.record_values(record),
        trial_values=[rows.trial_values(trial) for trial in result.trials],
    )


def _add_records(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int]
) -> tuple[Sequence[Key], int]:
    """The keys of those that are new, and how many lost against others."""
    claimed = any(result.record.standing is Standing.CLAIMED for result in given)
    served = in_force.records_of(connection, ids.values(), claimed=claimed)
    there = _there(connection, given, ids)
    new: list[_Values] = []
    added: list[Key] = []
    lost = 0
    known = with_known_checks(connection, [result.record for result in given], ids)
    for result, record in zip(given, known, strict=True):
        is_same = record is result.record
        values = result.record_values if is_same else rows.record_values(record)
        key_id = ids[record.key]
        if in_force.is_superseded(served.get(key_id), result.record):
            lost += 1
            continue
        same = (key_id, *(values[name] for name in _SAME_RECORD))
        if same not in there:
            there.add(same)
            served[key_id] = result.record
            added.append(record.key)
            if result.checks:
                values = rows.record_values(with_findings(record, result.checks))
            new.append({**values, "key_id": key_id})
    if new:
        connection.execute(insert(RECORDS), new)
    return added, lost


def _there(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int]
) -> set[tuple[Any, ...]]:
    """Records that are there already, whoever brought them."""
    columns = (RECORDS.c.key_id, *(RECORDS.c[name] for name in _SAME_RECORD))
    there: set[tuple[Any, ...]] = set()
    made_at = [result.record.created_at for result in given]
    for part in in_parts({ids[result.record.key] for result in given}):
        same = select(*columns).where(
            RECORDS.c.key_id.in_(part), RECORDS.c.created_at.between(min(made_at), max(made_at))
        )
        there.update(map(tuple, connection.execute(same)))
    return there


def _add_trials(
    connection: Connection, given: Sequence[_Result], ids: Mapping[Key, int], by: str
) -> int:
    """How many are new: a config that was tried keeps its own evidence; a number that is taken
    becomes the next."""
    numbers: dict[int, set[int]] = {}
    configs: dict[int, set[str]] = {}
    known = select(TRIALS.c.key_id, TRIALS.c.number, TRIALS.c.config_digest)
    key_ids = {ids[result.record.key] for result in given if result.trial_values}
    query.lock_keys(connection, key_ids)
    for part in in_parts(key_ids):
        for key_id, number, config in connection.execute(known.where(TRIALS.c.key_id.in_(part))):
            numbers.setdefault(key_id, set()).add(number)
            configs.setdefault(key_id, set()).add(config)
    new = []
    for result in given:
        key_id = ids[result.record.key]
        taken, tried = numbers.setdefault(key_id, set()), configs.setdefault(key_id, set())
        for values in result.trial_values:
            if values["config_digest"] not in tried:
                number = values["number"] if values["number"] not in taken else max(taken) + 1
                new.append({**values, "number": number, "key_id": key_id, "pushed_by": by})
                taken.add(number)
                tried.add(values["config_digest"])
    if new:
        connection.execute(insert(TRIALS), new)
        sum_up(connection, {values["key_id"] for values in new})
    return len(new)
