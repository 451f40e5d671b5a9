"""``autotune explain``: where the time of a trial goes, beside another, and as a trace."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import shared
from autotune.cli.estimate import Explained, differing_rows, print_breakdown
from autotune.cli.problems import problem_options, source_change, wanted_problem
from autotune.cli.profile import Format, checked, output_options, profile_data, write
from autotune.cli.show import StoredTrial, find_trial, heading
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.comparison import (
    Comparison,
    NamedEstimate,
    PartEffect,
    compare,
    faster_trial,
    part_effects,
)
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, KernelRef
from autotune.domain.record import Trial, gate_state, measured_config
from autotune.domain.store import Store
from autotune.wording.facts import effect_text, explanation_data, faster_text, why
from autotune.wording.measurement import measured_line
from autotune.wording.outcome import kind_and_reason, reason_of, trial_data
from autotune.wording.output import echo

if TYPE_CHECKING:
    from autotune.estimating.simulator.drawing.picture import ConfigProfile


@click.command()
@click.argument("trial", metavar="TRIAL|KERNEL")
@click.argument("other", type=click.IntRange(min=1), required=False)
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Compile again, and write the first and last grid steps as a trace for ui.perfetto.dev.",
)
@shared.flag_option(
    "--source",
    "by_line",
    help="Compile again, and say which lines of its source the time goes to.",
)
@shared.flag_option(
    "--keep",
    help="Also keep what --source says: the page of the trial on the dashboard shows it.",
)
@shared.flag_option(
    "--around",
    help="Also compile the next values of each axis that no trial changes alone, as trials.",
)
@click.option(
    "--kernel",
    metavar="FILE.py:NAME",
    help="For --trace, --source and --around: where the kernel is, if it is not in the catalogue.",
)
@shared.interpreter_options
@output_options
@problem_options
@click.option("--chip", help="For a KERNEL: the TPU generation; default: that searched last.")
@shared.database_and_json
def explain(
    trial: str,
    other: int | None,
    trace: Path | None,
    by_line: bool,
    keep: bool,
    around: bool,
    unfold: bool,
    kernel: str | None,
    python: str,
    words: ProblemWords,
    chip: str | None,
    database: str | None,
    form: Format,
    output: Path | None,
) -> None:
    """Say where the time of TRIAL goes; with OTHER, why one of them is faster.

    The numbers of trials are in the tables of `search` and `history --trials`. A KERNEL with a
    problem stands for what is published for it, else for its fastest trial. Exit code 1 when a
    trial has no estimate, or one without parts.
    """
    if not words and not (trial.isdecimal() and int(trial)):
        raise InvalidInputError(
            f"{trial!r} is neither: the number of a trial is a whole number from 1, and a kernel "
            "needs --shape or --args"
        )
    by_line = any((by_line, keep, form.is_file, output))
    trace = trace and shared.check_writable(trace)
    output = checked(form, output)
    again = trace is not None or by_line
    if not (again or around) and (kernel or python != sys.executable):
        raise InvalidInputError(
            "--jax, --python and --kernel are for compiling: add --source, --around or --trace FILE"
        )
    silent = form is Format.JSON or (form.is_file and output is None)
    with shared.open_database(database, create=False) as store:
        stored = _stored(store, trial, other, words, shared.chip_named(chip))
        refs = _refs(store, stored, kernel) if again or around else []
        if around:
            _try_around(store, stored, refs, python, silent)
        measured_lines = [_measured(store, each) for each in stored]
        changes = (source_change(store, each.key) for each in stored)
        changed = list(dict.fromkeys(filter(None, changes)))
        trials = [] if other else store.trials(stored[0].key)
        effects = part_effects(stored[0].trial, trials) if len(trials) > 1 else []
        tried = _tried_lines(store, stored[0], trials, effects, around)
    sentences = _missing(stored)
    comparison = _compared(stored)
    if not silent:
        _print(stored, comparison, sentences, measured_lines, tried, changed)
    is_drawn = bool(trace or keep or form.is_drawn)
    named = _profiles(stored, refs, python, silent, is_drawn) if again else []
    if keep:
        with shared.open_database(database, create=False) as store:
            for each, config in zip(stored, named, strict=True):
                store.profiles.save(each.id, config)
    data = {
        **_data(stored, comparison, sentences, trace),
        "effects": [to_data(effect) for effect in effects],
        "source": profile_data(named) if by_line else None,
        "measured": measured_lines,
        "source_changed": bool(changed),
    }
    title = " ".join(_heading(stored))
    if trace:
        write(Format.PERFETTO, trace, named, title=title, data=data, unfold=unfold)
    if by_line or form is Format.JSON:
        write(form, output, named, title=title, data=data, unfold=unfold)
    sys.exit(1 if sentences else 0)


def _stored(
    store: Store, trial: str, other: int | None, words: ProblemWords, chip: Chip | None
) -> list[StoredTrial]:
    """The trial, and the other. Raises ``InvalidInputError``: they are of different problems."""
    first = find_trial(store, _number(store, trial, words, chip))
    if other is None:
        return [first]
    second = find_trial(store, other)
    if (first.key.kernel, first.key.problem) != (second.key.kernel, second.key.problem):
        raise InvalidInputError(
            f"trials {first.id} and {second.id} solve different problems, which cannot be compared:"
            f" {first.key.kernel} {first.key.problem} and {second.key.kernel} {second.key.problem}"
        )
    return [first, second]


def _measured(store: Store, stored: StoredTrial) -> str:
    record = store.record(stored.key, claimed=True)
    return measured_line(measured_config(record, stored.trial.config), stored.estimate_us)


def _number(store: Store, trial: str, words: ProblemWords, chip: Chip | None) -> int:
    """Of a trial, or of the best one of a problem. Raises ``InvalidInputError``."""
    if not words:
        return int(trial)
    kernel, problem = wanted_problem(store, trial, words)
    keys = [each.key for each in store.history(kernel, chip, problem=problem)]
    key = next(filter(store.record, keys), next(iter(keys), None))
    trials = [] if key is None else [each for each in store.trials(key) if each.estimate]
    if key is None or not trials:
        raise InvalidInputError(f"no trial of {kernel} {problem} has an estimate: search it first")
    record = store.record(key)
    best = min(trials, key=lambda each: each.time_us or 0.0)
    served = (each for each in trials if record and each.config == record.config)
    return store.trial_ids(key)[next(served, best).number]


def _missing(trials: list[StoredTrial]) -> list[str]:
    sentences = []
    for stored in trials:
        outcome = stored.trial.outcome
        reason = "was estimated by an older version, which kept no parts: search again"
        if stored.estimate is None:
            reason = f"has no estimate: {outcome.kind}, {reason_of(outcome)}"
        if not (stored.estimate and stored.estimate.explanation):
            sentences.append(f"trial {stored.id} {reason}")
    return sentences


def _compared(trials: list[StoredTrial]) -> Comparison | None:
    named = [NamedEstimate(name=f"trial {t.id}", estimate=t.estimate) for t in trials if t.estimate]
    if len(named) < 2:
        return None
    return compare(*named, alike=trials[0].key == trials[1].key)


def _print(
    trials: list[StoredTrial],
    comparison: Comparison | None,
    sentences: list[str],
    measured_lines: list[str],
    tried: list[str],
    changed: list[str],
) -> None:
    """``measured_lines``: what was measured of each, empty where it was not; ``tried``: what other
    trials say; ``changed``: what says that a source is another by now."""
    for line in _heading(trials):
        echo(line)
    explained = _explained(trials)
    if len(explained) == len(trials):
        titles = [f"trial {t.id}" for t in trials]
        rows = [("measured", *measured_lines)] if any(measured_lines) else []
        print_breakdown(
            titles, explained, [*differing_rows([t.trial.config for t in trials]), *rows]
        )
    if comparison is not None:
        echo(why(comparison))
    for sentence in sentences:
        echo(sentence, err=True)
    for line in [] if sentences else tried:
        echo(line)
    for line in changed:
        echo(line, err=True)


def _tried_lines(
    store: Store,
    stored: StoredTrial,
    trials: Sequence[Trial],
    effects: Sequence[PartEffect],
    around: bool,
) -> list[str]:
    """What the ``trials`` of its problem say about this one."""
    trial = stored.trial
    if trial.estimate is None or len(trials) < 2:
        return []
    faster = faster_trial(trial, trials)
    first = f"None of the {len(trials)} trials of this problem is faster."
    if faster is not None:
        state = gate_state(faster.trial, store.record(stored.key))
        name = f"trial {store.trial_ids(stored.key)[faster.trial.number]}, {state}"
        first = f"Of what was tried, {faster_text(faster, trial.estimate, name)}."
    lines = [f"  {effect.part}: {effect_text(effect)}" for effect in effects]
    if not (around or all(effect.changes for effect in effects)):
        lines.append(f"`autotune explain {stored.id} --around` compiles such trials.")
    return [first, "One change at a time, and nothing else:", *lines]


def _heading(trials: list[StoredTrial]) -> list[str]:
    if len(trials) == 1:
        return heading(trials[0])[:-1]
    first, other = (t.key for t in trials)
    lines = [f"{first.kernel} {first.problem}"]
    lines += [f"  trial {t.id}: {t.trial.config}{_state(t)}" for t in trials]
    same = {
        f"chip: {first.chip} and {other.chip}": first.chip == other.chip,
        f"toolchain: {first.toolchain} and {other.toolchain}": first.toolchain == other.toolchain,
        f"source of the kernel: {first.fingerprint} and {other.fingerprint}": first.fingerprint
        == other.fingerprint,
    }
    if all(same.values()):
        return [*lines, f"  on {first.chip} with {first.toolchain}, kernel {first.fingerprint}"]
    return lines + [f"  NOT the same {what}" for what, is_same in same.items() if not is_same]


def _state(stored: StoredTrial) -> str:
    is_estimated, outcome = stored.estimate is not None, stored.trial.outcome
    return f" ({stored.state if is_estimated else kind_and_reason(outcome)})"


def _explained(trials: list[StoredTrial]) -> list[Explained]:
    estimates = [t.estimate for t in trials if t.estimate is not None]
    return [(e, e.explanation) for e in estimates if e.explanation is not None]


def _data(
    trials: list[StoredTrial],
    comparison: Comparison | None,
    sentences: list[str],
    trace: Path | None,
) -> dict[str, Any]:
    return {
        "trials": [_trial_data(t) for t in trials],
        "comparison": None
        if comparison is None
        else {
            "faster": min(trials, key=lambda t: t.estimate.time_us if t.estimate else 0.0).id,
            "times_as_fast": comparison.times_as_fast,
            "tie": comparison.tie,
            "margin": comparison.margin,
            "gained_us": dict(comparison.gained_us),
            "why": why(comparison),
        },
        "missing": sentences,
        "trace": None if trace is None else str(trace),
    }


def _trial_data(stored: StoredTrial) -> dict[str, Any]:
    explained = [explanation_data(*pair) for pair in _explained([stored])]
    data = trial_data(stored.trial, stored.state)
    return {
        "id": stored.id,
        "key": to_data(stored.key),
        **{name: data[name] for name in ("number", "config", "reason", "state")},
        "kind": stored.trial.outcome.kind,
        "verification": stored.verification,
        "explanation": explained[0] if explained else None,
    }


def _try_around(
    store: Store, stored: list[StoredTrial], refs: list[KernelRef], python: str, silent: bool
) -> None:
    from autotune.cli.compiled_again import try_around

    if len(stored) > 1:
        raise InvalidInputError("--around is of one trial: leave the other out")
    with shared.one_compiler(python) as pool:
        try_around(store, pool, stored[0], refs[0], _say(silent))


def _say(silent: bool) -> Callable[[str], None]:
    return lambda line: None if silent else echo(line, err=True)


def _refs(store: Store, trials: list[StoredTrial], kernel: str | None) -> list[KernelRef]:
    from autotune.cli.compiled_again import unchanged_kernel

    return [unchanged_kernel(store, trial, kernel) for trial in trials]


def _profiles(
    trials: list[StoredTrial], refs: list[KernelRef], python: str, silent: bool, is_drawn: bool
) -> "list[ConfigProfile]":
    """Of trials that are compiled again. ``silent``: nothing is said of it."""
    from autotune.cli.compiled_again import profiles_again
    from autotune.searching.profiles import STEPS
    from autotune.wording.profile import estimate_change

    say = _say(silent)
    with shared.one_compiler(python) as pool:
        named = profiles_again(pool, trials, refs, STEPS * is_drawn, say)
    for trial, config in zip(trials, named, strict=True):
        if line := estimate_change(trial.id, trial.estimate, config):
            say(line)
    return named
