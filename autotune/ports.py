"""What the engine asks of the world. Adapters live elsewhere and are passed in by the CLI."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from autotune.domain.browsing import (
    Numbered,
    Only,
    Place,
    SameConfig,
    Searched,
    Step,
    Told,
    Wanted,
)
from autotune.domain.chip import Chip
from autotune.domain.config import Config
from autotune.domain.job import Ability, Job, Progress, Request, State
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.refusals import Refusals
from autotune.domain.token import Token
from autotune.domain.trial import (
    Change,
    KeyResult,
    KeySummary,
    Miss,
    Pushed,
    Record,
    Snapshot,
    Trial,
)


class Store(Protocol):
    """Where trials and records are kept. Every method commits before it returns.

    Raises ``StoreError`` when the database cannot be used.
    """

    def save_kernel(self, spec: KernelSpec) -> None:
        """Keep the description of a kernel; the same (name, fingerprint) again changes nothing."""

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        """The description with that fingerprint, or the one saved last."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""

    def save_refusals(self, key: Key, refusals: Refusals) -> None:
        """Keep where the rules leave nothing of the space of a key, in the place of what was kept
        before."""

    def refusals(self, key: Key) -> Refusals | None:
        """What was kept last; None where nothing was."""

    def save_trial(self, key: Key, trial: Trial) -> bool:
        """Keep a finished trial. False: this (key, config) or (key, number) is there already."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        """Put another outcome in the place of a trial's: a newer model's estimate, or *wrong
        result*."""

    def history(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[KeySummary]:
        """The keys whose trials came in last, those with the latest trial first."""

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        """One trial by its number in the whole database."""

    def trial_id(self, key: Key, number: int) -> int | None:
        """The database-wide number of a trial."""

    def save_record(self, record: Record) -> None:
        """Publish, which makes a new snapshot; an earlier record of the same key stays in the
        history and in the snapshots that had it."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        """Publish what another machine has found, all or nothing, in at most one new snapshot.

        A record that is older than the published one of its key, or slower by the same kind of
        evidence, is left out. What is there already changes nothing: it may be pushed again.
        Refusals are kept where there are none yet.
        """

    def record(self, key: Key) -> Record | None:
        """The record of exactly this key in the newest snapshot."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        """Those of the newest snapshot, newest first."""

    def published(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[tuple[int, Record]]:
        """All that was ever published, each with its number, newest first."""

    def latest_snapshot(self) -> int:
        """The number of the newest snapshot; 0, which is empty, before anything is published."""

    def snapshots(self, limit: int = 50) -> Sequence[Snapshot]:
        """The newest first."""

    def snapshot_records(self, number: int) -> Sequence[Record] | None:
        """The records of a snapshot, one for each key, newest first: for a number always the same
        ones. None for a number that there is not."""

    def snapshot_change(self, number: int, since: int) -> Change | None:
        """What makes the snapshot of the other one; all of it where there is no other one."""

    def roll_back(self, number: int, by: str = "") -> int | None:
        """Make a new snapshot with the records of an older one, pins included; its number. What is
        published later goes on from there. None: there is no such snapshot."""

    def pin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record keeps it, whatever is published.
        None: there is no such record."""

    def unpin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record has its newest one again."""

    def prune(self, before: datetime) -> int:
        """Forget the snapshots made before a time, but the newest and what it rests on; how many.
        Records stay."""

    def save_misses(self, counts: Mapping[tuple[Key, str], int]) -> None:
        """Count, all or none, how often a key was asked for and got this other answer instead."""

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        """Keys that were asked for and still have no record, the most wanted first."""

    def miss(self, number: int) -> Miss | None:
        """One by its number."""


class Queue(Protocol):
    """Tuning requests as workers see them. ``StoreError`` where the database or the service that
    they come from cannot be used for now."""

    def claim(self, worker: str, able: Ability, lease_s: float) -> Job | None:
        """The oldest job that this worker can run and that nobody has, or whose worker was not
        heard of for ``lease_s``; it is this worker's until it is as silent. ``worker`` names one
        process. None: there is nothing to do."""

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        """A sign of life. False: stop, it was cancelled or is another worker's now."""

    def finish(self, job: Job, state: State, message: str) -> bool:
        """End a claimed job: done, failed or cancelled. False: it is another worker's now."""

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        """Leave a claimed job to others, or end it where it was cancelled. ``counts``: as one of
        the attempts after which it has failed. False: it is another worker's now."""


