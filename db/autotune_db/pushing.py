"""Taking in what another machine has found: a handful of statements, however many results; and
pushed records that wait until a worker with this database has checked them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, and_, func, insert, select, update

from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import request_of
from autotune.domain.key import KernelSpec, Key
from autotune.domain.record import Check, Record, Standing
from autotune.domain.store import (
    CandidateDecision,
    CandidateState,
    KeyResult,
    Pushed,
    RecordCandidate,
)
from autotune_db import jobs, query, rows, snapshots
from autotune_db.audit import note, some_of
from autotune_db.checks import Finding, noted, publish, save_check, with_findings, with_known_checks
from autotune_db.query import in_parts, sum_up
from autotune_db.rows import AnyRow
from autotune_db.tables import CANDIDATES, CHECKS, RECORDS, TRIALS, digest, to_text
from autotune_db.transaction import Adapter, reads, writes

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
    before = snapshots.latest(connection)
    top = connection.scalar(select(func.max(RECORDS.c.id))) or 0 if new else None
    draft = snapshots.draft(before, top)
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
    served = snapshots.records_of(connection, ids.values(), claimed=claimed)
    there = _there(connection, given, ids)
    new: list[_Values] = []
    added: list[Key] = []
    lost = 0
    known = with_known_checks(connection, [result.record for result in given], ids)
    for result, record in zip(given, known, strict=True):
        is_same = record is result.record
        values = result.record_values if is_same else rows.record_values(record)
        key_id = ids[record.key]
        if snapshots.is_superseded(served.get(key_id), result.record):
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


_AT_ONCE = 500  # new ones in a transaction, which nobody else writes beside


class SqlCandidates(Adapter):
    """Implements that part of ``domain.store.Store``."""

    @writes
    def check_claims(self, connection: Connection, keys: Collection[Key] | None = None) -> int:
        """Queue a job for each claimed record in force that was not to be checked before, the
        newest first, some hundreds at a time; of ``keys`` also for those whose job ended
        without a decision. How many of these wait for a worker then."""
        query.one_publisher(connection)  # what was refused before is withdrawn
        snapshot, now = snapshots.latest(connection), self._clock()
        if snapshot is None:
            return 0
        only = None if keys is None else set(query.find_keys(connection, keys).values())
        claims = set(snapshots.layers(connection, snapshot, only, True)[True].values())
        known: dict[int, AnyRow] = {}
        for part in query.in_parts(claims):
            of_part = select(CANDIDATES).where(CANDIDATES.c.record_id.in_(part))
            known |= {row.record_id: row for row in connection.execute(of_part)}
        new = sorted(claims - known.keys(), reverse=True)[:_AT_ONCE]
        for number, record in snapshots.by_id(connection, new).items():
            known[number] = row = _added(connection, number, record, now)
            if row.state == CandidateState.REFUSED:
                _withdraw(connection, number, now, f"candidate {row.id} was refused before")
        asked = new if keys is None else known  # the job of what is known may have failed
        waiting = [known[n] for n in asked if known[n].state == CandidateState.UNVERIFIED]
        for row in waiting:
            record = rows.candidate_from_row(row).record
            jobs.queue(connection, request_of(record.key, 1, row.id), record.pushed_by, now)
        return len(waiting)

    @reads
    def count_claims(self, connection: Connection) -> int:
        other = RECORDS.alias()
        is_proven = (other.c.key_id == RECORDS.c.key_id) & other.c.claimed.is_(False)
        is_claim = RECORDS.c.claimed.is_(True), RECORDS.c.until_id.is_(None)
        counted = select(func.count(RECORDS.c.key_id.distinct())).where(*is_claim)
        return connection.scalar(counted.where(~select(other.c.id).where(is_proven).exists())) or 0

    @reads
    def candidate(self, connection: Connection, number: int) -> RecordCandidate | None:
        return query.read(connection, CANDIDATES, number, rows.candidate_from_row)

    @writes
    def decide(self, connection: Connection, number: int, decision: CandidateDecision) -> None:
        query.one_publisher(connection)
        candidate = CANDIDATES.c.id == number
        row = connection.execute(select(CANDIDATES).where(candidate).with_for_update()).one()
        if row.state != CandidateState.UNVERIFIED:
            return
        now, waits = self._clock(), decision.state is CandidateState.UNVERIFIED
        values = {"state": decision.state.value, "finding": decision.finding}
        decided = values | {"decided_at": None if waits else now}
        connection.execute(update(CANDIDATES).where(candidate).values(decided))
        if decision.state is CandidateState.REFUSED and row.record_id is not None:
            _withdraw(connection, row.record_id, now, f"refused candidate {number}")
        if not waits:
            key = rows.candidate_from_row(row).record.key
            note(connection, now, "check", f"candidate {number} is {decision.state}: {key}")


def _added(connection: Connection, number: int, record: Record, now: datetime) -> AnyRow:
    """The candidate of the record with this number; it may be of a time when none was kept. What a
    worker refuses is the config: it does not come back with other words or times."""
    data = to_data(record)
    by = {"digest": digest(data | {"pushed_by": ""})}
    state, finding = CandidateState.UNVERIFIED, ""
    other = RECORDS.alias()
    same = (RECORDS.c[name] == other.c[name] for name in ("key_id", "config", "method"))
    refused = select(other.c.id).join(RECORDS, and_(*same))
    refused = refused.where(RECORDS.c.id == number, other.c.until_id.is_not(None))
    if connection.scalar(refused.limit(1)) is not None:
        state, finding = CandidateState.REFUSED, "a worker has refused its config before"
    new = {"state": state.value, "finding": finding, "created_at": now}
    query.upsert(connection, CANDIDATES, by, {"record_id": number}, record=to_text(data), **new)
    return connection.execute(select(CANDIDATES).where(CANDIDATES.c.record_id == number)).one()


def _withdraw(connection: Connection, number: int, now: datetime, why: str) -> None:
    """The record with this number is in no snapshot from a new one on."""
    newest = snapshots.latest(connection)
    assert newest is not None  # there is a record, hence a snapshot
    made = snapshots.publish(connection, newest.record_id, now, by="", note=why)
    withdrawn = update(RECORDS).where(RECORDS.c.id == number)
    connection.execute(withdrawn.values(until_id=made.id))
