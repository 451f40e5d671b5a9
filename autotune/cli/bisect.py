"""In which release of libtpu an operation of a step became slower."""

from collections.abc import Callable, Sequence

from autotune.cli.step import StepQuestion
from autotune.compiling.environments.create import create_environment, libtpu_releases
from autotune.compiling.environments.environment import LIBTPU, environments_folder
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.step import Step, StepChange, StepChangeKind, changes, place_us
from autotune.wording.output import echo
from autotune.wording.units import micros


class Bisection:
    """``pool``: what ``new_pool`` takes beside the interpreter. The JAX of ``before`` compiles with
    each libtpu: what is told apart is the libtpu alone."""

    def __init__(self, question: StepQuestion, before: Step, after: Step, **pool: object) -> None:
        if before.toolchain is None or after.toolchain is None:
            raise InvalidInputError("no libtpu is known of one of the two steps")
        self._question, self._before, self._after, self._pool = question, before, after, pool
        self._jax = before.toolchain.jax
        self._ends = before.toolchain.libtpu, after.toolchain.libtpu

    def run(self, what: str) -> str:
        """A sentence: between which two releases. ``what``: in its name, scope or line. Each time
        is remembered, as each environment is. Raises ``AutotuneError``."""
        change = self._change(what)
        old, new = self._ends
        after_us = self._time_us(new, change)
        if after_us is None or not is_slower(after_us, change):
            took = "does not compile" if after_us is None else f"takes {micros(after_us)}"
            return f"not of libtpu: with jax {self._jax} and libtpu {new} it {took}"
        releases = libtpu_releases(old, new)
        last, first = first_slower(
            [old, *releases, new], lambda release: self._verdict(release, change)
        )
        return (
            f"{what}: {micros(change.before_us)} with libtpu {last}, slower with {first}, by jax "
            f"{self._jax}: autotune env create jax=={self._jax}{LIBTPU}{first}"
        )

    def _change(self, what: str) -> StepChange:
        slower = [change for change in changes(self._before, self._after) if change.more_us > 0]
        for change in slower:
            if what in f"{change.name}\n{change.line}\n{change.scope}\n{change.kind}":
                if change.what is StepChangeKind.UNLIKE:
                    raise InvalidInputError(
                        f"{what} is timed by its schedule on one side only: give a longer --budget"
                    )
                return change
        known = ", ".join(change.line or change.name for change in slower[:5]) or "nothing"
        raise InvalidInputError(f"{what} did not become slower; what did: {known}")

    def _verdict(self, release: str, change: StepChange) -> bool | None:
        time_us = self._time_us(release, change)
        return None if time_us is None else is_slower(time_us, change)

    def _time_us(self, libtpu: str, change: StepChange) -> float | None:
        """None where it does not compile."""
        try:
            made = create_environment(
                environments_folder(),
                f"{self._jax}{LIBTPU}{libtpu}",
                announce=lambda text: echo(f"{text} …", err=True),
            )
        except AutotuneError as error:
            echo(f"libtpu {libtpu}: {error}", err=True)
            return None
        steps, _, failed = self._question.ask([(made.python, "")], silent=False, **self._pool)
        took = place_us(steps[0], change) if steps else None
        said = micros(took) if took is not None else next(iter(failed.values()))
        echo(f"libtpu {libtpu}: {said}", err=True)
        return took


def is_slower(time_us: float, change: StepChange) -> bool:
    """Whether a time is nearer to that after a change than to that before."""
    return 2 * time_us > change.before_us + change.after_us


def first_slower(
    releases: Sequence[str], is_slower_in: Callable[[str], bool | None]
) -> tuple[str, str]:
    """The last release that is not slower and the first that is, of which the first release is not
    and the last one is. Those that say nothing (None) are passed over."""
    left = list(releases)
    while len(left) > 2:
        middle = len(left) // 2
        slower = is_slower_in(left[middle])
        if slower is None:
            left.pop(middle)
        else:
            left = left[: middle + 1] if slower else left[middle:]
    return left[0], left[-1]
