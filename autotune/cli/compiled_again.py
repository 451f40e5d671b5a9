"""Trials that are compiled again, for what was not kept of them: ``autotune explain --source``; and
configs next to a trial that nobody has tried: ``--around``."""

import time
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from autotune.cli.problems import kernel_of, source_now
from autotune.cli.show import StoredTrial
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.domain.comparison import part_effects
from autotune.domain.compilers import Compilers, DescribeChip, DescribeToolchain, is_another_program
from autotune.domain.errors import AutotuneError, CompilerUnavailableError, InvalidInputError
from autotune.domain.key import KernelRef, Toolchain
from autotune.domain.outcome import Estimated, Illegal, NotEstimated
from autotune.domain.problem import GRID_ORDER, Config
from autotune.domain.store import Store
from autotune.estimating.simulator import MODEL
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.searching.one_config import ConfigJudge, config_judge, keep_trials
from autotune.searching.subject import describe_subject
from autotune.wording.outcome import ConfigEstimate, reason_of
from autotune.wording.profile import config_profile


def profiles_again(
    pool: Compilers,
    trials: Sequence[StoredTrial],
    refs: Sequence[KernelRef],
    steps: int,
    say: Callable[[str], None],
) -> list[ConfigProfile]:
    """Of trials, with pictures of so many ``steps`` at either end. ``say`` hears what is being
    done."""
    named = []
    for number, (trial, ref) in enumerate(zip(trials, refs, strict=True), 1):
        say(f"{number}/{len(trials)} compiling trial {trial.id} again: {trial.trial.config}")
        answer = _compiled_again(pool, trial, ref, steps)
        options = trial.key.toolchain.options
        info = pool.ask(DescribeChip(chip=trial.key.chip, options=options))
        named.append(config_profile(f"trial {trial.id}: {trial.trial.config}", answer, info))
    return named


def try_around(
    store: Store, pool: Compilers, stored: StoredTrial, ref: KernelRef, say: Callable[[str], None]
) -> None:
    """Compile the next values of each axis, and the other grid orders, that no trial with a time
    changes alone. What was compiled are trials like those of a search."""
    key = stored.key
    if stored.estimate is None or stored.estimate.model != MODEL:
        raise InvalidInputError(
            f"trial {stored.id} has no time by the present model: search again, which estimates it "
            "anew, or choose another trial"
        )
    subject = describe_subject(pool, ref, key.chip, key.problem, key.toolchain.options)
    _check_toolchain(stored, subject.toolchain)
    judge, trials = config_judge(pool, subject), list(store.trials(key))
    if set(dict(stored.trial.config.axes)) - set(judge.choices.axes):
        raise InvalidInputError(
            f"trial {stored.id} sets a compiler option: `autotune search --tune-compiler-options` "
            "tries others"
        )
    known_parts = {effect.part for effect in part_effects(stored.trial, trials) if effect.changes}
    tried = {trial.config for trial in trials}
    for given in _next_to(judge, stored.trial.config, known_parts):
        if given in tried:
            continue
        began, config, outcome = time.monotonic(), given, judge.outcome(given)
        if isinstance(outcome, Illegal):
            config = judge.complete(given.replace(dimension_semantics=()))
            if config in tried:
                continue
            outcome = judge.outcome(config)
        say(str(ConfigEstimate(config=config, outcome=outcome)))
        if not isinstance(outcome, Illegal):
            timed = [(config, outcome, time.monotonic() - began)]
            keep_trials(store, key, trials, timed, default=judge.default)
    say(f"{len(trials) - len(tried)} trials are new")


def _next_to(judge: ConfigJudge, config: Config, known: Collection[str]) -> Iterator[Config]:
    """Of an axis that has names or flags all others; of the grid orders those with two neighbours
    exchanged. Parts whose effect is ``known`` stay."""
    for axis, here in config.axes:
        others = [value for value in judge.choices.axes[axis] if value != here]
        if type(here) is int:
            sizes = sorted(value for value in others if type(value) is int)
            place = bisect(sizes, here)
            others = [*sizes[max(0, place - 1) : place + 1]]
        for value in others if axis not in known else ():
            yield config.replace(axes=tuple({**dict(config.axes), axis: value}.items()))
    order = config.grid_order
    for place in range(len(order) - 1) if GRID_ORDER not in known else ():
        first, second = order[place : place + 2]
        yield config.replace(grid_order=(*order[:place], second, first, *order[place + 2 :]))


def unchanged_kernel(store: Any, stored: StoredTrial, given: str | None) -> KernelRef:
    """The kernel of a trial. Raises ``InvalidInputError`` where its source is not what it was."""
    key = stored.key
    try:
        ref = kernel_of(store, key, given)
    except AutotuneError as error:
        if given:
            raise
        raise InvalidInputError(
            f"the kernel {key.kernel} is not in the catalogue: say where it is with "
            "--kernel FILE.py:NAME"
        ) from error
    now = source_now(store, key, ref)
    if now != key.fingerprint:
        raise InvalidInputError(
            f"trial {stored.id} cannot be compiled again: {ref} has changed since, or is another "
            f"kernel (fingerprint {now}, the trial has {key.fingerprint})"
        )
    return ref


def _check_toolchain(stored: StoredTrial, toolchain: Toolchain) -> None:
    if toolchain != stored.key.toolchain:
        raise CompilerUnavailableError(
            f"trial {stored.id} was compiled with {stored.key.toolchain}, and here is {toolchain}: "
            "name an environment that has the former with --jax, or an interpreter with --python"
        )


def _compiled_again(pool: Compilers, stored: StoredTrial, ref: KernelRef, steps: int) -> Profiled:
    """Raises ``AutotuneError`` where it is another program now, or the answer a refusal."""
    key, config = stored.key, stored.trial.config
    options = key.toolchain.options
    _check_toolchain(stored, pool.ask(DescribeToolchain(options=options)))
    question = ProfileConfig(
        ref=ref, problem=key.problem, config=config, chip=key.chip, options=options, steps=steps
    )
    answer, cannot = pool.ask(question), f"trial {stored.id} cannot be profiled"
    if not isinstance(answer, Profiled):
        raise AutotuneError(f"{cannot}: {answer.kind}, {reason_of(answer)}")
    outcome = stored.trial.outcome
    was = outcome.program if isinstance(outcome, Estimated | NotEstimated) else answer.program
    if is_another_program(was, answer.program):
        raise AutotuneError(
            f"{cannot}: it now compiles to another program ({answer.program}, it was {was}), "
            "something that its kernel imports has changed"
        )
    if answer.refusal:
        raise AutotuneError(f"{cannot}: {answer.refusal}")
    return answer
