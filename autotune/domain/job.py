"""Tuning requests: what is to be searched, who searches it, how far it is; and their queue."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from autotune.domain.codec import Local, OmitDefault, OmitNone
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.limits import Count, Micros, Text
from autotune.domain.problem import Problem


class State(StrEnum):
    """The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Ending(StrEnum):
    """Of an attempt that another one followed. *Late*: its worker was heard again when another one
    had the job already."""

    DIED = "died"
    LATE = "late"
    FAILED = "failed"


LEASE_S = 60.0
"""A worker that has not been heard of for so long has died: its job is given to another."""

LEAST_LEASE_S, MOST_LEASE_S = 1.0, 3600.0
"""What a worker may ask for in the place of that."""

MOST_ATTEMPTS = 3
"""How many workers may die of one job before it has failed."""

MOST_LOG = 1 << 16
"""Characters of a log that are kept of each attempt."""

DEFAULT_TRIALS = 40
MOST_TRIALS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be searched. ``fingerprint`` and ``toolchain``: None for whatever the worker has;
    else only a worker that has exactly these takes it. ``trials``: as ``autotune search`` has it.
    ``candidate``: the number of a pushed record that is to be checked in the place of a search.
    """

    kernel: str
    fingerprint: str | None = None
    problem: Problem
    chip: Chip
    toolchain: Toolchain | None = None
    trials: int = DEFAULT_TRIALS
    candidate: OmitNone[int | None] = None


def request_of(key: Key, trials: int, candidate: int | None = None) -> Request:
    """For exactly this key."""
    values = {field.name: getattr(key, field.name) for field in fields(key)}
    return Request(**values, trials=trials, candidate=candidate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of a running search. ``note`` says in words what it does; times in microseconds. ``asked``:
    what was searched, as the command line says it, where it was begun by hand; ``exhausted``: it
    has tried all that there is; ``predicted``: all that may be faster, by other problems;
    ``source``: what the kernel's source was then, with its default and its choices; ``choices``:
    the digest of these alone; ``before``: how many trials there were when they were others."""

    done: Count = 0
    goal: Count = 0
    best_us: Micros | None = None
    default_us: Micros | None = None
    note: Text = ""
    asked: Local[OmitDefault[str]] = ""
    exhausted: Local[OmitDefault[bool]] = False
    predicted: Local[OmitDefault[bool]] = False
    source: Local[OmitDefault[str]] = ""
    choices: Local[OmitDefault[str]] = ""
    before: Local[OmitDefault[Count]] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``attempt`` counts the workers that have claimed it; ``heard_at``: the last sign of life of
    the one that has it. ``message``: what came of it, or why it failed. ``claim``: what only that
    worker knows, or the digest of it; empty where a worker of an earlier version took it."""

    number: int
    request: Request
    state: State
    created_at: datetime
    created_by: str
    attempt: int = 0
    worker: str = ""
    cancel_wanted: bool = False
    started_at: datetime | None = None
    heard_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress = field(default_factory=Progress)
    message: str = ""
    claim: Local[OmitDefault[str]] = field(default="", compare=False, repr=False)

    @property
    def goal(self) -> int:
        """How many trials it comes to: as many as were asked for, until its search says."""
        return self.progress.goal or self.request.trials


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLog:
    """What workers have said of a job in one attempt, which several have one after another where
    where they were stopped: its end, where they said very much. ``ended``: None where it is the
    last one."""

    attempt: int
    text: str
    ended: OmitNone[Ending | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What a worker can run: the fingerprint of each kernel that it has, and its toolchain.
    ``checks``: it may check what others have pushed, because it has the database itself."""

    kernels: Mapping[str, str]
    toolchain: Toolchain
    checks: bool = False


def log_end(text: str) -> str:
    """As much of a log as is kept."""
    return text if len(text) <= MOST_LOG else "…" + text[1 - MOST_LOG :]


class Queue(Protocol):
    """Tuning requests as workers see them. ``StoreError`` where the database or the service that
    they come from cannot be used for now."""

    def claim(self, worker: str, able: Ability, lease_s: float) -> Job | None:
        """The oldest job that this worker can run and that nobody has, or whose worker was silent
        for longer than its own lease. It is this worker's until it is silent for ``lease_s``, and
        only who has this job, with its ``claim``, may report of it. A report may be repeated.
        ``worker`` names one process. None: there is nothing to do."""

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        """A sign of life. False: stop, it was cancelled or is another worker's now."""

    def write_log(self, job: Job, text: str) -> bool:
        """What its worker has said of a claimed job, in the place of what it had said before.
        What others have said of the same attempt stays. False: it is another worker's now."""

    def finish(self, job: Job, state: State, message: str) -> bool:
        """End a claimed job: done, failed or cancelled. False: it is another worker's now."""

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        """Leave a claimed job to others, or end it where it was cancelled. ``counts``: as one of
        the attempts after which it has failed. False: it is another worker's now."""
