"""Pushed records that wait until a worker with this database has checked them."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, and_, func, select, update

from autotune.domain.codec import to_data
from autotune.domain.job import request_of
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.store import CandidateDecision, CandidateState, RecordCandidate
from autotune_db import in_force, jobs, query, rows, snapshots
from autotune_db.audit import note
from autotune_db.rows import AnyRow
from autotune_db.tables import CANDIDATES, RECORDS, digest, to_text
from autotune_db.transaction import Adapter, reads, writes

_AT_ONCE = 500  # new ones in a transaction, which nobody else writes beside


class SqlCandidates(Adapter):
    """Implements that part of ``domain.store.Store``."""

    @writes
    def check_claims(self, connection: Connection, keys: Collection[Key] | None = None) -> int:
        """Queue a job for each claimed record in force that was not to be checked before, the
        newest first, some hundreds at a time; of ``keys`` also for those whose job ended
        without a decision. How many of these wait for a worker then."""
        query.one_publisher(connection)  # what was refused before is withdrawn
        snapshot, now = in_force.latest(connection), self._clock()
        if snapshot is None:
            return 0
        only = None if keys is None else set(query.find_keys(connection, keys).values())
        claims = set(in_force.layers(connection, snapshot, only, True)[True].values())
        known: dict[int, AnyRow] = {}
        for part in query.in_parts(claims):
            of_part = select(CANDIDATES).where(CANDIDATES.c.record_id.in_(part))
            known |= {row.record_id: row for row in connection.execute(of_part)}
        new = sorted(claims - known.keys(), reverse=True)[:_AT_ONCE]
        for number, record in in_force.by_id(connection, new).items():
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
    newest = in_force.latest(connection)
    assert newest is not None  # there is a record, hence a snapshot
    made = snapshots.publish(connection, newest.record_id, now, by="", note=why)
    withdrawn = update(RECORDS).where(RECORDS.c.id == number)
    connection.execute(withdrawn.values(until_id=made.id))
