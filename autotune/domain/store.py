"""What the engine asks of a database. Its one implementation is ``autotune_db``, which the engine
does not import; tests stand fakes in its place. Also
what is pushed: results, and the records that workers have to check."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol

from autotune.domain.browsing import SearchedKey
from autotune.domain.calibration import MeasuredProgram
from autotune.domain.codec import Flat, OmitDefault, OmitNone
from autotune.domain.evidence import Verdict
from autotune.domain.job import MOST_TRIALS, Progress
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.known_config import KnownConfig
from autotune.domain.limits import Limit, Word
from autotune.domain.outcome import Outcome
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Change, Check, Record, RecordCheck, Snapshot, Trial


class CandidateState(StrEnum):
    """The last two are final."""

    UNVERIFIED = "unverified"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDecision:
    """What was found out about one. ``finding``: one sentence, also of one that is unverified still
    because it could not be checked."""

    state: CandidateState
    finding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCandidate:
    """``record`` is as it was pushed: all claims of its ``pushed_by``."""

    number: int
    record: Record
    decision: Flat[CandidateDecision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecked:
    """The decision on a record, the ``check`` of its config and the ``verdict`` of the gate that it
    rests on; where it is accepted, the ``record`` as it is to be published and the ``trials`` that
    say so."""

    decision: CandidateDecision
    check: Check
    verdict: Verdict | None = None
    record: Record | None = None
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResult:
    """All that a tuning machine knows of a key: its record and its trials. ``refusals``: what older
    clients send of its space; nothing of it is kept."""

    record: Record
    trials: Annotated[tuple[Trial, ...], Limit(longest=MOST_TRIALS)] = ()
    refusals: OmitNone[dict[Word, object] | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of a push: how many records and trials were new, how many records lost against
    the published one of their key, and the snapshot in force after it. ``checks``: how many of
    those that were sent are in force, None where none were. ``candidates``: how many
    wait until a worker of the service has checked them. ``trusted``: they answer everybody before
    that."""

    records: int
    trials: int
    lost: int
    snapshot: int
    checks: OmitNone[int | None] = None
    candidates: OmitDefault[int] = 0
    trusted: OmitDefault[bool] = False


class TrialStore(Protocol):
    """The trials of keys. A check of what others pushed has one in memory."""

    def trials(self, key: Key, *, pushed: bool = False) -> Sequence[Trial]:
        """All trials of a key that were made here, by number; with ``pushed`` also those that
        others say they have made."""

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        """Keep finished trials, all or none where it is cut short: those before the first of which
        the (key, config) or (key, number) was made here already. How many those are."""

    def replace_outcome(self, key: Key, config: Config, outcome: Outcome) -> None:
        """Put another outcome in the place of a trial's: a newer model's estimate, or *wrong
        result*."""


