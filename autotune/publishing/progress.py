"""How far a search is: what is counted of it, and told to those who watch it from elsewhere.

A search that has ended before is known by what is in the database.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from autotune.compiling.environments.environment import environments, environments_folder
from autotune.declaring.fingerprint import ReadOnce
from autotune.domain.arguments import ProblemWords, asked
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.job import Progress
from autotune.domain.key import Choices, KernelSpec, Key, Toolchain, installed_toolchain
from autotune.domain.record import Record, Trial, default_trial, gate_state
from autotune.domain.store import Searches, Store
from autotune.estimating.simulator import MODEL
from autotune.estimating.space import Space
from autotune.publishing.estimated_ties import contenders
from autotune.publishing.publish import Publication, finalists
from autotune.publishing.task import Plan, TuningResult, TuningTask
from autotune.searching.subject import SearchObserver

_EVERY_S = 1.0


class Tally:
    """Counts by outcome, the best time beside the default's, and the slowest trial of this run."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.best_us: float | None = None
        self.default_us: float | None = None
        self.slowest_s = 0.0

    def reuse(self, earlier: Sequence[Trial]) -> None:
        """Trials of earlier runs count like those of this one, and in the place of all before."""
        self.kinds.clear()
        for trial in earlier:
            self.add(trial)
        self.slowest_s = 0.0

    def add(self, trial: Trial) -> None:
        self.kinds[trial.outcome.kind] += 1
        self.slowest_s = max(self.slowest_s, trial.seconds)
        if trial.estimate is None:
            return
        if trial.number == 0:
            self.default_us = trial.estimate.time_us
        if self.best_us is None or trial.estimate.time_us < self.best_us:
            self.best_us = trial.estimate.time_us


