"""What is said to the measuring child: over the same pipes and in the same form as to a compiler.

Its stages in ``Raised``: open, load, compile, run.
"""

from dataclasses import dataclass
from typing import NamedTuple

from autotune.compiling.protocol import ChildQuestion, OfProblem
from autotune.domain.config import Config

OPEN, RUN = "open", "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The one device that is used. ``method``: how its times are taken, *device time* or *wall
    clock*; the two are never compared. ``count``: how many devices the machine has."""

    platform: str
    kind: str
    id: int
    cores: int
    count: int
    method: str

    def __str__(self) -> str:
        return f"{self.kind}, device {self.id} of {self.count}"


class Loaded(NamedTuple):
    """``compiled_here``: by the process that runs it, because there is no executable or, where
    there is a ``refusal``, because of that."""

    compiled_here: bool = False
    refusal: str = ""


class Sample(NamedTuple):
    """Picoseconds of one run, or the ``refusal`` why there are none."""

    time_ps: int | None
    refusal: str = ""


class Samples(NamedTuple):
    """One for each run, in the order in which they were asked for."""

    samples: list[Sample]


@dataclass(frozen=True, kw_only=True)
class OpenDevice(ChildQuestion[Device]):
    kind = "open"
    form = Device
    number: int


@dataclass(frozen=True, kw_only=True)
class MakeInputs(OfProblem[None]):
    """Random numbers from the ``seed``, on the device."""

    kind = "inputs"
    seed: int


@dataclass(frozen=True, kw_only=True)
class LoadProgram(OfProblem[Loaded]):
    """Make a config (None: plain XLA) ready under a name and run it once or twice. ``path``: of its
    executable, where it was compiled."""

    kind = "load"
    form = Loaded
    config: Config | None
    name: str
    path: str | None


@dataclass(frozen=True, kw_only=True)
class TakeSamples(ChildQuestion[Samples]):
    """Run loaded programs once each, in this order."""

    kind = "sample"
    form = Samples
    order: tuple[str, ...]


AnyQuestion = OpenDevice | MakeInputs | LoadProgram | TakeSamples
