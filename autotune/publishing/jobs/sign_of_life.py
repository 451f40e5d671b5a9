"""A file that tells others on this machine that a worker lives: its time is that of the last call
that its queue answered. A container's health check looks at it."""

from dataclasses import dataclass
from pathlib import Path

from autotune.domain.job import Ability, Job, Progress, State
from autotune.domain.queue import Queue


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The queue, with the file touched after each answer. Implements ``Queue``."""

    queue: Queue
    file: Path

    def claim(self, worker: str, able: Ability, lease_s: float) -> Job | None:
        job = self.queue.claim(worker, able, lease_s)
        self.file.touch()
        return job

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        goes_on = self.queue.heartbeat(job, progress)
        self.file.touch()
        return goes_on

    def write_log(self, job: Job, text: str) -> bool:
        return self.queue.write_log(job, text)

    def finish(self, job: Job, state: State, message: str) -> bool:
        return self.queue.finish(job, state, message)

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        return self.queue.give_back(job, message, counts=counts)
