"""From a config to its outcome, and to the trial that counts."""

from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime

from autotune.candidates import rules
from autotune.cost_model.estimate import estimate
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import Attempt
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.trial import Trial
from autotune.ports import SearchStore
from autotune.ports.compilers import CandidateCompiler
from autotune.searching.subject import Subject


def keep_trial(
    store: SearchStore,
    key: Key,
    trials: list[Trial],
    config: Config,
    outcome: Outcome,
    seconds: float,
    number: int | None = None,
) -> Trial:
    """The trial that counts, in the store and in ``trials``, which are those of the key that are
    known here; the next ``number`` where none is given. It is another one's where that one was
    first with the same config."""
    trial = Trial(
        number=max((t.number for t in trials), default=-1) + 1 if number is None else number,
        config=config,
        outcome=outcome,
        seconds=seconds,
        created_at=datetime.now(UTC),
    )
    while not store.save_trial(key, trial):
        known = list(store.trials(key))
        theirs = next((t for t in known if t.config == config), None)
        if theirs is not None:  # another machine, or thread, on the same key was first
            trial = theirs
            break
        trial = replace(trial, number=max(t.number for t in known) + 1)
    trials.append(trial)
    return trial


def evaluate(compilers: CandidateCompiler, subject: Subject, config: Config) -> Outcome:
    """Compile one config and estimate its time."""
    return outcome_of(compile_config(compilers, subject, config).result(), subject.chip)


def compile_config(
    compilers: CandidateCompiler, subject: Subject, config: Config
) -> Future[Attempt]:
    return compilers.compile(subject.ref, subject.problem, config, subject.chip.chip)


def outcome_of(attempt: Attempt, chip: ChipInfo) -> Outcome:
    """Its time is estimated where it compiles; the rules are checked on its own trace again."""
    if not isinstance(attempt.answer, tuple):
        return attempt.answer
    trace, compiled = attempt.answer
    broken = rules.violation(trace, chip)
    return rules.illegal(broken) if broken else estimate(trace, compiled, chip)
