"""What is to be tuned, how, and what came of it.

Tasks come from the problems of a workload, too.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Self

from autotune.declaring.calls.text import with_contents
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compiler_options import over
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.key import Chip, KernelRef, KernelSpec, Key, parse_chip
from autotune.domain.problem import AxisValue, Config, Problem
from autotune.domain.record import Evidence, Record, Trial, default_trial
from autotune.domain.workload import InvalidProblem, WorkloadProblem
from autotune.measuring.attached import attached_chips
from autotune.publishing.publish import Publication
from autotune.searching import subject as subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask:
    """A problem that is to be tuned for a chip.

    ``start_from``: configs that are tried right after the default, in text or as values of
    axes; of a model the first is what it runs today. ``only``: values of axes, beside those of the
    default. ``options``: of the compiler, None for those of the plan; ``tuned_options``: values of
    some of them that are searched as well. ``weight``: how often it runs. ``name`` and ``line``: of
    the problem in a workload.
    """

    ref: KernelRef
    chip: Chip
    problem: Problem | ProblemWords
    start_from: tuple[str | Config | Mapping[str, AxisValue], ...] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: str | None = None
    tuned_options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    weight: float = 1.0
    name: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """``device``: which of the attached ones. ``seconds``: of the race at most."""

    device: int = 0
    seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to tune. ``limits.timeout_s``: of all tasks together, from the beginning. ``timing``: of
    the finalists, None for never. ``python``: the interpreter that compiles, as a command line
    says it; None for the nodes of a cluster. ``options``: of the compiler, as the compilers were
    opened with. ``anew``: also what has been searched before."""

    limits: subjects.SearchLimits = field(default_factory=subjects.SearchLimits)
    seed: int = 0
    method: str = "gp"
    allow_unverified: bool = False
    timing: Timing | None = None
    python: str | None = sys.executable
    options: str = ""
    anew: bool = False

    def times(self, chip: Chip) -> bool:
        """Whether finalists are timed: it is wanted, and a TPU of this generation is attached."""
        return self.timing is not None and chip in attached_chips()


@dataclass(frozen=True, slots=True, kw_only=True)
class WithOptions:
    """What came of a search under the compiler options of ``key``, which are not those asked for.
    ``publication``: None where nothing is faster than what was found without them."""

    key: Key
    trials: Sequence[Trial]
    publication: Publication | None = None

    @property
    def best(self) -> Trial | None:
        """The published one, else the fastest."""
        timed = [trial for trial in self.trials if trial.estimate]
        won = self.publication and self.publication.winner
        return won or min(timed, key=lambda trial: trial.time_us or inf, default=None)

    @property
    def best_us(self) -> float | None:
        return self.best.time_us if self.best else None

    @property
    def record(self) -> Record | None:
        """None where nothing is published for those who have these options."""
        return self.publication.record if self.publication else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """A task whose search is over. ``publication``: None where it was interrupted, which the same
    task resumes. ``search``: None where it had ended before. ``error``: why what it has found could
    not be published. ``ids``: numbers of its trials in the database, which ``place`` names.
    ``with_options``: of each set of compiler options that was searched as well."""

    task: TuningTask
    spec: KernelSpec
    key: Key
    trials: Sequence[Trial]
    stopped_by: str
    publication: Publication | None
    ids: Mapping[int, int]
    place: str
    search: subjects.SearchResult | None = None
    error: AutotuneError | None = None
    with_options: Sequence[WithOptions] = ()

    @property
    def record(self) -> Record | None:
        """What is published now; None where nothing could be."""
        return self.publication.record if self.publication else None

    @property
    def given(self) -> Sequence[Trial]:
        """The trials of the configs that it was to start from."""
        start_from = self.search.start_from if self.search else ()
        return [trial for trial in self.trials if trial.config in start_from]

    @property
    def before(self) -> Trial | None:
        """What a model runs today: the config that the task begins with, else the default."""
        if self.search and self.task.start_from:
            today = self.search.start_from[0]
            return next((trial for trial in self.trials if trial.config == today), None)
        return default_trial(self.trials)

    @property
    def predicted(self) -> Evidence | None:
        """What is known of the default, where a model runs that and it was not compiled."""
        if self.before:
            return None
        if self.search:
            return self.search.default
        return self.record.default if self.record and self.record.default.is_predicted else None

    @property
    def before_us(self) -> float | None:
        if self.predicted:
            return self.predicted.expected_us
        return self.before.time_us if self.before else None

    @property
    def before_error(self) -> float | None:
        return self.predicted.expected_error if self.predicted else None

    @property
    def after_us(self) -> float | None:
        winner = self.publication.winner if self.publication else None
        return winner.time_us if winner else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTuned:
    """A task that could not be searched, and why."""

    task: TuningTask
    error: AutotuneError

    @property
    def problem(self) -> InvalidProblem:
        return InvalidProblem(line=self.task.line, problem=self.task.name, reason=str(self.error))


class TuningObserver(subjects.SearchObserver):
    """Who watches tasks; this one does nothing with what it hears."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, total: int) -> None:
        """So many different problems are tuned."""

    def of(self, key: Key) -> "TuningObserver":
        """Who watches one of them."""
        del key
        return self

    def compiling(self) -> None:
        """Compilers start: some task was not searched before."""

    def tuned(self, tuned: TuningResult) -> None:
        """A problem is over."""

    def not_tuned(self, refused: NotTuned) -> None:
        """A task cannot be searched."""

    def may_publish(self) -> bool:
        """Asked before anything is published; false leaves the task interrupted."""
        return True


def named_problem(problem: WorkloadProblem, folder: Path) -> tuple[KernelRef, ProblemWords]:
    """What a problem of a workload means, on whatever chip. ``folder``: that files of kernels are
    found from. Raises ``AutotuneError``."""
    name = str(folder / problem.kernel) if ".py" in problem.kernel else problem.kernel
    return find_kernel(name), ProblemWords(
        shape=problem.shape,
        dtype=problem.dtype or "",
        options=problem.options,
        call=with_contents(problem.args, folder),
    )


def workload_tasks(
    problems: Sequence[WorkloadProblem], chips: Sequence[str], folder: Path, options: str = ""
) -> Iterator[TuningTask | InvalidProblem]:
    """A task for each problem and chip, and why there is no other. ``chips``: of the problems that
    name none; ``options``: of the compiler, below those of a problem. The chips of one problem
    follow one another: it is traced for all of them at once."""
    for problem in problems:
        try:
            ref, words = named_problem(problem, folder)
        except AutotuneError as error:
            yield invalid_problem(problem, error)
            continue
        if not (problem.chips or chips):
            why = InvalidInputError("no chip is named: neither in the file nor by --chip")
            yield invalid_problem(problem, why)
        names = {}  # each chip once, however often and in whatever words
        for name in problem.chips or chips:
            try:
                names[parse_chip(name)] = name
            except AutotuneError as error:
                yield invalid_problem(problem, error)
        for chip in names:
            yield TuningTask(
                ref=ref,
                chip=chip,
                problem=words,
                start_from=(problem.config,) if problem.config else (),
                options=over(options, problem.compiler_options),
                weight=problem.weight,
                name=str(problem),
                line=problem.line,
            )


def invalid_problem(problem: WorkloadProblem, error: Exception) -> InvalidProblem:
    return InvalidProblem(line=problem.line, problem=str(problem), reason=str(error))