class Reported(SearchObserver):
    """Around the observer of a search: tells ``searches`` what that hears. What cannot be told is
    not worth a search: the trials themselves are kept in any case. ``asked``: what is searched, as
    the command line says it; ``source``, ``choices``: as in
    ``Progress``. ``before``: trials of other choices."""

    def __init__(
        self,
        observer: SearchObserver,
        searches: Searches,
        key: Key,
        asked: str = "",
        source: str = "",
        choices: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer, self._searches, self._key, self._clock = observer, searches, key, clock
        self._tally, self._space = Tally(), ""
        earlier = searches.progress(key)
        is_same = earlier.choices in ("", choices)
        self.before = earlier.before if is_same else earlier.done
        self._progress = Progress(asked=asked, source=source, choices=choices, before=self.before)
        self._reported = float("-inf")

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._observer.space_ready(space, earlier, goal)
        self._tally.reuse(earlier)
        self._space = self._observer.describe_space(space, len(earlier))
        self._report(done=len(earlier), goal=goal, note="compiling")

    def trial_done(self, trial: Trial) -> None:
        self._observer.trial_done(trial)
        self._tally.add(trial)
        self._progress = replace(self._progress, done=self._progress.done + 1)
        is_last = self._progress.done >= self._progress.goal
        if is_last or self._clock() - self._reported >= _EVERY_S:
            self._report()

    def announce(self, line: str) -> None:
        self._observer.announce(line)
        self._report(note=line)

    def end(self, stopped_by: str = "") -> None:
        """``stopped_by``: of a search of the whole space."""
        ends = {"exhausted": stopped_by == "exhausted", "predicted": stopped_by == "prediction"}
        self._report(over=True, note="", **ends)

    def _report(self, *, over: bool = False, **changes: object) -> None:
        self._reported = self._clock()
        self._progress = replace(
            self._progress,
            best_us=self._tally.best_us,
            default_us=self._tally.default_us,
            **changes,  # type: ignore[arg-type]
        )
        with suppress(StoreError):
            self._searches.report(self._key, self._space, self._progress, over=over)


_MOST_CALLS = 1_000  # searched keys of a function that are looked through


def searched_before(
    store: Store, task: TuningTask, plan: Plan, sources: ReadOnce
) -> TuningResult | None:
    """What came of the same search of the same source, without asking a compiler; None where there
    was none, or that cannot be known without one."""
    toolchain = _known_toolchain(plan.python)
    if toolchain is None or not _may_answer(task, plan):
        return None
    options = plan.options if task.options is None else task.options
    toolchain = replace(toolchain, options=options)
    try:
        keys = _keys(store, task, toolchain, plan.python or "", sources)
        results = (ended_search(store, task, spec, key, plan, sources) for spec, key in keys)
        return next(filter(None, results), None)
    except StoreError:
        return None  # whoever searches says what is wrong


def ended_search(
    store: Store,
    task: TuningTask,
    spec: KernelSpec,
    key: Key,
    plan: Plan,
    sources: ReadOnce,
    choices: Choices | None = None,
) -> TuningResult | None:
    """The same of a key, where the search has the trials that the plan asks for, or all that there
    are; where a prediction may end it, all that may be faster. Not with another default, or other
    choices: ``choices`` has them where a compiler was asked, else only the same source has the
    same."""
    if not _may_answer(task, plan):
        return None
    record, trials, progress = store.record(key), store.trials(key), store.searches.progress(key)
    predicted = progress.predicted and plan.limits.may_end_early(plan.method)
    done = len(trials) - progress.before >= plan.limits.trials
    if record is None or not (
        (done or progress.exhausted or predicted)
        and _is_unchanged(sources.searched_source(task.ref), progress, record, choices)
        and _is_of(record, trials)
        and _is_answer(record, trials, plan)
    ):
        return None
    default, ended = default_trial(trials), "prediction" if progress.predicted else "trials"
    return TuningResult(
        task=task,
        spec=spec,
        key=key,
        trials=trials,
        stopped_by="exhausted" if progress.exhausted else ended,
        publication=Publication(
            record=record,
            winner=next((trial for trial in trials if trial.config == record.config), None),
            states={t.number: gate_state(t, record) for t in trials},
            default=default,
            baseline=record.baseline,
            ties=contenders(trials, default, record.default),
        ),
        ids=store.trial_ids(key),
        place=str(store),
    )


def _is_unchanged(source: str, progress: Progress, record: Record, choices: Choices | None) -> bool:
    default = record.default.config
    if source and source == progress.source:
        return True
    if choices is None or default is None or choices.digest != progress.choices:
        return False
    return dict(default.axes) == choices.default


def _may_answer(task: TuningTask, plan: Plan) -> bool:
    """Not for a part of the space, nor where more is wanted than a search of it all."""
    is_part = task.start_from or task.only or task.tuned_options
    return not (plan.anew or plan.limits.full or is_part or plan.times(task.chip))


def _known_toolchain(python: str | None) -> Toolchain | None:
    """What is known of an interpreter without starting it."""
    if python == sys.executable:
        return installed_toolchain()
    known = environments(environments_folder())
    return next((made.toolchain for made in known if made.python == python), None)


def _keys(
    store: Store, task: TuningTask, toolchain: Toolchain, python: str, sources: ReadOnce
) -> Iterator[tuple[KernelSpec, Key]]:
    """What the task may mean: of a call those that were asked for in the same words."""
    for spec in store.kernels():
        try:
            if spec.fingerprint != sources.fingerprint(task.ref, spec.form):
                continue
        except OSError:
            return  # whoever searches says what is wrong
        words = task.problem
        if isinstance(words, ProblemWords) and spec.form:
            text = asked(task.ref, spec.name, words.call, task.chip, python)
            for summary in store.history(spec.name, task.chip, _MOST_CALLS):
                if store.searches.progress(summary.key).asked == text:
                    yield spec, spec.key(summary.key.problem, task.chip, toolchain)
            continue
        try:
            problem = words.of(spec.problems) if isinstance(words, ProblemWords) else words
        except InvalidInputError:
            return  # as well
        yield spec, spec.key(problem, task.chip, toolchain)


def _is_of(record: Record, trials: Sequence[Trial]) -> bool:
    """Whether the record is made of these trials, and all of them by the model of this version."""
    estimates = [record.estimate, *(trial.estimate for trial in trials if trial.estimate)]
    return record.trials == len(trials) and all(e.model == MODEL for e in estimates)


def _is_answer(record: Record, trials: Sequence[Trial], plan: Plan) -> bool:
    """Whether another publication, which may or may not take what is not verified, could not be of
    another config."""
    if not plan.allow_unverified:
        return record.verified
    first = finalists(trials, default_trial(trials), record.default)[:1]
    return any(trial.config == record.config for trial in first)
