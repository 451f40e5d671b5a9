"""What is asked of compilers: questions, their answers, and the port that answers them.

Questions and answers are plain data. Compilers may be processes of this machine, or a farm.

What the compiler made of one candidate is plain data, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import OmitDefault
from autotune.domain.errors import (
    AutotuneError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
)
from autotune.domain.evidence import Verdict
from autotune.domain.explanation import ScheduledOperation
from autotune.domain.key import Chip, ChipInfo, Choices, KernelRef, KernelSpec, Toolchain
from autotune.domain.outcome import Failure
from autotune.domain.problem import Config, Problem
from autotune.domain.step import CompiledStep
from autotune.domain.trace import Trace
from autotune.domain.workload import UndeclaredKernel, WorkloadProblem

ASSEMBLED = "a-"
"""Begins the hash of a program whose listing was put together and not printed by libtpu."""


def is_another_program(fingerprint: str, other: str) -> bool:
    """By their hashes; False where they cannot tell, being hashes of two kinds of listing."""
    return fingerprint != other and fingerprint.startswith(ASSEMBLED) == other.startswith(ASSEMBLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """``program`` is a hash of the final listings. ``simulation`` holds the fields of
    ``simulator.Simulation``, or is None with the ``refusal`` why. ``more``: what became of
    the further calls of the function, in the order of ``Trace.more``. ``schedule``: all that the
    chip runs for the function, its calls among it."""

    seconds: float
    vmem_used_bytes: int
    program: str
    simulation: Mapping[str, Any] | None
    refusal: str
    simulate_s: float
    more: OmitDefault[tuple["Compiled", ...]] = ()
    schedule: OmitDefault[tuple[ScheduledOperation, ...]] = ()

    @property
    def calls(self) -> tuple["Compiled", ...]:
        """The first call and those after it."""
        return (self, *self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What compilers made of a candidate, and the wall clock that it took, the start of a compiler
    among it where one was needed."""

    answer: tuple[Trace, Compiled] | Failure
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaCost:
    """What is known of the plain-XLA version of a problem: its operations by XLA's own count, and
    all that the chip runs for it."""

    flops: float
    schedule: tuple[ScheduledOperation, ...]


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOAD, NAME, PROBLEM, OPTION = "load", "name", "problem", "option"


@dataclass(frozen=True, kw_only=True)
class CompilerQuestion(Generic[T_co]):
    """Its answer is a ``T_co``. ``form``: the class that the child answers with, None for nothing
    at all."""

    kind: ClassVar[str]
    form: ClassVar[type[Any] | None] = None


@dataclass(frozen=True, kw_only=True)
class OfProblem(CompilerQuestion[T_co]):
    """It is about a problem of a kernel."""

    ref: KernelRef
    problem: Problem


@dataclass(frozen=True, kw_only=True)
class OfConfig(OfProblem[T_co]):
    """It is about a config of that on a chip."""

    config: Config
    chip: Chip


@dataclass(frozen=True, kw_only=True)
class Required(CompilerQuestion[T_co]):
    """It must work for any search to make sense: what fails is raised. ``errors``: as what, by the
    stage that failed; anything else is a ``CompilerUnavailableError``."""

    errors: ClassVar[Mapping[str, type[AutotuneError]]] = {
        LOAD: KernelImportError,
        NAME: NoDeclarationError,
        PROBLEM: InvalidInputError,
        OPTION: InvalidInputError,
    }


@dataclass(frozen=True, kw_only=True)
class Attempted(CompilerQuestion[T_co]):
    """A candidate may fail at it, end the compiler or hang, within the time limit of a candidate:
    that is an answer too, and nothing is raised."""


@dataclass(frozen=True, kw_only=True)
class DescribeToolchain(Required[Toolchain]):
    """The versions that compile. Raises where there is no TPU compiler among them. ``options`` are
    those of its answer. None here and below: those that these compilers were opened with."""

    kind = "hello"
    form = Toolchain
    options: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeChip(Required[ChipInfo]):
    """What this toolchain knows of a chip. Raises where it does not know it, and
    ``InvalidInputError`` where it refuses the compiler options."""

    kind = "chip"
    form = ChipInfo
    chip: Chip
    options: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeKernel(Required[KernelSpec]):
    kind = "describe"
    form = KernelSpec
    ref: KernelRef


class NamedProblem(NamedTuple):
    """``call``: of a decorated function, that with this problem; empty for a declaration."""

    call: str
    problem: Problem


@dataclass(frozen=True, kw_only=True)
class ReadProblem(Required[NamedProblem]):
    """The one place that knows what words mean. Raises ``InvalidInputError``."""

    kind = "problem"
    form = NamedProblem
    ref: KernelRef
    words: ProblemWords


@dataclass(frozen=True, kw_only=True)
class ReadCall(Required[KernelRef]):
    """The reference with the call of a function, which need not be a kernel. Raises as
    ``ReadProblem``."""

    kind = "call"
    form = KernelRef
    ref: KernelRef
    words: ProblemWords


