"""The queue of tuning requests: exactly one worker has a job, also when workers die."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, tuple_, update

from autotune.domain.codec import to_data
from autotune.domain.job import (
    LEASE_S,
    MOST_ATTEMPTS,
    Ability,
    Job,
    JobLog,
    Progress,
    Request,
    State,
    log_end,
)
from autotune.domain.visible import visible_lines
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.audit import note
from autotune_db.json_columns import digest, to_text
from autotune_db.query import Query
from autotune_db.rows import AnyRow
from autotune_db.tables import JOB_LOGS, JOBS

_GONE = "its workers died: {n} of them, the last was {worker}"


class SqlJobs(Adapter):
    """Tuning requests. Leases go by the clock of the database where it has
    one, so that the clocks of workers do not decide."""

    def add(self, request: Request, by: str = "") -> tuple[Job, bool]:
        def write(connection: Connection, _: bool) -> tuple[Job, bool]:
            row, is_new = queue(connection, request, by, self._now(connection))
            return rows.job_from_row(row), is_new

        return self._work.write(write)

    def get(self, number: int) -> Job | None:
        def find(connection: Connection) -> Job | None:
            row = query.get(connection, JOBS, number)
            return rows.job_from_row(row) if row else None

        return self._work.read(find) if 0 < number <= query.MAX_ID else None

    def list(
        self, state: State | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[Job]:
        statement = query.page(select(JOBS), JOBS.c.id, before, limit)
        if state is not None:
            statement = statement.where(JOBS.c.state == state)
        return self._work.read(lambda s: [rows.job_from_row(row) for row in s.execute(statement)])

    def counts(self) -> dict[str, int]:
        statement = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        return self._work.read(lambda s: {state: n for state, n in s.execute(statement)})  # noqa: C416 (typed)

    def claim(self, worker: str, able: Ability, lease_s: float = LEASE_S) -> Job | None:
        def write(connection: Connection, again: bool) -> Job | None:
            now = self._now(connection)
            silent = and_(
                JOBS.c.state == State.RUNNING, JOBS.c.heard_at < now - timedelta(seconds=lease_s)
            )
            mine = select(JOBS).where(JOBS.c.state == State.RUNNING, JOBS.c.worker == worker)
            # The first attempt may have claimed it.
            row = connection.execute(mine).first() if again else None
            if row is None:
                _expire(connection, silent, now)
                row = connection.execute(_next(able, silent)).first()
                if row is None:
                    return None
                row = _change(
                    connection,
                    row,
                    state=State.RUNNING,
                    worker=worker,
                    attempt=row.attempt + 1,
                    started_at=now,
                    heard_at=now,
                    progress=to_text(asdict(Progress())),
                )
                note(connection, now, "job", f"{worker} took job {row.id}")
            return rows.job_from_row(row)

        return self._work.write(write)

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        def write(connection: Connection, _: bool) -> bool:
            row = _leased(connection, job)
            if row is None:
                return False
            now, said = self._now(connection), to_text(asdict(progress))
            return not _change(connection, row, heard_at=now, progress=said).cancel_wanted

        return self._work.write(write)

    def write_log(self, job: Job, text: str) -> bool:
        kept = {"text": log_end(visible_lines(log_end(text)))}

        def write(connection: Connection, _: bool) -> bool:
            row = _leased(connection, job)
            if row is not None:
                values = {"job_id": row.id, "attempt": row.attempt, "earlier": "", **kept}
                query.upsert(connection, JOB_LOGS, values, ["job_id", "attempt"], kept)
            return row is not None

        return self._work.write(write)

    def logs(self, number: int) -> Sequence[JobLog]:
        own = select(JOB_LOGS).where(JOB_LOGS.c.job_id == number).order_by(JOB_LOGS.c.attempt)
        return self._work.read(
            lambda s: [JobLog(attempt=row.attempt, text=_whole(row)) for row in s.execute(own)]
        )

    def finish(self, job: Job, state: State, message: str) -> bool:
        assert state in (State.DONE, State.FAILED, State.CANCELLED)

        def write(connection: Connection, again: bool) -> bool:
            row = _leased(connection, job)
            if row is None:
                row = query.get(connection, JOBS, job.number)
                return again and row is not None and (row.state, row.message) == (state, message)
            now = self._now(connection)
            _end(connection, row, state, message, now)
            note(connection, now, "job", f"{row.worker} ended job {row.id}: {state}")
            return True

        return self._work.write(write)

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        def write(connection: Connection, _: bool) -> bool:
            row = _leased(connection, job)
            if row is None:
                return False
            if row.cancel_wanted:
                why = "cancelled while it ran; its trials are kept"
                _end(connection, row, State.CANCELLED, why, self._now(connection))
            elif counts and row.attempt >= MOST_ATTEMPTS:
                _end(connection, row, State.FAILED, message, self._now(connection))
            else:
                attempt = row.attempt
                if not counts:
                    _keep_log(connection, row)
                    attempt -= 1
                again = {"state": State.QUEUED, "worker": "", "message": message}
                _change(connection, row, **again, attempt=attempt)
            return True

        return self._work.write(write)

    def cancel(self, number: int) -> Job | None:
        def write(connection: Connection, _: bool) -> Job | None:
            own = select(JOBS).where(JOBS.c.id == number).with_for_update()
            row = connection.execute(own).first()
            if row is None:
                return None
            if row.state == State.QUEUED:
                why = "cancelled before it began"
                row = _end(connection, row, State.CANCELLED, why, self._now(connection))
            elif row.state == State.RUNNING:
                row = _change(connection, row, cancel_wanted=True)
            else:
                return rows.job_from_row(row)
            note(connection, self._now(connection), "job", f"cancelled job {row.id}")
            return rows.job_from_row(row)

        return self._work.write(write) if 0 < number <= query.MAX_ID else None

    def _now(self, connection: Connection) -> datetime:
        if query.is_postgresql(connection):
            found: datetime = connection.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
            return found
        return self._clock()


def queue(connection: Connection, request: Request, by: str, now: datetime) -> tuple[AnyRow, bool]:
    """The open job of a request, and whether it is new."""
    values = {
        **rows.job_values(request),
        "open_digest": digest(to_data(request)),
        "state": State.QUEUED.value,
        "created_at": now,
        "created_by": by,
        "attempt": 0,
        "worker": "",
        "cancel_wanted": False,
        "progress": to_text(asdict(Progress())),
        "message": "",
    }
    same = select(JOBS).where(JOBS.c.open_digest == values["open_digest"])
    while True:  # the job that is in the way may end before it is read
        is_new = query.insert(connection, JOBS, values) is not None
        row = connection.execute(same).first()
        if row is not None:
            if is_new:
                what = (
                    "" if request.candidate is None else f", to check candidate {request.candidate}"
                )
                asked = f"queued job {row.id}: {request.kernel} {request.problem}"
                note(connection, now, "job", f"{asked} on {request.chip}{what}")
            return row, is_new


def _next(able: Ability, silent: ColumnElement[bool]) -> Query:
    """The oldest that this worker can run and that nobody has; others look past it meanwhile."""
    kernels = [(name, version) for name, own in able.kernels.items() for version in (own, "")]
    versions = able.toolchain
    wanted = select(JOBS).where(
        or_(JOBS.c.state == State.QUEUED, silent),
        tuple_(JOBS.c.kernel, JOBS.c.fingerprint).in_(kernels),
        JOBS.c.jax.in_((versions.jax, "")),
        JOBS.c.jaxlib.in_((versions.jaxlib, "")),
        JOBS.c.libtpu.in_((versions.libtpu, "")),
    )
    if not able.checks:
        wanted = wanted.where(JOBS.c.candidate.is_(None))
    return wanted.order_by(JOBS.c.id).limit(1).with_for_update(skip_locked=True)


def _expire(connection: Connection, silent: ColumnElement[bool], now: datetime) -> None:
    """Jobs whose worker is silent and that nobody is to try again."""
    hopeless = or_(JOBS.c.attempt >= MOST_ATTEMPTS, JOBS.c.cancel_wanted)
    statement = select(JOBS).where(silent, hopeless).with_for_update(skip_locked=True)
    for row in connection.execute(statement).all():
        if row.cancel_wanted:
            _end(
                connection,
                row,
                State.CANCELLED,
                "cancelled; its worker was not heard of again",
                now,
            )
        else:
            _end(connection, row, State.FAILED, _GONE.format(n=row.attempt, worker=row.worker), now)


def _leased(connection: Connection, job: Job) -> AnyRow | None:
    """The row while this worker, in this attempt, still has the job."""
    mine: tuple[Any, ...] = (
        JOBS.c.id == job.number,
        JOBS.c.state == State.RUNNING,
        JOBS.c.worker == job.worker,
        JOBS.c.attempt == job.attempt,
    )
    return connection.execute(select(JOBS).where(*mine).with_for_update()).first()


def _keep_log(connection: Connection, job: AnyRow) -> None:
    """The next worker writes to the log of the same attempt."""
    own = and_(JOB_LOGS.c.job_id == job.id, JOB_LOGS.c.attempt == job.attempt)
    row = connection.execute(select(JOB_LOGS).where(own)).first()
    if row is not None:
        connection.execute(update(JOB_LOGS).where(own).values(earlier=_whole(row), text=""))


def _whole(log: AnyRow) -> str:
    return log_end(log.earlier + log.text)


def _end(connection: Connection, row: AnyRow, state: State, message: str, now: datetime) -> AnyRow:
    ended = {"finished_at": now, "open_digest": None}
    return _change(connection, row, state=state, message=message, **ended)


def _change(connection: Connection, row: AnyRow, **values: Any) -> AnyRow:
    """The row as it is then."""
    statement = update(JOBS).where(JOBS.c.id == row.id).values(values)
    return connection.execute(statement.returning(JOBS)).one()
