"""What parent and child say to each other: one JSON object a line, nothing pickled.

A question is the data of a ``CompilerQuestion``, its ``kind`` first; an answer ``{"ok": ...}``, the
data of what the class is a question for, or ``{"error": ...}``, the data of ``Raised``. The
compiling child and the measuring one are asked the same way.
"""

from dataclasses import dataclass
from typing import NamedTuple

from autotune.domain import compilers as questions
from autotune.domain.change import SourceChange
from autotune.domain.explanation import ScheduledOperation
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Failure
from autotune.domain.problem import Config, Problem
from autotune.domain.profile import Profile
from autotune.estimating.simulator.drawing.picture import Picture

CONSTRAINT, REFUSED, COMPILE = "constraint", "refused", "compile"
LISTING = "listing"  # ask again where libtpu prints it
LINES = "lines"  # ask again where libtpu says the lines of source
READ_ONCE = "read once"  # ask again where libtpu was loaded with the option that is named
OPEN, RUN = "open", "run"
UNDERWAY = "underway"  # file in the child's folder: how far it is, numbers of ``Underway``


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that a question ended with. ``stage``: what failed (load, name, problem,
    constraint, refused, option, read once, build, trace, compile, listing, serialize; when
    measuring open, load, compile, run; request or kernel for all else); ``raised_at``: by which
    line.
    """

    type: str
    message: str
    stage: str
    raised_at: str = ""


class Profiled(NamedTuple):
    """Profiles of the calls of a program (its hash), or the ``refusal`` why there are none; and
    ``pictures`` of their first and last grid steps, if asked. ``schedule``: of the whole module."""

    program: str
    profiles: tuple[Profile, ...]
    refusal: str = ""
    pictures: tuple[Picture, ...] = ()
    schedule: tuple[ScheduledOperation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProfileConfig(questions.Attempted[Profiled | Failure]):
    """Compile it again, with the lines of its source; without problem and config the plain function
    at ``ref``, called as its ``call`` says. ``steps``: so many at either end are drawn."""

    kind = "profile"
    form = Profiled
    ref: KernelRef
    problem: Problem | None = None
    config: Config | None = None
    chip: Chip
    options: str | None = None
    steps: int = 0


class PossibleChanges(NamedTuple):
    """Of all calls of a config, whether they help or not."""

    changes: tuple[SourceChange, ...]


@dataclass(frozen=True, kw_only=True)
class ListChanges(
    questions.OfConfig[PossibleChanges | Failure], questions.Attempted[PossibleChanges | Failure]
):
    """What could be changed in the source of a config, as far as its trace shows that."""

    kind = "changes"
    form = PossibleChanges


CompilerQuestion = (
    questions.DescribeToolchain
    | questions.DescribeChip
    | questions.DescribeKernel
    | questions.ReadProblem
    | questions.ReadCall
    | questions.ListChoices
    | questions.CheckDeclaration
    | questions.CompileBaseline
    | questions.CompileStep
    | questions.TraceConfig
    | questions.CompileConfig
    | ProfileConfig
    | ListChanges
    | questions.VerifyConfig
    | questions.WriteExecutable
    | questions.CollectKernels
)


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


@dataclass(frozen=True, kw_only=True)
class OpenDevice(questions.Required[Device]):
    kind = "open"
    form = Device
    number: int


@dataclass(frozen=True, kw_only=True)
class MakeInputs(questions.OfProblem[None], questions.Required[None]):
    """Random numbers from the ``seed``, on the device."""

    kind = "inputs"
    chip: Chip | None
    seed: int


class Loaded(NamedTuple):
    """``compiled_here``: by the process that runs it, because there is no executable or, where
    there is a ``refusal``, because of that."""

    compiled_here: bool = False
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadProgram(questions.OfProblem[Loaded], questions.Attempted[Loaded]):
    """Make a config (None: plain XLA) ready under a name and run it once or twice. ``path``: of its
    executable, where it was compiled."""

    kind = "load"
    form = Loaded
    chip: Chip | None
    config: Config | None
    name: str
    path: str | None


class Sample(NamedTuple):
    """Picoseconds of one run, or the ``refusal`` why there are none."""

    time_ps: int | None
    refusal: str = ""


class Samples(NamedTuple):
    """One for each run, in the order in which they were asked for."""

    samples: list[Sample]


@dataclass(frozen=True, kw_only=True)
class TakeSamples(questions.Attempted[Samples]):
    """Run loaded programs once each, in this order."""

    kind = "sample"
    form = Samples
    order: tuple[str, ...]


MeasuringQuestion = OpenDevice | MakeInputs | LoadProgram | TakeSamples
