"""From a config to its outcome, and to the trial that counts."""

from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime

from autotune.domain.compiled import Attempt
from autotune.domain.compilers import CompileConfig, Compilers
from autotune.domain.errors import StoreError
from autotune.domain.key import ChipInfo, Key
from autotune.domain.outcome import Outcome
from autotune.domain.problem import Config
from autotune.domain.record import Trial, default_trial
from autotune.domain.store import TrialStore
from autotune.estimating import legality
from autotune.estimating.cost_model.estimate import estimate
from autotune.searching.subject import Subject


def keep_trials(
    store: TrialStore,
    key: Key,
    trials: list[Trial],
    outcomes: Sequence[tuple[Config, Outcome, float]],
    *,
    default: Config | None,
) -> list[Trial]:
    """The trials that count, in the store and in ``trials``, which are those of the key that are
    known here. One is another one's where that one was first with the same config."""
    saved, known = list[Trial](), list(trials)
    while left := outcomes[len(saved) :]:
        new = list[Trial]()
        for config, outcome, seconds in left:
            new.append(
                Trial(
                    number=_next_number([*known, *new], is_default=config == default),
                    config=config,
                    outcome=outcome,
                    seconds=seconds,
                    created_at=datetime.now(UTC),
                )
            )
        count = store.save_trials(key, new)
        saved += new[:count]
        if count < len(new):  # another machine, or thread, on the same key was first
            before, known = known, list(store.trials(key))
            first = [t for t in known if t.config == new[count].config]
            if not (count or first or len(known) > len(before)):
                raise StoreError(f"a damaged trial of {key} is in the way: see `autotune db check`")
            saved += first
    trials += saved
    return saved


def _next_number(trials: Sequence[Trial], *, is_default: bool) -> int:
    """0 is the default's, however late it is compiled."""
    if is_default and default_trial(trials) is None:
        return 0
    return max((trial.number for trial in trials), default=0) + 1


def evaluate(compilers: Compilers, subject: Subject, config: Config) -> Outcome:
    """Compile one config and estimate its time."""
    return outcome_of(compile_config(compilers, subject, config).result(), subject.chip)


def compile_config(compilers: Compilers, subject: Subject, config: Config) -> Future[Attempt]:
    return compilers.submit(subject.question(CompileConfig, config=config))


def outcome_of(attempt: Attempt, chip: ChipInfo) -> Outcome:
    """Its time is estimated where it compiles; the rules are checked on its own trace again."""
    if not isinstance(attempt.answer, tuple):
        return attempt.answer
    trace, compiled = attempt.answer
    broken = legality.violation(trace, chip)
    return legality.illegal(broken) if broken else estimate(trace, compiled, chip)
