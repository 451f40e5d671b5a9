"""A search that has ended before: its result is in the database, no compiler is asked."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.cli.options import open_database
from autotune.cli.report import SearchReport
from autotune.compiling.environments.environment import environments, environments_folder
from autotune.declaring.discovery import fingerprint
from autotune.domain.arguments import asked
from autotune.domain.chip import Chip
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.toolchain import Toolchain, installed_toolchain
from autotune.domain.trial import Trial, default_trial
from autotune.estimating.cost_model.estimate import MODEL
from autotune.publishing.publish import Publication, finalists
from autotune.publishing.ties import contenders

_MOST_CALLS = 1_000  # searched keys of a function that are looked through


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """What is searched, as the command line says it."""

    ref: KernelRef
    chip: Chip
    shape: str | None
    dtype: str | None
    options: tuple[str, ...]
    call: str
    python: str
    allow_unverified: bool


def finished(
    question: SearchQuestion, goal: int, database: str | None, *, predicted: bool = False
) -> SearchReport | None:
    """The result of the same search of the same source, where it is there and has ``goal`` trials,
    or all that there are; ``predicted``: or all that may be faster, by other problems."""
    toolchain = _toolchain(question.python)
    if toolchain is None:
        return None
    try:
        with open_database(database, create=False) as store:
            for spec, key in _keys(store, question, toolchain):
                record, trials = store.record(key), store.trials(key)
                told = store.searches.progress(key)
                done = len(trials) >= goal or told.exhausted or (predicted and told.predicted)
                if record is None or not done or not _is_of(record, trials):
                    continue
                if _is_answer(question, record, trials):
                    ids = {t.number: store.trial_id(key, t.number) for t in trials}
                    return _report(spec, record, trials, ids, str(store))
    except StoreError:
        return None  # the search says what is wrong, or makes the database
    return None


def _toolchain(python: str) -> Toolchain | None:
    """What is known of an interpreter without starting it."""
    if python == sys.executable:
        return installed_toolchain()
    made = environments(environments_folder())
    return next((one.toolchain for one in made if one.python == python), None)


def _keys(
    store: Any, question: SearchQuestion, toolchain: Toolchain
) -> Iterator[tuple[KernelSpec, Key]]:
    """What the question may mean: of a call those that were asked for in the same words."""
    chip, ref = question.chip, question.ref
    for spec in store.kernels():
        if spec.fingerprint != fingerprint(ref, spec.form):
            continue
        if question.call:
            text = asked(ref, spec.name, question.call, chip, question.python)
            for summary in store.history(spec.name, chip, _MOST_CALLS):
                if store.searches.progress(summary.key).asked == text:
                    yield spec, _key(spec, summary.key.problem, chip, toolchain)
        elif question.shape is not None:
            try:
                problem = spec.problems.parse(question.shape, question.dtype, question.options)
            except InvalidInputError:
                return
            yield spec, _key(spec, problem, chip, toolchain)


def _key(spec: KernelSpec, problem: Problem, chip: Chip, toolchain: Toolchain) -> Key:
    return Key(
        kernel=spec.name,
        fingerprint=spec.fingerprint,
        problem=problem,
        chip=chip,
        toolchain=toolchain,
    )


def _is_of(record: Record, trials: Sequence[Trial]) -> bool:
    """Whether the record is made of these trials, and all of them by the model of this version."""
    estimates = [record.estimate, *(t.estimate for t in trials if t.estimate is not None)]
    return record.trials == len(trials) and all(e.model == MODEL for e in estimates)


def _is_answer(question: SearchQuestion, record: Record, trials: Sequence[Trial]) -> bool:
    """Whether another publication, which may or may not take what is not verified, could not be of
    another config."""
    if not question.allow_unverified:
        return record.verified
    first = finalists(trials, default_trial(trials), record.default)[:1]
    return any(one.config == record.config for one in first)


def _report(
    spec: KernelSpec,
    record: Record,
    trials: Sequence[Trial],
    ids: dict[int, int | None],
    place: str,
) -> SearchReport:
    default = default_trial(trials)
    return SearchReport(
        key=record.key,
        axes=spec.axes,
        trials=trials,
        publication=Publication(
            record=record,
            reason=record.reason,
            winner=next((trial for trial in trials if trial.config == record.config), None),
            default=default,
            baseline=record.baseline,
            ties=contenders(trials, default, record.default),
        ),
        ids=ids,
        place=place,
        done=f"Searched before, {record.created_at:%Y-%m-%d %H:%M} UTC: {len(trials)} trials",
    )
