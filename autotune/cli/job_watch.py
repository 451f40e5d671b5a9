"""The search of a job, as its log, its progress and its message tell of it."""

from collections.abc import Sequence

from autotune.domain.job import Progress
from autotune.domain.key import Chip
from autotune.domain.record import Trial
from autotune.domain.visible import visible_lines
from autotune.estimating.space import Space
from autotune.measuring.attached import attached_chips
from autotune.publishing.jobs.worker import JobObserver, Lease
from autotune.publishing.publish import Publication
from autotune.publishing.task import TuningResult
from autotune.wording.bars import Lines
from autotune.wording.publication import publication_reason, why_estimated


class JobWatch(JobObserver, Lines):
    """Lines go to the log of the job, figures to its progress."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.say)
        self.lease = lease

    def is_stopped(self) -> bool:
        return self.lease.is_stopped()

    def may_publish(self) -> bool:
        return not self.is_stopped() and self.lease.holds()

    def tracing(self, done: int, total: int) -> None:
        self._report(note=f"tracing {done} of {total}")

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        super().space_ready(space, earlier, goal)
        self._report(note=f"compiling, {len(space.candidates)} candidates")

    def trial_done(self, trial: Trial) -> None:
        super().trial_done(trial)
        self._report()

    def announce(self, line: str) -> None:
        super().announce(line)
        self._report(note=line)

    def tuned(self, tuned: TuningResult) -> None:
        if tuned.search is None:  # searched before: nothing was said of it yet
            self.done = self.goal = len(tuned.trials)
            self.tally.reuse(tuned.trials)
            self._report()
            self.lease.holds()

    def message(self, published: Publication, untimed: Chip | None) -> str:
        if untimed is None:
            return publication_reason(published)
        return f"{publication_reason(published)}. {why_estimated(untimed, attached_chips())}"

    def _report(self, note: str | None = None) -> None:
        self.lease.progress = Progress(
            done=self.done,
            goal=self.goal,
            best_us=self.tally.best_us,
            default_us=self.tally.default_us,
            note=self.lease.progress.note if note is None else visible_lines(note),
        )
