"""The queue of tuning requests: exactly one worker has a job, also when workers die."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, tuple_, update

from autotune.domain.codec import to_data
from autotune.domain.job import (
    LEASE_S,
    MOST_ATTEMPTS,
    MOST_LEASE_S,
    Ability,
    Ending,
    Job,
    JobLog,
    Progress,
    Request,
    State,
    log_end,
)
from autotune.domain.visible import visible_lines
from autotune_db import query, rows
from autotune_db.audit import note
from autotune_db.query import Query
from autotune_db.rows import AnyRow
from autotune_db.tables import JOB_LOGS, JOBS, KEYS, RECORDS, digest, to_text
from autotune_db.transaction import Adapter, reads, writes

_LEASE = timedelta(seconds=LEASE_S)  # of a job that was taken by an earlier version
_GONE = "its workers died: {n} of them, the last was {worker}"
_LATE = "; {n} more answered after their lease: start them with a longer autotune worker --lease"


class SqlJobs(Adapter):
    """Tuning requests. Leases go by the clock of the database where it has one, so that the clocks
    of workers do not decide."""

    @writes
    def add(self, connection: Connection, request: Request, by: str = "") -> tuple[Job, bool]:
        row, is_new = queue(connection, request, by, self._now(connection))
        return rows.job_from_row(row), is_new

    @reads
    def get(self, connection: Connection, number: int) -> Job | None:
        return query.read(connection, JOBS, number, rows.job_from_row)

    def list(
        self, state: State | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[Job]:
        statement = query.page(select(JOBS), JOBS.c.id, before, limit)
        if state is not None:
            statement = statement.where(JOBS.c.state == state)
        return self._rows(statement, rows.job_from_row)

    def counts(self) -> dict[str, int]:
        counted = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        return dict(self._rows(counted, lambda row: (str(row[0]), int(row[1]))))

    def claim(
        self, worker: str, able: Ability, lease_s: float = LEASE_S, claim: str | None = None
    ) -> Job | None:
        """``claim``: by which the same question is known again, whose answer was lost."""
        lease = timedelta(seconds=min(lease_s, MOST_LEASE_S))
        whose = {"worker": worker, "claim": secrets.token_hex(16) if claim is None else claim}

        def write(connection: Connection, again: bool) -> Job | None:
            mine = [JOBS.c[name] == value for name, value in whose.items()]
            known = select(JOBS).where(JOBS.c.state == State.RUNNING, *mine)
            row = connection.execute(known).first() if again or claim else None
            if row is None:
                row = _claimed(connection, whose, able, lease, self._now(connection))
            return rows.job_from_row(row) if row else None

        return self._work.write(write)

    @writes
    def heartbeat(self, connection: Connection, job: Job, progress: Progress) -> bool:
        row = _leased(connection, job)
        if row is None:
            _end_attempt(connection, job, Ending.LATE)
            return False
        now, content = self._now(connection), to_text(asdict(progress))
        lapses = now + (row.lapses_at - row.heard_at if row.lapses_at else _LEASE)
        beat = {"heard_at": now, "lapses_at": lapses, "progress": content}
        return not _change(connection, row, **beat).cancel_wanted

    @writes
    def write_log(self, connection: Connection, job: Job, text: str) -> bool:
        row = _leased(connection, job)
        if row is not None:
            values = {"text": log_end(visible_lines(log_end(text)))}
            by = {"job_id": row.id, "attempt": row.attempt}
            query.upsert(connection, JOB_LOGS, by, values, earlier="")
        return row is not None

    def logs(self, number: int) -> Sequence[JobLog]:
        of_job = select(JOB_LOGS).where(JOB_LOGS.c.job_id == number).order_by(JOB_LOGS.c.attempt)
        return self._rows(of_job, _log_from_row)

    @writes
    def finish(self, connection: Connection, job: Job, state: State, message: str) -> bool:
        assert state in (State.DONE, State.FAILED, State.CANCELLED)
        row = _leased(connection, job)
        if row is None:
            return _is_repeated(connection, job, state=state, message=message)
        now = self._now(connection)
        _end(connection, row, state, message, now)
        note(connection, now, "job", f"{row.worker} ended job {row.id}: {state}")
        return True

    @reads
    def is_answered(self, connection: Connection, request: Request) -> bool:
        """Whether there is a record of what it asks for."""
        asked = rows.asked_identity(request).items()
        wanted = select(RECORDS.c.id).join(KEYS)
        wanted = wanted.where(*(KEYS.c[name] == value for name, value in asked))
        return connection.scalar(wanted.limit(1)) is not None

    @writes
    def give_back(self, connection: Connection, job: Job, message: str, *, counts: bool) -> bool:
        row = _leased(connection, job)
        if row is None:
            return _is_repeated(connection, job)
        now = self._now(connection)
        if counts:
            _end_attempt(connection, job, Ending.FAILED)
        if row.cancel_wanted:
            why = "cancelled while it ran; its trials are kept"
            _end(connection, row, State.CANCELLED, why, now)
        elif counts and row.attempt >= MOST_ATTEMPTS:
            _end(connection, row, State.FAILED, message, now)
        else:
            if not counts:
                _keep_log(connection, row)
            attempt = row.attempt if counts else row.attempt - 1
            again = {"state": State.QUEUED, "worker": "", "message": message}
            _change(connection, row, **again, attempt=attempt)
        return True

    @writes
    def cancel(self, connection: Connection, number: int) -> Job | None:
        wanted = select(JOBS).where(JOBS.c.id == number).with_for_update()
        row = connection.execute(wanted).first() if 0 < number <= query.MAX_ID else None
        if row is not None and row.state in (State.QUEUED, State.RUNNING):
            now = self._now(connection)
            if row.state == State.QUEUED:
                row = _end(connection, row, State.CANCELLED, "cancelled before it began", now)
            else:
                row = _change(connection, row, cancel_wanted=True)
            note(connection, now, "job", f"cancelled job {row.id}")
        return rows.job_from_row(row) if row else None

    def _now(self, connection: Connection) -> datetime:
        if query.is_postgresql(connection):
            now: datetime = connection.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
            return now
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
                asked = f"queued job {row.id}: {request.kernel} {request.problem} on {request.chip}"
                checked = request.candidate
                why = "" if checked is None else f", to check candidate {checked}"
                note(connection, now, "job", asked + why)
            return row, is_new


def _claimed(
    connection: Connection, whose: dict[str, str], able: Ability, lease: timedelta, now: datetime
) -> AnyRow | None:
    """The oldest job that this worker can run and that nobody has, for ``lease``. What others have
    is theirs until their own lease ends, however short this one is."""
    _bring_back(connection, now)
    silent = and_(
        JOBS.c.state == State.RUNNING,
        case(
            (JOBS.c.lapses_at >= JOBS.c.heard_at, JOBS.c.lapses_at < now),
            else_=JOBS.c.heard_at < now - _LEASE,  # an earlier version moved only this one
        ),
    )
    _expire(connection, silent, now)
    kinds = [JOBS.c.candidate.is_(None)]
    if able.checks:  # nobody waits for a check
        kinds.append(JOBS.c.candidate.is_not(None))
    waiting = (connection.execute(_next(able, silent, kind)).first() for kind in kinds)
    row = next(filter(None, waiting), None)
    if row is None:
        return None
    if query.read(connection, JOBS, row.id, rows.job_from_row) is None:
        _end(connection, row, State.FAILED, "it cannot be read: see autotune db check", now)
        return _claimed(connection, whose, able, lease, now)
    if row.state == State.RUNNING:
        _end_attempt(connection, rows.job_from_row(row), Ending.DIED)
    row = _change(
        connection,
        row,
        **whose,
        state=State.RUNNING,
        attempt=row.attempt + 1,
        started_at=now,
        heard_at=now,
        lapses_at=now + lease,
        progress=to_text(asdict(Progress())),
    )
    note(connection, now, "job", f"{row.worker} took job {row.id}")
    return row


def _bring_back(connection: Connection, now: datetime) -> None:
    """Leases that end later than any may: the clock was ahead when they were given."""
    ahead = JOBS.c.lapses_at > now + timedelta(seconds=MOST_LEASE_S)
    for row in connection.execute(select(JOBS).where(JOBS.c.state == State.RUNNING, ahead)).all():
        _change(connection, row, heard_at=now, lapses_at=now + (row.lapses_at - row.heard_at))


def _next(able: Ability, silent: ColumnElement[bool], kind: ColumnElement[bool]) -> Query:
    """No two get the same job: in PostgreSQL others look past a row that is locked, and in SQLite
    the transaction has the only lock for writing (``engine.writing``)."""
    versions = rows.toolchain_values(replace(able.toolchain, options=""))
    kernels = [(name, known) for name, version in able.kernels.items() for known in (version, "")]
    wanted = select(JOBS).where(
        kind,
        or_(JOBS.c.state == State.QUEUED, silent),
        tuple_(JOBS.c.kernel, JOBS.c.fingerprint).in_(kernels),
        *(JOBS.c[name].in_((version, "")) for name, version in versions.items()),
    )
    return wanted.order_by(JOBS.c.id).limit(1).with_for_update(skip_locked=True)


def _expire(connection: Connection, silent: ColumnElement[bool], now: datetime) -> None:
    """Jobs whose worker is silent and that nobody is to try again."""
    hopeless = or_(JOBS.c.attempt >= MOST_ATTEMPTS, JOBS.c.cancel_wanted)
    wanted = select(JOBS).where(silent, hopeless).with_for_update(skip_locked=True)
    for row in connection.execute(wanted).all():
        _end_attempt(connection, rows.job_from_row(row), Ending.DIED)
        state, why = State.FAILED, _deaths(connection, row)
        if row.cancel_wanted:
            state, why = State.CANCELLED, "cancelled; its worker was not heard of again"
        _end(connection, row, state, why, now)


def _leased(connection: Connection, job: Job) -> AnyRow | None:
    """The row while this worker, in this attempt, still has the job."""
    running = select(JOBS).where(JOBS.c.id == job.number, JOBS.c.state == State.RUNNING)
    mine = running.where(JOBS.c.worker == job.worker, JOBS.c.attempt == job.attempt)
    mine = mine.where(JOBS.c.claim.in_((job.claim, "")))
    return connection.execute(mine.with_for_update()).first()


def _is_repeated(connection: Connection, job: Job, **values: str) -> bool:
    """Whether this worker ended the job before, with these values; the answer may have been lost.
    If it is another one's by now, this one is late."""
    row = query.get(connection, JOBS, job.number)
    if row is not None and row.state != State.RUNNING and row.claim == job.claim != "":
        return all(row._mapping[name] == value for name, value in values.items())
    _end_attempt(connection, job, Ending.LATE)
    return False


