"""A config that others found: in a table of a library, in a file of a colleague."""

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain.codec import ByName, OmitNone
from autotune.domain.key import Chip
from autotune.domain.problem import AxisValue, OptionValue, Problem, same_value

_LARGEST = 2**63 - 1


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

    def __post_init__(self) -> None:
        """A stranger's table may hold anything."""
        for name, value in (*self.problem, *self.axes):
            if type(value) not in (int, str, bool):
                raise ValueError(
                    f"{name}={str(value)[:40]} is no text, whole number, true or false"
                )
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise ValueError(f"{name} is larger than {_LARGEST}")
        if "\0" in str(self):
            raise ValueError("it has a character that no database keeps")
        str(self).encode()  # a lone surrogate is a ``ValueError``

    def serves(self, problem: Problem, chip: Chip) -> bool:
        """Whether it was tuned for this problem, as far as its table says."""
        asked = {**dict(problem.dims), "dtype": problem.dtype, **dict(problem.options)}
        return (not self.chips or chip in self.chips) and all(
            name in asked and same_value(asked[name], value) for name, value in self.problem
        )

    def __str__(self) -> str:
        return f"{self.kernel} {named(self.problem)}: {named(self.axes)}"


def named(pairs: Iterable[tuple[str, object]]) -> str:
    """``a=1,b=2``."""
    return ",".join(f"{name}={value}" for name, value in pairs)
