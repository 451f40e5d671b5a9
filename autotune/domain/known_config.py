"""A config that others found: in a table of a library, in a file of a colleague."""

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain.chip import Chip
from autotune.domain.codec import ByName, OmitNone
from autotune.domain.config import AxisValue
from autotune.domain.problem import OptionValue, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConfig:
    """Tuned elsewhere, with a toolchain that nobody knows.

    ``problem``: what its table says of one, by names of dimensions, *dtype* and options; what it
    does not say may be anything. ``chips``: on which of them; none where the table does not say.
    ``source``: the table and the place in it.
    """

    kernel: str
    problem: ByName[OptionValue]
    chips: tuple[Chip, ...]
    axes: ByName[AxisValue]
    source: str
    time_us: OmitNone[float | None] = None

    def serves(self, problem: Problem, chip: Chip) -> bool:
        """Whether it was tuned for this problem, as far as its table says."""
        asked = {**dict(problem.dims), "dtype": problem.dtype, **dict(problem.options)}
        return (not self.chips or chip in self.chips) and all(
            name in asked and str(asked[name]) == str(value) for name, value in self.problem
        )

    def __str__(self) -> str:
        return f"{self.kernel} {named(self.problem)}: {named(self.axes)}"


def named(pairs: Iterable[tuple[str, object]]) -> str:
    """``a=1,b=2``."""
    return ",".join(f"{name}={value}" for name, value in pairs)
