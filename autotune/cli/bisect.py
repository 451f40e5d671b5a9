"""In which release of libtpu an operation of a step became slower."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from autotune.cli.step import StepQuestion
from autotune.compiling.environments.create import create_environment, libtpu_releases
from autotune.compiling.environments.environment import LIBTPU, environments_folder
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.step import Step, StepChange, StepChangeKind, changes, place_us
from autotune.wording.output import echo
from autotune.wording.units import counted, micros, seconds


def bisect(
    question: StepQuestion, before: Step, after: Step, what: str, way: tuple[str, str], **pool: Any
) -> str:
    """A sentence: between which two releases. ``what``: in a name, scope, line or kind of what is
    slower ``after``. The ``way`` of ``before``, an interpreter and a source of tuned configs, is
    asked with each libtpu. Times and environments are remembered. ``pool``: what ``new_pool`` takes
    beside the interpreter. Raises ``AutotuneError``."""
    if before.toolchain is None or after.toolchain is None:
        raise InvalidInputError("no libtpu is known of one of the two steps")
    change, jax = _slower(before, after, what), before.toolchain.jax
    old, new = before.toolchain.libtpu, after.toolchain.libtpu
    (python, source), started, times_us = way, time.monotonic(), {old: change.before_us}
    names = dict[str, str]()

    def compare(libtpu: str) -> bool:
        """Whether it is nearer to the time after than to that before. Raises ``AutotuneError``."""
        name, hear = f"{jax}{LIBTPU}{libtpu}", lambda text: echo(f"{text} …", err=True)
        made = create_environment(environments_folder(), name, python=python, announce=hear)
        steps, _, failed = question.ask([(made.python, source)], silent=False, **pool)
        took_us = place_us(steps[0], change, after) if steps else None
        if took_us is None:
            why = "nothing is left of it, or it is not timed as before: give a longer --budget"
            raise AutotuneError(
                f"of {what} nothing can be said with jax {jax} and libtpu {libtpu}: "
                f"{next(iter(failed.values()), why)}"
            )
        times_us[libtpu], names[libtpu] = took_us, made.name
        echo(f"libtpu {libtpu}: {micros(took_us)}", err=True)
        return 2 * took_us > change.before_us + change.after_us

    if not compare(new):
        return f"{what} is not slower by libtpu alone: jax {jax} does not show it with libtpu {new}"
    last, first = first_slower([old, *libtpu_releases(old, new), new], compare)
    took_s, tried = time.monotonic() - started, counted(len(times_us) - 1, "release")
    return (
        f"{what}: {micros(times_us[last])} with libtpu {last}, {micros(times_us[first])} with "
        f"libtpu {first}. {tried} tried in {seconds(took_s)}. See it with "
        f"--jax {names[first]}"
    )


def _slower(before: Step, after: Step, what: str) -> StepChange:
    slower = [change for change in changes(before, after) if change.more_us > 0]
    for change in slower:
        if what in f"{change.name}\n{change.line}\n{change.scope}\n{change.kind}":
            if change.what is StepChangeKind.UNLIKE:
                raise InvalidInputError(
                    f"{what} is timed by its schedule on one side only: give a longer --budget"
                )
            return change
    known = ", ".join(change.line or change.name for change in slower[:5]) or "nothing"
    raise InvalidInputError(f"{what} did not become slower; what did: {known}")


def first_slower(releases: Sequence[str], is_slower: Callable[[str], bool]) -> tuple[str, str]:
    """The last release that is not slower and the first that is: the first of all is not, the last
    of all is. Those that say nothing, with an ``AutotuneError``, are passed over."""
    left = list(releases)
    while len(left) > 2:
        middle = len(left) // 2
        try:
            left = left[: middle + 1] if is_slower(left[middle]) else left[middle:]
        except AutotuneError as error:
            echo(f"libtpu {left.pop(middle)} is passed over: {error}", err=True)
    return left[0], left[-1]