def _end_attempt(connection: Connection, job: Job, ended: Ending) -> None:
    """Late is only who was taken for dead."""
    by = {"job_id": job.number, "attempt": job.attempt}
    if ended is not Ending.LATE:
        query.upsert(connection, JOB_LOGS, by, {"ended": ended}, text="", earlier="")
        return
    attempt = [JOB_LOGS.c[name] == value for name, value in by.items()]
    died = update(JOB_LOGS).where(*attempt, JOB_LOGS.c.ended == Ending.DIED)
    connection.execute(died.values(ended=ended))


def _deaths(connection: Connection, row: AnyRow) -> str:
    """Why the job has failed: how its attempts ended."""
    attempts = select(JOB_LOGS.c.ended).where(JOB_LOGS.c.job_id == row.id)
    count = Counter(connection.scalars(attempts))
    why = _GONE.format(n=count[Ending.DIED], worker=row.worker)
    late = count[Ending.LATE]
    return why + (_LATE.format(n=late) if late else "")


def _keep_log(connection: Connection, job: AnyRow) -> None:
    """The next worker writes to the log of the same attempt."""
    log = and_(JOB_LOGS.c.job_id == job.id, JOB_LOGS.c.attempt == job.attempt)
    row = connection.execute(select(JOB_LOGS).where(log)).first()
    if row is not None:
        connection.execute(update(JOB_LOGS).where(log).values(earlier=_whole(row), text=""))


def _log_from_row(row: AnyRow) -> JobLog:
    ended = Ending(row.ended) if row.ended else None
    return JobLog(attempt=row.attempt, text=_whole(row), ended=ended)


def _whole(log: AnyRow) -> str:
    return log_end(log.earlier + log.text)


def _end(connection: Connection, row: AnyRow, state: State, message: str, now: datetime) -> AnyRow:
    values = {"state": state, "message": message, "finished_at": now, "open_digest": None}
    return _change(connection, row, **values)


def _change(connection: Connection, row: AnyRow, **values: Any) -> AnyRow:
    """The row as it is then."""
    statement = update(JOBS).where(JOBS.c.id == row.id).values(values)
    return connection.execute(statement.returning(JOBS)).one()
