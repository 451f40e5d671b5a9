"""Trials that are compiled again, for what was not kept of them: ``autotune explain --source``."""

from collections.abc import Callable, Sequence
from typing import Any

from autotune.cli.searched_source import kernel_of, source_now
from autotune.cli.show import StoredTrial
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.domain.compilers import Compilers, DescribeChip, DescribeToolchain, is_another_program
from autotune.domain.errors import AutotuneError, CompilerUnavailableError, InvalidInputError
from autotune.domain.key import KernelRef
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.wording.outcome import reason_of
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
            f"trial {stored.id} cannot be profiled: {ref} has changed since, or is another kernel "
            f"(fingerprint {now}, the trial has {key.fingerprint})"
        )
    return ref


def _compiled_again(pool: Compilers, stored: StoredTrial, ref: KernelRef, steps: int) -> Profiled:
    """Raises ``AutotuneError`` where it is another program now, or the answer a refusal."""
    key, config = stored.key, stored.trial.config
    options = key.toolchain.options
    toolchain = pool.ask(DescribeToolchain(options=options))
    if toolchain != key.toolchain:
        raise CompilerUnavailableError(
            f"trial {stored.id} was compiled with {key.toolchain}, and here is {toolchain}: name "
            "an environment that has the former with --jax, or an interpreter with --python"
        )
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