@dataclass(frozen=True, kw_only=True)
class ListChoices(OfProblem[Choices], Required[Choices]):
    """The raw space; with a chip the default is what a user has on it. Raises
    ``InvalidInputError`` with the kernel's own sentence for an impossible problem."""

    kind = "choices"
    form = Choices
    chip: Chip | None = None


@dataclass(frozen=True, kw_only=True)
class CheckDeclaration(OfProblem[None], Required[None]):
    """Raises ``KernelImportError`` with what does not fit together in the declaration."""

    kind = "check"
    chip: Chip


class DeclaredCall(NamedTuple):
    """A declaration that was made of a call. ``code``: Python that decorates a function ``{name}``
    and needs ``imports``; ``args``: of the call, as the command line has them."""

    name: str
    imports: tuple[str, ...]
    code: str
    args: str
    weight: float = 1.0


class Collected(NamedTuple):
    """What a model calls. ``error``: why it could not be traced to its end; ``declarations``: of
    kernels that have none, where that was asked for."""

    problems: list[WorkloadProblem]
    undeclared: list[UndeclaredKernel]
    error: str = ""
    declarations: list[DeclaredCall] = []  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class CollectKernels(Required[Collected]):
    """Trace the function at ``ref``, called as its ``call`` says, and find its kernels; ``names``
    and ``refs`` are those of the catalogue; ``declare`` those that have no declaration; ``likely``:
    configs that they may have."""

    kind = "collect"
    form = Collected
    ref: KernelRef
    chip: Chip | None
    names: tuple[str, ...]
    refs: tuple[KernelRef, ...]
    declare: bool = False
    likely: tuple[Config, ...] = ()


class Traces(NamedTuple):
    """One, or one for each order of a named grid. ``asks_chip``: they may differ on another."""

    traces: list[Trace]
    asks_chip: bool = False


@dataclass(frozen=True, kw_only=True)
class TraceConfig(OfProblem[Traces | Failure], Attempted[Traces | Failure]):
    """``orders``: in every order of a named grid. With a chip: for it, which a kernel needs that
    asks for the TPU while it is traced."""

    kind = "trace"
    form = Traces
    config: Config
    chip: Chip | None = None
    orders: bool = False


class CompiledConfig(NamedTuple):
    """What became of a config that compiles."""

    trace: Trace
    compiled: Compiled


@dataclass(frozen=True, kw_only=True)
class CompileConfig(OfConfig[Attempt], Attempted[Attempt]):
    kind = "compile"
    form = CompiledConfig
    options: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompileBaseline(OfProblem[XlaCost | Failure], Attempted[XlaCost | Failure]):
    """XLA's figures for the plain-XLA version."""

    kind = "baseline"
    form = XlaCost
    chip: Chip
    options: str | None = None


class Underway(NamedTuple):
    """For how long an answer takes, at most, and what is done for it of what there is to do."""

    left_s: float
    done: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class CompileStep(Attempted[CompiledStep | Failure]):
    """The function at ``ref`` as its module jits it, called as its ``call`` says. ``bounds``:
    chips of a slice along its axes; none for one device. ``budget_s``: the compiler
    is stopped after so long, as soon as its scheduled module is there, and what was compiled until
    then is simulated; that process answers no more. Raises ``NoDeclarationError``."""

    kind = "step"
    form = CompiledStep
    ref: KernelRef
    chip: Chip
    bounds: tuple[int, ...] = ()
    budget_s: float
    options: str | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(OfConfig[Verdict], Attempted[Verdict]):
    """Run it in interpret mode against its reference; a config that ends the compiler, or hangs, is
    not verified. ``budget_s``: what is known to take much longer is not run."""

    kind = "verify"
    form = Verdict
    budget_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class WriteExecutable(OfProblem[Failure | None], Attempted[Failure | None]):
    """Compile a config (None: plain XLA) under a name and write what the measuring process loads to
    a file; for the CPU without a chip."""

    kind = "executable"
    config: Config | None
    name: str
    chip: Chip | None
    path: str
    options: str | None = None


class Compilers(Protocol):
    """Each method raises ``CompilerUnavailableError`` where no compiler can be started, and
    whatever the compilers raise to those who still wait when they are closed."""

    @property
    def size(self) -> int:
        """How many questions are answered at a time."""

    def ask(self, question: CompilerQuestion[T]) -> T:
        """Wait for the answer."""

    def submit(self, question: CompilerQuestion[T]) -> Future[T]:
        """Answered as soon as a compiler is free."""

    def underway(self, question: CompilerQuestion[Any]) -> Underway | None:
        """How far a question that was submitted is, where that is known."""

    def ask_all(self, questions: Sequence[CompilerQuestion[T]]) -> Iterator[T]:
        """The answers in the order of the questions. All compilers take part; what is not waited
        for any more is given up."""
