"""A kernel as plain data: what the parent process and the database know of it."""

import hashlib
from dataclasses import dataclass
from typing import Annotated

from autotune.domain.chip import Chip
from autotune.domain.codec import Flat, Local, OmitDefault
from autotune.domain.config import AxisValue
from autotune.domain.key import Key
from autotune.domain.limits import MOST_NAMES, Limit, Name, Names, Text
from autotune.domain.problem import Problem, ProblemSpec
from autotune.domain.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """``fingerprint`` changes when what the kernel runs does. ``form``: of a decorated function,
    what kind of call it is described for.

    ``cuts``: (axis, dimension) for each axis that is a block size over a dimension. Empty where
    that is not known: descriptions saved by older versions do not say it.
    """

    name: Name
    fingerprint: Name
    problems: Flat[ProblemSpec]
    axes: Names
    grid: Names
    doc: Text = ""
    cuts: Annotated[tuple[tuple[Name, Name], ...], Limit(longest=MOST_NAMES)] = ()
    form: Local[OmitDefault[str]] = ""

    def key(self, problem: Problem, chip: Chip, toolchain: Toolchain) -> Key:
        """The key of one of its problems."""
        return Key(
            kernel=self.name,
            fingerprint=self.fingerprint,
            problem=problem,
            chip=chip,
            toolchain=toolchain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The raw space of a problem: values per axis, the default, the names of the grid axes."""

    axes: dict[str, list[AxisValue]]
    default: dict[str, AxisValue]
    grid: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of what there is to be tried; the default is apart."""
        return hashlib.sha256(repr((self.axes, self.grid)).encode()).hexdigest()[:12]
