"""In which release of libtpu an operation of a step became slower."""

from collections.abc import Callable, Sequence
from typing import Any

from autotune.cli.step import StepQuestion
from autotune.compiling.environments.create import create_environment, libtpu_releases
from autotune.compiling.environments.environment import LIBTPU, environments_folder
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.step import Step, StepChange, StepChangeKind, changes, place_us
from autotune.wording.output import echo
from autotune.wording.units import micros


def bisect(
    question: StepQuestion, before: Step, after: Step, what: str, source: str, **pool: Any
) -> str:
    """A sentence: between which two releases. ``what``: in a name, scope, line or kind of what is
    slower ``after``. The JAX of ``before`` compiles with each libtpu, with the tuned configs of the
    ``source`` of both. Times and environments are remembered. ``pool``: what ``new_pool`` takes
    beside the interpreter. Raises ``AutotuneError``."""
    if before.toolchain is None or after.toolchain is None:
        raise InvalidInputError("no libtpu is known of one of the two steps")
    change, jax = _slower(before, after, what), before.toolchain.jax
    old, new = before.toolchain.libtpu, after.toolchain.libtpu

    def compare(libtpu: str) -> bool:
        """Whether it is nearer to the time after than to that before. Raises ``AutotuneError``."""
        name, hear = f"{jax}{LIBTPU}{libtpu}", lambda text: echo(f"{text} …", err=True)
        try:
            made = create_environment(environments_folder(), name, announce=hear)
        except AutotuneError as error:
            raise AutotuneError(
                f"libtpu {libtpu} cannot be tried ({error}): make its environment where the "
                f"package index can be reached, autotune env create jax=={name}"
            ) from error
        steps, _, failed = question.ask([(made.python, source)], silent=False, **pool)
        took_us = place_us(steps[0], change, after) if steps else None
        if took_us is None:
            why = "nothing is left of it, or it is not timed as before: give a longer --budget"
            raise AutotuneError(
                f"of {what} nothing can be said with jax {jax} and libtpu {libtpu}: "
                f"{next(iter(failed.values()), why)}"
            )
        echo(f"libtpu {libtpu}: {micros(took_us)}", err=True)
        return 2 * took_us > change.before_us + change.after_us

    def is_slower(libtpu: str) -> bool | None:
        try:
            return compare(libtpu)
        except AutotuneError as error:
            echo(str(error), err=True)
            return None

    if not compare(new):
        return f"{what} is not slower by libtpu alone: jax {jax} does not show it with libtpu {new}"
    last, first = first_slower([old, *libtpu_releases(old, new), new], is_slower)
    return (
        f"{what}: {micros(change.before_us)} with libtpu {last}, slower with libtpu {first}. It is "
        f"shown by jax {jax}: autotune env create jax=={jax}{LIBTPU}{first}"
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


def first_slower(
    releases: Sequence[str], is_slower: Callable[[str], bool | None]
) -> tuple[str, str]:
    """The last release that is not slower and the first that is: the first of all is not, the last
    of all is. Those that say nothing (None) are passed over."""
    left = list(releases)
    while len(left) > 2:
        middle = len(left) // 2
        slower = is_slower(left[middle])
        if slower is None:
            left.pop(middle)
        else:
            left = left[: middle + 1] if slower else left[middle:]
    return left[0], left[-1]
