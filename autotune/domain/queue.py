"""The queue of tuning requests, as workers see it."""

from typing import Protocol

from autotune.domain.job import Ability, Job, Progress, State


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
