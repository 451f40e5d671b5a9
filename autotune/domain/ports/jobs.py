"""The queue of tuning requests: as workers see it, and as those who ask do."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from autotune.domain.job import Ability, Job, JobLog, Progress, Request, State


class Queue(Protocol):
    """Tuning requests as workers see them. ``StoreError`` where the database or the service that
    they come from cannot be used for now."""

    def claim(self, worker: str, able: Ability, lease_s: float) -> Job | None:
        """The oldest job that this worker can run and that nobody has, or whose worker was not
        heard of for ``lease_s``; it is this worker's until it is as silent. ``worker`` names one
        process. None: there is nothing to do."""

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


class Jobs(Queue, Protocol):
    """Tuning requests. Every method commits before it returns; ``StoreError`` as above."""

    def add(self, request: Request, by: str = "") -> tuple[Job, bool]:
        """Queue a request; False beside the job that is open for the same one already."""

    def get(self, number: int) -> Job | None:
        """One by its number."""

    def logs(self, number: int) -> Sequence[JobLog]:
        """What its workers have said, by attempt."""

    def list(
        self, state: State | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[Job]:
        """The newest first; ``before``: those with smaller numbers."""

    def counts(self) -> Mapping[str, int]:
        """How many jobs there are by state."""

    def cancel(self, number: int) -> Job | None:
        """At once where it is queued; where it runs, its worker is told at its next heartbeat."""
