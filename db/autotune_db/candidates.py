"""Pushed records that wait until a worker with this database has checked them."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select, update

from autotune.domain.codec import to_data
from autotune.domain.job import Request
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.record import Record
from autotune.domain.record_candidate import CandidateDecision, CandidateState, RecordCandidate
from autotune.domain.result import KeyResult, Pushed
from autotune_db import jobs, pushing, query, rows, snapshots
from autotune_db.audit import note, some_of
from autotune_db.json_columns import digest, to_text
from autotune_db.tables import CANDIDATES
from autotune_db.transaction import Adapter, reads, writes


class SqlCandidates(Adapter):
    """Implements that part of ``domain.store.Store``."""

    @writes
    def hold(
        self,
        connection: Connection,
        kernels: Sequence[KernelSpec],
        results: Sequence[KeyResult],
        by: str,
    ) -> Pushed:
        query.one_publisher(connection)
        now, records = self._clock(), [result.record for result in results]
        pushing.add_kernels(connection, kernels, now)
        ids = query.key_ids(connection, [record.key for record in records])
        published = snapshots.in_force(connection, ids.values())
        better = [
            record
            for record in records
            if not pushing.is_superseded(published.get(ids[record.key]), record)
        ]
        new = [record for record in better if _hold(connection, record, by, now)]
        if new:
            keys = some_of(record.key for record in new)
            note(connection, now, "push", f"{len(new)} records, to be checked first: {keys}")
        return Pushed(
            records=0,
            trials=0,
            lost=len(records) - len(better),
            snapshot=snapshots.latest_number(connection),
            candidates=len(new),
        )

    @reads
    def candidate(self, connection: Connection, number: int) -> RecordCandidate | None:
        row = query.get(connection, CANDIDATES, number)
        return rows.candidate_from_row(row) if row else None

    def candidates(
        self, state: CandidateState | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[RecordCandidate]:
        wanted = query.page(select(CANDIDATES), CANDIDATES.c.id, before, limit)
        if state is not None:
            wanted = wanted.where(CANDIDATES.c.state == state)
        return self._rows(wanted, rows.candidate_from_row)

    @writes
    def decide(self, connection: Connection, number: int, decision: CandidateDecision) -> None:
        candidate = CANDIDATES.c.id == number
        row = connection.execute(select(CANDIDATES).where(candidate).with_for_update()).one()
        if row.state != CandidateState.UNVERIFIED:
            return
        now, waits = self._clock(), decision.state is CandidateState.UNVERIFIED
        values = {"state": decision.state.value, "finding": decision.finding}
        decided = values | {"decided_at": None if waits else now}
        connection.execute(update(CANDIDATES).where(candidate).values(decided))
        if not waits:
            key = rows.candidate_from_row(row).record.key
            note(connection, now, "check", f"candidate {number} is {decision.state}: {key}")


def _hold(connection: Connection, record: Record, by: str, now: datetime) -> bool:
    """Whether it has to be checked, and was not to be before."""
    data = to_data(record)
    values = {
        "digest": digest(data | {"pushed_by": ""}),
        "record": to_text(data | {"pushed_by": by}),
        "state": CandidateState.UNVERIFIED.value,
        "finding": "",
        "created_at": now,
    }
    is_new = query.insert(connection, CANDIDATES, values) is not None
    same = select(CANDIDATES).where(CANDIDATES.c.digest == values["digest"])
    row = connection.execute(same).one()
    if row.state == CandidateState.UNVERIFIED:  # its job may have failed
        jobs.queue(connection, _check_of(row.id, record), by, now)
    return is_new


def _check_of(number: int, record: Record) -> Request:
    key = record.key
    return Request(
        kernel=key.kernel,
        fingerprint=key.fingerprint,
        problem=key.problem,
        chip=key.chip,
        toolchain=key.toolchain,
        trials=1,
        candidate=number,
    )