class Jobs(Queue, Protocol):
    """Tuning requests. Every method commits before it returns; ``StoreError`` as above."""

    def add(self, request: Request, by: str = "") -> tuple[Job, bool]:
        """Queue a request; False beside the job that is open for the same one already."""

    def get(self, number: int) -> Job | None:
        """One by its number."""

    def list(self, state: State | None = None, limit: int = 50) -> Sequence[Job]:
        """The newest first."""

    def counts(self) -> Mapping[str, int]:
        """How many jobs there are by state."""

    def cancel(self, number: int) -> Job | None:
        """At once where it is queued; where it runs, its worker is told at its next heartbeat."""


class Searches(Protocol):
    """How far searches are, for those who watch. ``StoreError`` as above."""

    def tell(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        """The last word counts."""

    def told(self, key_id: int) -> Told | None:
        """What was said last of a key, by its number."""


class Tokens(Protocol):
    """Who may write. Only digests of the secrets are kept."""

    def create(self, name: str, role: str, expires_at: datetime | None) -> tuple[Token, str]:
        """A new one, and its secret, which cannot be had again."""

    def list(self) -> Sequence[Token]:
        """All, revoked and expired ones too."""

    def revoke(self, number: int) -> Token | None:
        """It is valid no more. None: there is no such token."""

    def find(self, secret: str) -> Token | None:
        """The valid token with this secret."""

    def valid(self) -> Mapping[str, Token]:
        """All valid ones by the SHA-256 of their secrets, in hexadecimal digits."""


class Browse(Protocol):
    """What people look at: never more rows than are asked for. ``StoreError`` as above."""

    def places(self, kernel: str | None = None) -> Sequence[Place]:
        """Where something was searched: of all kernels, or of one."""

    def latest(self, limit: int) -> Sequence[Searched]:
        """The keys whose trials came in last, those with the latest trial first."""

    def problems(self, kernel: str, only: Only, offset: int, limit: int) -> Sequence[Searched]:
        """The keys of a kernel that have trials, the newest key first."""

    def count_problems(self, kernel: str, only: Only) -> int:
        """How many there are of these."""

    def searched(self, key_id: int) -> Searched | None:
        """One key by its number."""

    def key_id(self, key: Key) -> int | None:
        """The number of a key."""

    def key_of(self, trial_id: int) -> int | None:
        """The number of the key of a trial."""

    def refusals(self, key_id: int) -> Refusals | None:
        """Where the rules leave nothing of the space of a key, as its last search found."""

    def trials(
        self, key_id: int, kind: str | None, *, fastest: bool, offset: int, limit: int
    ) -> Sequence[Numbered]:
        """Trials of a key, all or of one kind, by number; or those with a time, ``fastest``
        first, whatever the kind."""

    def fastest_and_others(self, key_id: int, fastest: int, others: int) -> Sequence[Numbered]:
        """At most so many of the fastest trials and of those without a time, by number."""

    def with_config(self, key_id: int, config: Config) -> Numbered | None:
        """The trial of a config."""

    def by_number(self, key_id: int, number: int) -> Numbered | None:
        """The trial with this number within its key."""

    def newest(self, key_id: int) -> int:
        """The number, in the whole database, of the newest trial of a key; 0: there is none."""

    def best_so_far(self, key_id: int) -> Sequence[Step]:
        """The trials of a key that were faster than all before them."""

    def trial(self, trial_id: int) -> Numbered | None:
        """One by its number in the whole database."""

    def other_toolchains(self, key: Key) -> Sequence[Searched]:
        """The same kernel, problem and chip with any source and toolchain that has trials."""

    def same_configs(self, key_ids: Sequence[int], fastest: int) -> Sequence[SameConfig]:
        """For each of some keys the fastest configs and those that failed, and what became of
        the same configs for the others."""

    def wanted(self, offset: int, limit: int) -> Sequence[Wanted]:
        """Keys that were asked for and have no record, the most wanted first."""

    def open_jobs(self, limit: int) -> Sequence[Job]:
        """Those that wait or run, the newest first."""
