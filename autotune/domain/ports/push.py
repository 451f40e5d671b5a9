"""What is sent from one database to another."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from autotune.domain.check import Check
from autotune.domain.chip import Chip
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_candidate import CandidateDecision, CandidateState, RecordCandidate
from autotune.domain.refusals import Refusals
from autotune.domain.result import KeyResult, Pushed
from autotune.domain.trial import Trial


class ResultStore(Protocol):
    """All that a search has found for a key."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def refusals(self, key: Key) -> Refusals | None:
        """Where the rules leave nothing of its space; None where nothing was kept."""


class PushSource(ResultStore, Protocol):
    """What ``autotune push`` sends."""

    def kernels(self) -> Sequence[KernelSpec]:
        """All descriptions, by name, the one saved last first."""

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        """Those of the newest snapshot, newest first."""

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        """The newest first."""


class JobResultStore(ResultStore, Protocol):
    """What a worker without the queue's database sends for a job that is done."""

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        """The description with that fingerprint, or the one saved last."""

    def record(self, key: Key) -> Record | None:
        """The record of exactly this key in the newest snapshot."""


class CandidateTarget(Protocol):
    """Where a service keeps what is pushed to it until it was checked."""

    def hold(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        """Keep the records, but no trials, which nobody could check, and queue a job for each. What
        ``push`` would leave out is left out; the same again changes nothing, but queues its job
        again where that ended without a decision."""

    def candidates(
        self, state: CandidateState | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[RecordCandidate]:
        """The newest first; ``before``: those with smaller numbers."""


class CandidateStore(Protocol):
    """What a worker needs to check what was pushed."""

    def candidate(self, number: int) -> RecordCandidate | None:
        """One by its number."""

    def decide(self, number: int, decision: CandidateDecision) -> None:
        """Keep what was found out; a decision that was made already stays."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        """As ``PushTarget`` has it."""


class PushTarget(Protocol):
    """Where a service keeps what is pushed to it."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        """Publish what another machine has found, all or nothing, in at most one new snapshot.

        A record that is older than the published one of its key, or slower by the same kind of
        evidence, is left out. What is there already changes nothing: it may be pushed again.
        Refusals are kept where there are none yet.
        """

    def push_checks(self, checks: Sequence[Check], by: str) -> Sequence[Check]:
        """Keep what another machine has found of records under other toolchains; those that are in
        force then: a newer one of the same record, toolchain and chip stays."""
