"""What is wrong around a process of the service, a sentence each: for ``/readyz`` and the pages."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

_SKEW = timedelta(minutes=5)
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # a suspended machine counts


def booted_at() -> datetime:
    """By the clock of this machine, of which nobody knows whether it is right: another time than
    before says that it was set."""
    return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(_SINCE_BOOT))


def troubles(state: Any) -> Iterator[str]:
    """``state``: of the process. Nothing where all is well. No host and no file is named: anybody
    may ask."""
    if not state.database.is_up:
        yield "The database cannot be read: lookups are answered from memory."
    if not state.database.takes_writes:
        yield "The last write to the database failed: the log of the service says why."
    if not state.database.is_whole:
        yield "The database has lost tables: `autotune db check` names them. Put back a copy."
    _, at = state.snapshots.went_back
    if at is not None:
        lost = f"The database lost snapshots, seen {at:%Y-%m-%d %H:%M} UTC: it was restored, or"
        yield f"{lost} a replica that lags took over. Push them again."
    now, made_at = datetime.now(UTC), state.snapshots.current.made_at
    if abs(booted_at() - state.booted_at) > _SKEW:
        yield f"The clock of this machine was set while the service ran: now it says {now:%F} UTC."
    if made_at and made_at - now > _SKEW:
        yield (
            f"The newest snapshot is of {made_at:%F}, and the clock of this machine says {now:%F}: "
            "set it, or that of who published."
        )
