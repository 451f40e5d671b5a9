"""What parent and child say to each other: one JSON object a line, nothing pickled.

A question is the data of one of the classes below, its ``kind`` first; an answer ``{"ok": ...}``,
the data of what the class is a question for, or ``{"error": ...}``, the data of ``Raised``.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.codec import from_data
from autotune.domain.compiled import Compiled, XlaCost
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace
from autotune.domain.verdict import Verdict
from autotune.domain.workload import UndeclaredKernel, WorkloadProblem
from autotune.estimating.simulator.drawing.picture import Picture

T_co = TypeVar("T_co", covariant=True)

LOAD, NAME, PROBLEM, CONSTRAINT = "load", "name", "problem", "constraint"
REFUSED, COMPILE = "refused", "compile"
LISTING = "listing"  # ask again where libtpu prints it


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that a question ended with. ``stage``: what failed (load, problem, constraint,
    refused, build, trace, compile, listing, serialize; request or kernel for all else);
    ``raised_at``: by which line.
    """

    type: str
    message: str
    stage: str
    raised_at: str = ""


class Greeting(NamedTuple):
    """``toolchain`` says *none* where there is no libtpu."""

    toolchain: Toolchain
    python: str
    pid: int


class Traces(NamedTuple):
    """One, or one for each order of a named grid. ``asks_chip``: they may differ on another."""

    traces: list[Trace]
    asks_chip: bool = False


class Collected(NamedTuple):
    """What a model calls. ``error``: why it could not be traced to its end."""

    problems: list[WorkloadProblem]
    undeclared: list[UndeclaredKernel]
    error: str = ""


class CompiledConfig(NamedTuple):
    """What became of a config that compiles."""

    trace: Trace
    compiled: Compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture of the run of a program (its hash), or None and the ``refusal`` why."""

    program: str
    picture: Picture | None
    refusal: str


@dataclass(frozen=True, kw_only=True)
class ChildQuestion(Generic[T_co]):
    """Its answer is a ``T_co``. ``form``: the class of that, None for nothing at all."""

    kind: ClassVar[str]
    form: ClassVar[type[Any] | None] = None

    def read(self, answer: dict[str, Any]) -> T_co | Raised:
        """What a child's answer to this means."""
        if "error" in answer:
            return from_data(Raised, answer["error"])
        return self.form and from_data(self.form, answer["ok"])  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Hello(ChildQuestion[Greeting]):
    kind = "hello"
    form = Greeting


@dataclass(frozen=True, kw_only=True)
class DescribeChip(ChildQuestion[ChipInfo]):
    kind = "chip"
    form = ChipInfo
    chip: Chip


@dataclass(frozen=True, kw_only=True)
class DescribeKernel(ChildQuestion[KernelSpec]):
    kind = "describe"
    form = KernelSpec
    ref: KernelRef


@dataclass(frozen=True, kw_only=True)
class ProblemOfCall(ChildQuestion[Problem]):
    """Of a decorated function, what the call of its reference is."""

    kind = "problem"
    form = Problem
    ref: KernelRef


@dataclass(frozen=True, kw_only=True)
class OfProblem(ChildQuestion[T_co]):
    ref: KernelRef
    problem: Problem
    chip: Chip | None


@dataclass(frozen=True, kw_only=True)
class ListChoices(OfProblem[Choices]):
    """The raw space; with a chip the default is what a user has on it."""

    kind = "choices"
    form = Choices


@dataclass(frozen=True, kw_only=True)
class CheckDeclaration(OfProblem[None]):
    """Does the declaration fit together?"""

    kind = "check"


@dataclass(frozen=True, kw_only=True)
class CompileBaseline(OfProblem[XlaCost]):
    kind = "baseline"
    form = XlaCost


@dataclass(frozen=True, kw_only=True)
class OfConfig(OfProblem[T_co]):
    config: Config


@dataclass(frozen=True, kw_only=True)
class TraceConfig(OfConfig[Traces]):
    """``orders``: in every order of a named grid. With a chip: for it."""

    kind = "trace"
    form = Traces
    orders: bool


@dataclass(frozen=True, kw_only=True)
class CompileConfig(OfConfig[CompiledConfig]):
    kind = "compile"
    form = CompiledConfig


@dataclass(frozen=True, kw_only=True)
class DrawConfig(OfConfig[Drawn]):
    """Compile it and draw its first and last grid steps."""

    kind = "draw"
    form = Drawn
    steps: int


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(OfConfig[Verdict]):
    """Run it in interpret mode against its reference."""

    kind = "verify"
    form = Verdict


@dataclass(frozen=True, kw_only=True)
class WriteExecutable(OfProblem[None]):
    """Compile a config (None: plain XLA) under a name and write the executable to a file; for the
    CPU without a chip."""

    kind = "executable"
    config: Config | None
    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class CollectKernels(ChildQuestion[Collected]):
    """Trace the function at ``ref``, called as its ``call`` says, and find its kernels; ``names``
    and ``refs`` are those of the catalogue."""

    kind = "collect"
    form = Collected
    ref: KernelRef
    chip: Chip | None
    names: tuple[str, ...]
    refs: tuple[KernelRef, ...]


AnyQuestion = (
    Hello
    | DescribeChip
    | DescribeKernel
    | ProblemOfCall
    | ListChoices
    | CheckDeclaration
    | CompileBaseline
    | TraceConfig
    | CompileConfig
    | DrawConfig
    | VerifyConfig
    | WriteExecutable
    | CollectKernels
)
