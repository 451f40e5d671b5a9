"""What a search has found under compiler options that nobody asked for, and what they make of a
whole function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from autotune.domain.compiler_options import over
from autotune.domain.compilers import Compilers, CompileStep, DescribeChip
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Failure
from autotune.domain.step import Step
from autotune.domain.store import Store
from autotune.publishing.estimated_ties import better
from autotune.publishing.publish import Publication
from autotune.publishing.step import timed_step
from autotune.publishing.task import TuningResult, WithOptions
from autotune.searching.one_config import compile_config, keep_trials, outcome_of
from autotune.searching.option_axes import OptionAxes, taken
from autotune.searching.subject import SearchResult


def with_options(
    compilers: Compilers,
    store: Store,
    axes: OptionAxes,
    result: SearchResult,
    tuned: TuningResult,
    published: Callable[[SearchResult], Publication],
) -> TuningResult:
    """With what came of each set of options. The fastest is published for those who have it, where
    it is faster than what is published for those who asked by more than the model can mistake."""
    parts = [axes.result(result, options) for options in axes.subjects if options]
    others = [WithOptions(key=part.subject.key, trials=part.trials) for part in parts]
    if not any(other.best for other in others):
        return replace(tuned, with_options=tuple(others))
    place = min(range(len(others)), key=lambda number: others[number].best_us or inf)
    winner = tuned.publication.winner if tuned.publication else None
    if better(others[place].trials, winner):
        part = _with_default(compilers, store, parts[place])
        others[place] = replace(others[place], trials=part.trials, publication=published(part))
    return replace(tuned, with_options=tuple(others))


def _with_default(compilers: Compilers, store: Store, part: SearchResult) -> SearchResult:
    """With what a record is compared with: the default under the same options, as number 0."""
    subject, default = part.subject, part.space.default
    if not any(trial.config == default for trial in part.trials):
        attempt = compile_config(compilers, subject, default).result()
        judged = default, outcome_of(attempt, subject.chip), attempt.seconds
        keep_trials(store, subject.key, part.trials, [judged], default=default)
    store.place_default(subject.key, default)
    return replace(part, trials=list(store.trials(subject.key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTrial:
    """``options``: all that it was compiled with. ``time_us``: None where it depends on
    data; ``failure``: where it does not compile."""

    options: str
    time_us: float | None
    failure: Failure | None = None


def search_options(
    compilers: Compilers,
    ref: KernelRef,
    chip: Chip,
    asked: str,
    wanted: Mapping[str, Sequence[str]],
    announce: Callable[[str], None],
    trials: int,
    seed: int,
) -> list[FunctionTrial]:
    """Each set of options once, without any first; nothing is kept. ``asked``: those that are there
    anyway. Raises ``InvalidInputError`` for what the compiler does not take."""
    from autotune.searching.study import try_options  # Optuna: for those who search

    compilers.ask(DescribeChip(chip=chip, options=asked))
    done: dict[str, FunctionTrial] = {}

    def judge(options: Mapping[str, str]) -> float | None:
        text = over(asked, options)
        if text not in done:
            question = CompileStep(ref=ref, chip=chip, budget_s=inf, options=text)
            timed = timed_step(compilers, question)
            failure = None if isinstance(timed, Step) else timed
            time_us = timed.time_us if isinstance(timed, Step) and not timed.undecided else None
            done[text] = FunctionTrial(options=text, time_us=time_us, failure=failure)
        return done[text].time_us

    values = {name: list(v) for name, v in taken(compilers, chip, asked, wanted, announce).items()}
    most = prod(len(tried) + 1 for tried in values.values())
    try_options(values, min(trials, most), seed, judge)
    return list(done.values())
