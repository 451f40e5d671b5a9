"""The queue of tuning requests: exactly one worker has a job, also when workers die."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from autotune.domain.codec import to_data
from autotune.domain.job import (
    LEASE_S,
    MOST_ATTEMPTS,
    Ability,
    Job,
    Progress,
    Request,
    State,
)
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.audit import note
from autotune_db.json_columns import digest, to_text
from autotune_db.tables import JobRow

_GONE = "its workers died: {n} of them, the last was {worker}"


class SqlJobs(Adapter):
    """Implements ``autotune.ports.Jobs``. Leases go by the clock of the database where it has one,
    so that the clocks of workers do not decide."""

    def add(self, request: Request, by: str = "") -> tuple[Job, bool]:
        def write(session: Session, _: bool) -> tuple[Job, bool]:
            row, is_new = queue(session, request, by, self._now(session))
            return rows.job_from_row(row), is_new

        return self._work.write(write)

    def get(self, number: int) -> Job | None:
        def find(session: Session) -> Job | None:
            row = session.get(JobRow, number)
            return rows.job_from_row(row) if row else None

        return self._work.read(find) if 0 < number <= query.MAX_ID else None

    def list(
        self, state: State | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[Job]:
        statement = query.page(select(JobRow), JobRow.id, before, limit)
        if state is not None:
            statement = statement.where(JobRow.state == state)
        return self._work.read(lambda s: [rows.job_from_row(row) for row in s.scalars(statement)])

    def counts(self) -> dict[str, int]:
        statement = select(JobRow.state, func.count()).group_by(JobRow.state)
        return self._work.read(lambda s: {state: n for state, n in s.execute(statement)})  # noqa: C416

    def claim(self, worker: str, able: Ability, lease_s: float = LEASE_S) -> Job | None:
        def write(session: Session, again: bool) -> Job | None:
            now = self._now(session)
            silent = and_(
                JobRow.state == State.RUNNING, JobRow.heard_at < now - timedelta(seconds=lease_s)
            )
            mine = select(JobRow).where(JobRow.state == State.RUNNING, JobRow.worker == worker)
            row = session.scalar(mine) if again else None  # the first attempt may have claimed it
            if row is None:
                _expire(session, silent, now)
                row = session.scalar(_next(able, silent))
                if row is None:
                    return None
                row.state, row.worker, row.attempt = State.RUNNING, worker, row.attempt + 1
                row.started_at = row.heard_at = now
                row.progress = to_text(asdict(Progress()))
                note(session, now, "job", f"{worker} took job {row.id}")
            return rows.job_from_row(row)

        return self._work.write(write)

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        def write(session: Session, _: bool) -> bool:
            row = _leased(session, job)
            if row is None:
                return False
            row.heard_at, row.progress = self._now(session), to_text(asdict(progress))
            return not row.cancel_wanted

        return self._work.write(write)

    def finish(self, job: Job, state: State, message: str) -> bool:
        assert state in (State.DONE, State.FAILED, State.CANCELLED)

        def write(session: Session, again: bool) -> bool:
            row = _leased(session, job)
            if row is None:
                row = session.get(JobRow, job.number)
                return again and row is not None and (row.state, row.message) == (state, message)
            now = self._now(session)
            _end(row, state, message, now)
            note(session, now, "job", f"{row.worker} ended job {row.id}: {state}")
            return True

        return self._work.write(write)

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        def write(session: Session, _: bool) -> bool:
            row = _leased(session, job)
            if row is None:
                return False
            if row.cancel_wanted:
                why = "cancelled while it ran; its trials are kept"
                _end(row, State.CANCELLED, why, self._now(session))
            elif counts and row.attempt >= MOST_ATTEMPTS:
                _end(row, State.FAILED, message, self._now(session))
            else:
                row.state, row.worker, row.message = State.QUEUED, "", message
                row.attempt -= 0 if counts else 1
            return True

        return self._work.write(write)

    def cancel(self, number: int) -> Job | None:
        def write(session: Session, _: bool) -> Job | None:
            row = session.get(JobRow, number, with_for_update=True)
            if row is None:
                return None
            if row.state == State.QUEUED:
                _end(row, State.CANCELLED, "cancelled before it began", self._now(session))
            elif row.state == State.RUNNING:
                row.cancel_wanted = True
            else:
                return rows.job_from_row(row)
            note(session, self._now(session), "job", f"cancelled job {row.id}")
            return rows.job_from_row(row)

        return self._work.write(write) if 0 < number <= query.MAX_ID else None

    def _now(self, session: Session) -> datetime:
        if query.is_postgresql(session):
            found: datetime = session.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
            return found
        return self._clock()


def queue(session: Session, request: Request, by: str, now: datetime) -> tuple[JobRow, bool]:
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
    same = select(JobRow).where(JobRow.open_digest == values["open_digest"])
    while True:  # the job that is in the way may end before it is read
        is_new = query.insert(session, JobRow, values)
        row = session.scalar(same)
        if row is not None:
            if is_new:
                what = (
                    "" if request.candidate is None else f", to check candidate {request.candidate}"
                )
                asked = f"queued job {row.id}: {request.kernel} {request.problem}"
                note(session, now, "job", f"{asked} on {request.chip}{what}")
            return row, is_new


def _next(able: Ability, silent: ColumnElement[bool]) -> Select[JobRow]:
    """The oldest that this worker can run and that nobody has; others look past it meanwhile."""
    kernels = [(name, version) for name, own in able.kernels.items() for version in (own, "")]
    versions = able.toolchain
    wanted = select(JobRow).where(
        or_(JobRow.state == State.QUEUED, silent),
        tuple_(JobRow.kernel, JobRow.fingerprint).in_(kernels),
        JobRow.jax.in_((versions.jax, "")),
        JobRow.jaxlib.in_((versions.jaxlib, "")),
        JobRow.libtpu.in_((versions.libtpu, "")),
    )
    if not able.checks:
        wanted = wanted.where(JobRow.candidate.is_(None))
    return wanted.order_by(JobRow.id).limit(1).with_for_update(skip_locked=True)


def _expire(session: Session, silent: ColumnElement[bool], now: datetime) -> None:
    """Jobs whose worker is silent and that nobody is to try again."""
    hopeless = or_(JobRow.attempt >= MOST_ATTEMPTS, JobRow.cancel_wanted)
    statement = select(JobRow).where(silent, hopeless).with_for_update(skip_locked=True)
    for row in session.scalars(statement):
        if row.cancel_wanted:
            _end(row, State.CANCELLED, "cancelled; its worker was not heard of again", now)
        else:
            _end(row, State.FAILED, _GONE.format(n=row.attempt, worker=row.worker), now)


def _leased(session: Session, job: Job) -> JobRow | None:
    """The row while this worker, in this attempt, still has the job."""
    mine: tuple[Any, ...] = (
        JobRow.id == job.number,
        JobRow.state == State.RUNNING,
        JobRow.worker == job.worker,
        JobRow.attempt == job.attempt,
    )
    return session.scalar(select(JobRow).where(*mine).with_for_update())


def _end(row: JobRow, state: State, message: str, now: datetime) -> None:
    row.state, row.message, row.finished_at, row.open_digest = state, message, now, None
