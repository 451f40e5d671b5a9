"""What a search has found under compiler options, and how they are set."""

from collections.abc import Iterator, Sequence
from math import inf

from autotune.domain.compiler_options import INIT_ARGS, as_flags, differing, for_executable
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.record import Trial
from autotune.publishing.task import TuningResult, WithOptions
from autotune.publishing.with_options import FunctionTrial
from autotune.wording.outcome import reason_of
from autotune.wording.publication import publication_reason, verified_label
from autotune.wording.units import counted, error_bar, micros, ratio

_MOST = 8


def option_lines(tuned: TuningResult) -> Iterator[str]:
    """The fastest set first; nothing where none was searched."""
    tried = sorted((of for of in tuned.with_options if of.trials), key=lambda of: of.best_us or inf)
    if not tried:
        return
    yield f"With compiler options (without them {micros(tuned.after_us)}):"
    for of in tried[:_MOST]:
        options = differing(of.key.toolchain.options, tuned.key.toolchain.options)
        yield f"  {', '.join(options)}: {_best(tuned, of)}"
    if len(tried) > _MOST:
        yield f"  and {len(tried) - _MOST} others"
    yield from _to_set(tried[0])


def function_lines(name: str, chip: Chip, tried: Sequence[FunctionTrial]) -> Iterator[str]:
    """Of a function that is no kernel; what was asked for first."""
    asked, *others = tried
    timed = sorted(others, key=lambda trial: trial.time_us or inf)
    changed = [trial for trial in timed if not asked.time_us or trial.time_us != asked.time_us]
    yield f"{name} on {chip}, all that XLA runs for it:"
    for trial in (asked, *changed):
        name = ", ".join(differing(trial.options, asked.options)) or "as asked"
        why = reason_of(trial.failure) if trial.failure else "its time is not known"
        times = f"{micros(trial.time_us)}, {ratio(asked.time_us, trial.time_us)}"
        yield f"  {name}: {times if trial.time_us else why}"
    if same := len(timed) - len(changed):
        yield f"  {same} of {len(timed)} sets of options make no difference"
    if timed and asked.time_us and (timed[0].time_us or inf) < asked.time_us:
        yield f"Nothing is kept. Set them with {INIT_ARGS}='{as_flags(timed[0].options)}'"
        yield f"or jax.jit(…, compiler_options={for_executable(timed[0].options)})."


def _best(tuned: TuningResult, of: WithOptions) -> str:
    best = of.best
    if best is None or best.estimate is None:
        return f"no time of {counted(len(of.trials), 'trial')}"
    e, same = best.estimate, next((t for t in tuned.trials if t.config == best.config), None)
    if same is not None and _program(same) == _program(best):
        return f"the same program as without, {best.config}"
    times = f"{micros(e.time_us)} {error_bar(e.error)}, {ratio(tuned.after_us, e.time_us)}"
    return f"{times} of {counted(len(of.trials), 'trial')}, {best.config}"


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
