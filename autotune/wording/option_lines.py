"""What a search has found under compiler options, and how they are set."""

from collections.abc import Iterator
from math import inf

from autotune.domain.compiler_options import INIT_ARGS, as_flags, differing
from autotune.domain.outcome import Estimated
from autotune.domain.record import Trial
from autotune.publishing.task import TuningResult, WithOptions
from autotune.wording.publication import publication_reason, verified_label
from autotune.wording.units import error_bar, micros, ratio

_MOST = 8


def option_lines(tuned: TuningResult) -> Iterator[str]:
    """The fastest set first; nothing where none was searched."""
    tried = sorted((of for of in tuned.with_options if of.trials), key=lambda of: of.best_us or inf)
    if not tried:
        return
    yield f"With compiler options (without them {micros(tuned.after_us)}):"
    for of in tried[:_MOST]:
        yield f"  {_options(tuned, of)}: {_best(tuned, of)}"
    if len(tried) > _MOST:
        yield f"  and {len(tried) - _MOST} others"
    yield from _to_set(tried[0])


def _options(tuned: TuningResult, of: WithOptions) -> str:
    return ", ".join(differing(of.key.toolchain.options, tuned.key.toolchain.options))


def _best(tuned: TuningResult, of: WithOptions) -> str:
    best = of.best
    if best is None or best.estimate is None:
        return f"none of {len(of.trials)} trials has a time"
    e, same = best.estimate, _without(tuned, best)
    if same is not None and _program(same) == _program(best):
        return f"the same program as without, {best.config}"
    times = f"{micros(e.time_us)} {error_bar(e.error)}, {ratio(tuned.after_us, e.time_us)}"
    return f"{times} of {len(of.trials)} trials, {best.config}"


def _without(tuned: TuningResult, best: Trial) -> Trial | None:
    """The same config, without the options."""
    return next((trial for trial in tuned.trials if trial.config == best.config), None)


def _program(trial: Trial) -> str | None:
    return trial.outcome.program if isinstance(trial.outcome, Estimated) else None


def _to_set(fastest: WithOptions) -> Iterator[str]:
    """How to have what is published."""
    publication, record = fastest.publication, fastest.record
    if publication is None:
        yield (
            "None is faster than without by more than the model can mistake: nothing is published "
            "for them."
        )
    elif record is None:
        yield f"Nothing published for the fastest: {publication_reason(publication)}."
    else:
        flags = as_flags(record.key.toolchain.options)
        yield (
            f"Published for those who have these options, {verified_label(record)}. Set them, and "
            f"look up as before: {INIT_ARGS}='{flags}'"
        )
