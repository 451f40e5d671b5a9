"""What is asked of compilers; the answers are plain data. They may be processes, or a farm."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.compiled import Attempt, XlaCost
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.outcome import Failure
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace
from autotune.domain.verdict import Verdict


class Describer(Protocol):
    """For whoever begins a search. What it raises is an ``AutotuneError`` with a sentence."""

    def toolchain(self) -> Toolchain:
        """The versions that compile."""

    def chip_info(self, chip: Chip) -> ChipInfo:
        """What this toolchain knows of a chip."""

    def describe(self, ref: KernelRef) -> KernelSpec:
        """A kernel as plain data."""

    def problem(self, ref: KernelRef) -> Problem:
        """Of the call of a decorated function that the reference names."""

    def choices(self, ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Choices:
        """The raw space; with ``chip`` the default is what a user has on it."""

    def check(self, ref: KernelRef, problem: Problem, chip: Chip) -> None:
        """Raises ``KernelImportError`` with what does not fit together in the declaration."""


class Tracer(Protocol):
    """For the space."""

    def traces(
        self,
        ref: KernelRef,
        problem: Problem,
        configs: Sequence[Config],
        *,
        orders: bool,
        chip: Chip | None = None,
    ) -> Iterator[list[Trace] | Failure]:
        """For each config, in the order given, its traces (one per grid order, or one), or why
        there are none. All compilers take part; what is not waited for any more is given up."""


class CandidateCompiler(Protocol):
    """For the search."""

    @property
    def size(self) -> int:
        """How many candidates are compiled at a time."""

    def compile(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip
    ) -> Future[Attempt]:
        """Raises nothing for what the candidate does."""


class Verifier(Protocol):
    """For publishing."""

    def verify(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        """What the gate says of a config; one that ends a compiler, or hangs, is not verified."""

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        """XLA's figures for the plain-XLA version."""


class ExecutableCompiler(Protocol):
    """For measuring."""

    def executable(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config | None,
        name: str,
        chip: Chip | None,
        path: Path,
    ) -> Failure | None:
        """Compile a config (None: plain XLA) and write what the measuring process loads."""


class Compilers(Describer, Tracer, CandidateCompiler, Verifier, ExecutableCompiler, Protocol):
    """All of it. Each method raises ``CompilerUnavailableError`` where no compiler can be started,
    and whatever the pool raises to those who still wait when it is closed."""
