"""What a search has found under compiler options that nobody asked for."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from autotune.domain.compilers import Compilers
from autotune.domain.store import Store
from autotune.publishing.publish import Publication
from autotune.publishing.task import TuningResult, WithOptions
from autotune.publishing.ties import better
from autotune.searching.one_config import compile_config, keep_trials, outcome_of
from autotune.searching.option_axes import OptionAxes
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