class Searches(Protocol):
    """How far searches are, for those who watch from elsewhere."""

    def report(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        """In the place of what was reported of the key. ``space``: its space, in words."""

    def progress(self, key: Key) -> Progress:
        """What was reported last."""


class Store(TrialStore, Protocol):
    """A whole database: records, snapshots, checks, misses and what is pushed. A method commits
    before it returns, and raises ``StoreError`` when the database cannot be used."""

    @property
    def searches(self) -> Searches:
        """How far searches are."""

    def save_kernel(self, spec: KernelSpec) -> None:
        """Keep the description of a kernel that is here, in the place of one that was pushed for
        the same (name, fingerprint)."""

    def place_default(self, key: Key, default: Config) -> None:
        """Number 0 among the trials of a key is from now on that of this config, where it was
        tried, and free where it was not."""

    def records(
        self, kernel: str | None = None, chip: Chip | None = None, *, claimed: bool = False
    ) -> Sequence[Record]:
        """Those of the newest snapshot that are proven, newest first; with ``claimed`` also those
        of keys of which nothing is."""

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        """Those of other keys of the kernel that were compiled here and have a time: first those
        of the chip and the toolchain of the key, then the newest."""

    def save_record(self, record: Record) -> None:
        """Publish, which makes a new snapshot; an earlier record of the same key stays in the
        history and in the snapshots that had it."""

    def record(self, key: Key, *, claimed: bool = False) -> Record | None:
        """The record of exactly this key among these."""

    def save_misses(
        self, counts: Mapping[tuple[Key, str], int], *, known_only: bool = False
    ) -> None:
        """Count, all or none, how often a key was asked for and got this other answer instead.

        What nobody asks for any more, and what was asked for the least beyond a bound, is
        forgotten. ``known_only``: only keys of kernels that are described here.
        """

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        """The description with that fingerprint, or the one saved last."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        """The newest first, none before anything is published; with ``before`` those with smaller
        numbers."""

    def snapshot_change(self, number: int, since: int, *, claimed: bool = False) -> Change | None:
        """What makes the snapshot of the other one, as ``records`` has them; all of it where there
        is no other one, as 0 is none. For a number always the same. None for a number that there is
        not."""

    def save_check(self, check: Check) -> None:
        """Keep a verdict, in the place of an earlier one on the same."""

    def publish_checks(
        self, findings: Sequence[tuple[Key, Config, RecordCheck]], by: str = ""
    ) -> None:
        """Note on each published record what is known of its config, all in one new snapshot; none
        where that was known, or another config is published by now. A pin stays. ``by``:
        the name of the token that brought it."""

    def check(self, key: Key, target: Key) -> Check | None:
        """The verdict on the record of ``key`` under the toolchain and chip of ``target``."""

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        """The newest first."""

    def calibration(self, chip: Chip, toolchain: Toolchain) -> Sequence[MeasuredProgram]:
        """Programs that were estimated and timed on a chip with a toolchain."""

    def save_calibration(self, rows: Sequence[MeasuredProgram]) -> None:
        """Keep rows of one chip and toolchain, each in the place of an earlier one of its key and
        config. Those of a file take the place of all from files, never of times of this machine."""

    def known_configs(self, kernel: str | None = None) -> Sequence[KnownConfig]:
        """In the order in which they came."""

    def history(
        self,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        problem: Problem | None = None,
    ) -> Sequence[SearchedKey]:
        """The keys whose trials came in last, those with the latest trial first."""

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        """One trial by its number in the whole database."""

    def trial_ids(self, key: Key) -> Mapping[int, int]:
        """The numbers of its trials in the whole database, by their own."""

    def candidate(self, number: int) -> RecordCandidate | None:
        """One by its number."""

    def decide(self, number: int, decision: CandidateDecision) -> None:
        """Keep what was found out; a decision that was made already stays. What is refused is in no
        later snapshot."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        """Publish what another machine has found, all or nothing, in at most one new snapshot.

        A record that is older than the published one of its key, or slower by the same kind of
        evidence, is left out. What is there already changes nothing: it may be pushed again.
        What a token says of other toolchains is noted on claimed records only.
        """


def tell_of(store: Store, checks: Sequence[Check], by: str = "") -> None:
    """The published records say what is known of them: what is broken is not handed out. All in
    one new snapshot; a check on another chip says nothing of what a record is used for. ``by``: the
    name of the token that brought them."""
    notes = [
        (check.key, check.config, as_record_check(check))
        for check in checks
        if check.chip is check.key.chip and check.cause is None and not check.against
    ]
    if notes:
        store.publish_checks(notes, by)


def as_record_check(check: Check) -> RecordCheck:
    """What travels with the record."""
    return RecordCheck(
        toolchain=check.toolchain,
        verdict=check.verdict,
        checked_at=check.checked_at,
        time_us=check.after_us,
        outcome=None if check.verdict.compiles else check.winner,
        needed_bytes=check.needed_bytes,
        allowed_bytes=check.allowed_bytes,
        detail=check.detail,
    )
