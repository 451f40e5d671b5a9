"""How a search begins: what is tuned, and where to look.

Also how far it goes, who watches it, and what it has come to. Light: a command asks before it
imports Optuna.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autotune.domain import compilers as questions
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.key import Chip, ChipInfo, Choices, KernelRef, KernelSpec, Key, Toolchain
from autotune.domain.problem import AxisValue, Config, Problem
from autotune.domain.record import Evidence, Trial
from autotune.estimating.space import Space, explore

ENOUGH_TRACING_S = 60.0
"""Before a search compiles something. A body that Python unrolls takes a second and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a search stops. ``trials`` counts all trials of the key, earlier runs included.
    ``full``: not before, even where what was compiled predicts that nothing is left that
    is faster; who asks for more trials than the default wants that too."""

    trials: int = DEFAULT_TRIALS
    full: bool = False
    timeout_s: float | None = None

    def may_end_early(self, method: str) -> bool:
        return method == "gp" and not self.full and self.trials <= DEFAULT_TRIALS


class SearchObserver:
    """Hears of each step; this one does nothing with it."""

    def tracing(self, done: int, total: int) -> None:
        """So many of the configs of the space are traced."""

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        """The search begins. ``earlier``: the trials of earlier runs; ``goal``: how many trials
        there will be, those included."""

    def describe_space(self, space: Space, reused: int) -> str:
        """The space in words, for those who watch from elsewhere. ``reused``: earlier trials."""
        del space, reused
        return ""

    def trial_done(self, trial: Trial) -> None:
        """A trial is kept."""

    def announce(self, line: str) -> None:
        """What is to be said of it, as a line."""

    def is_stopped(self) -> bool:
        """Asked every second; true ends the search as Ctrl-C does."""
        return False


Asked = TypeVar("Asked", bound=questions.CompilerQuestion[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tuned, for what."""

    ref: KernelRef
    spec: KernelSpec
    problem: Problem
    chip: ChipInfo
    toolchain: Toolchain

    @property
    def key(self) -> Key:
        return self.spec.key(self.problem, self.chip.chip, self.toolchain)

    def question(self, kind: Callable[..., Asked], **more: Any) -> Asked:
        if "options" in getattr(kind, "__dataclass_fields__", ()):
            more.setdefault("options", self.toolchain.options)
        return kind(ref=self.ref, problem=self.problem, chip=self.chip.chip, **more)


def describe_subject(
    compilers: questions.Compilers,
    ref: KernelRef,
    chip: Chip,
    problem: Problem | ProblemWords,
    options: str | None = None,
) -> Subject:
    """Ask a compiler process what the kernel, the toolchain and the chip are. ``options``: of the
    compiler, None for those that the compilers were opened with. Raises ``InvalidInputError`` for
    a problem that the kernel does not take."""
    if isinstance(problem, ProblemWords):
        call, problem = compilers.ask(questions.ReadProblem(ref=ref, words=problem))
        ref = replace(ref, call=call)
    spec = compilers.ask(questions.DescribeKernel(ref=ref))
    return Subject(
        ref=ref,
        spec=spec,
        problem=same_problem(spec, problem),
        chip=compilers.ask(questions.DescribeChip(chip=chip, options=options)),
        toolchain=compilers.ask(questions.DescribeToolchain(options=options)),
    )


def same_problem(spec: KernelSpec, problem: Problem) -> Problem:
    """The problem, where this version of the kernel takes it. Raises ``InvalidInputError``."""
    parsed = spec.problems.problem(dict(problem.dims), problem.dtype, dict(problem.options))
    if dict(parsed.options) != dict(problem.options):
        raise InvalidInputError(f"this version of {spec.name} takes other options than {problem}")
    return parsed


def explore_space(
    compilers: questions.Compilers,
    subject: Subject,
    tracing: Callable[[int, int], None],
    only: Mapping[str, Sequence[str]] | None = None,
) -> Space:
    """The candidates, or the first of them where they take long to trace; ``only``: with these
    values of axes, beside the default. Raises ``AutotuneError`` for a declaration or problem that
    cannot be."""
    choices = compilers.ask(subject.question(questions.ListChoices))
    if only:
        choices = narrowed(choices, only)
    compilers.ask(subject.question(questions.CheckDeclaration))
    ref, problem, chip = subject.ref, subject.problem, subject.chip
    return explore(compilers, ref, problem, choices, chip, tracing, ENOUGH_TRACING_S)


def narrowed(choices: Choices, wanted: Mapping[str, Sequence[str]]) -> Choices:
    """With those values only, for each axis that is named. Raises ``InvalidInputError``."""
    axes = dict(choices.axes)
    for name, values in wanted.items():
        axes[name] = [axis_value(choices, name, value) for value in values]
    return Choices(axes=axes, default=choices.default, grid=choices.grid)


def wanted_values(fixed: Iterable[str], only: Iterable[str]) -> dict[str, list[str]]:
    """``AXIS=VALUE`` and ``AXIS=A,B`` by axis. Raises ``InvalidInputError``."""
    wanted: dict[str, list[str]] = {}
    given = [(text, [text.partition("=")[2]]) for text in fixed]
    given += [(text, text.partition("=")[2].split(",")) for text in only]
    for text, values in given:
        name, sign, _ = text.partition("=")
        if not (name and sign and all(values)) or name in wanted:
            raise InvalidInputError(
                f"{text!r} is not AXIS=VALUE, or its axis is named twice: give --fix block_q=512 "
                "or --only block_q=256,512"
            )
        wanted[name] = values
    return wanted


def axis_value(choices: Choices, name: str, text: str) -> AxisValue:
    """A choice of the axis, or another size where it has sizes. Raises ``InvalidInputError``."""
    known = choices.axes.get(name)
    if known is None:
        raise InvalidInputError(
            f"the kernel has no axis {name!r}: it has {', '.join(choices.axes)}"
        )
    for value in (*known, choices.default[name]):
        if str(value).lower() == text.lower():
            return value
    has_sizes = any(isinstance(value, int) and not isinstance(value, bool) for value in known)
    if has_sizes and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    wanted = "a whole number from 1" if has_sizes else f"one of {', '.join(map(str, known))}"
    raise InvalidInputError(f"{name}={text}: it must be {wanted}")


@dataclass(slots=True, kw_only=True)
class SearchResult:
    """All trials of the key, and how the search ended: exhausted, prediction, trials, timeout,
    interrupted.
    ``start_from``: configs that were given, which are among the trials. ``default``: what is
    predicted of the default, where it was not compiled."""

    subject: Subject
    space: Space
    trials: list[Trial]
    reused: int
    stopped_by: str
    seconds: float
    start_from: tuple[Config, ...] = ()
    default: Evidence | None = None
