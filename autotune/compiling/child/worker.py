"""The child process: reads requests on stdin, answers on what was stdout. Run as a script.

It starts without the parent's packages on its path, under any Python 3.11+ with any JAX from 0.6:
the one folder it needs is its own.
"""

import gc
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # A simulation makes many objects and no garbage: to look for some took a seventh of it.
    gc.set_threshold(50_000, 20, 20)
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    import autotune.domain  # noqa: F401  (cached, so that the folder can leave the path again)

    sys.path.pop(0)
    sys.path[:] = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]
    from autotune.compiling.child.guardian import stand_guard

    stand_guard(Path(sys.argv[1]).parent)  # before NumPy starts its threads

from autotune.compiling import libtpu, protocol
from autotune.compiling.child import chips
from autotune.compiling.child.compile import build, declaration
from autotune.compiling.child.devices import READS
from autotune.compiling.child.loading import Loader, LoadError, NameLoadError
from autotune.compiling.child.serving import answered, serve
from autotune.declaring.calls.sizes import call_in_words
from autotune.declaring.fingerprint import fingerprint
from autotune.declaring.kernel import Kernel
from autotune.domain import compilers as questions
from autotune.domain.compilers import XlaCost
from autotune.domain.errors import InvalidInputError
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, ChipInfo, Choices, KernelRef, KernelSpec, Toolchain
from autotune.domain.problem import Config, Problem
from autotune.domain.step import CompiledStep


class CompilerWorker:
    """One handler per request; every answer is plain JSON data."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.loader = Loader()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return answered(self, protocol.CompilerQuestion, request, STAGES)

    def do_hello(self, question: questions.DescribeToolchain) -> Toolchain:
        """``libtpu`` is *none* where there is none."""
        import jax
        import jaxlib

        return Toolchain(
            jax=jax.__version__,
            jaxlib=jaxlib.__version__,
            libtpu=libtpu.version() or "none",
            options=question.options or "",
        )

    def do_chip(self, question: questions.DescribeChip) -> ChipInfo:
        return chips.chip_info(question.chip, self.dump, question.options or "")

    def do_describe(self, question: questions.DescribeKernel) -> KernelSpec:
        kernel = self.loader.kernel(question.ref)
        return KernelSpec(
            name=kernel.name,
            fingerprint=fingerprint(question.ref, kernel.form),
            problems=kernel.problem_spec,
            axes=tuple(axis.name for axis in kernel.axes),
            grid=kernel.grid,
            doc=kernel.doc or "",
            form=kernel.form,
            cuts=tuple((axis.name, axis.dim) for axis in kernel.axes if axis.dim),
        )

    def do_problem(self, question: questions.ReadProblem) -> questions.NamedProblem:
        return self.loader.problem(question.ref, question.words)

    def do_call(self, question: questions.ReadCall) -> KernelRef:
        ref = question.ref
        signature = inspect.signature(self.loader.function(ref)[0])
        return replace(ref, call=call_in_words(ref.attribute, signature, question.words, {}))

    def do_choices(self, question: questions.ListChoices) -> Choices:
        kernel, problem = self._kernel(question), question.problem
        with _blaming(kernel, question), chips.told_of(question.chip, {}):
            sentence = kernel.check(problem) if kernel.check else None
            if sentence:
                raise ImpossibleError(sentence)
            chip = question.chip and question.chip.value
            return Choices(
                axes=declaration.choices(kernel, problem, chip),
                default=kernel.default_axes(problem, chip),
                grid=kernel.grid,
            )

    def do_check(self, question: questions.CheckDeclaration) -> None:
        kernel = self._kernel(question)
        with _blaming(kernel, question):
            sentence = declaration.complaint(kernel, question.problem, question.chip)
            if sentence:
                raise ValueError(sentence)

    def do_trace(self, question: questions.TraceConfig) -> questions.Traces:
        kernel, problem, chip = self._kernel(question), question.problem, question.chip
        traces = build.trace_config(
            kernel, problem, question.config, orders=question.orders, chip=chip
        )
        # Nothing is forgotten: JAX keeps what functions inside of it have given, and asks no more.
        return questions.Traces(traces, bool(READS))

    def do_compile(self, question: questions.CompileConfig) -> questions.CompiledConfig:
        return build.compile_config(*self._candidate(question), self.dump, question.options)

    def do_profile(self, question: protocol.ProfileConfig) -> protocol.Profiled:
        from autotune.compiling.child.compile import profile

        if question.problem is None or question.config is None:
            return profile.profile_function(self.loader, question, self.dump)
        return profile.profile_config(self.loader.kernel(question.ref), question, self.dump)

    def do_changes(self, question: protocol.ListChanges) -> protocol.PossibleChanges:
        from autotune.compiling.child.changes.rewriting import possible_changes
        from autotune.compiling.child.changes.rules import missing_costs

        staged = build.stage(*self._candidate(question))
        changes = (*possible_changes(staged.traced.jaxpr), *missing_costs(staged.calls))
        return protocol.PossibleChanges(changes)

    def do_baseline(self, question: questions.CompileBaseline) -> XlaCost:
        kernel, problem, chip = self._kernel(question), question.problem, question.chip
        return build.compile_baseline(kernel, problem, chip, self.dump, question.options)

    def do_step(self, question: questions.CompileStep) -> CompiledStep:
        from autotune.compiling.child.compile.step import compile_step

        return compile_step(self.loader, question, self.dump, self._tell)

    def do_verify(self, question: questions.VerifyConfig) -> Verdict:
        from autotune.compiling.child.verify import gate

        candidate = self._candidate(question)
        return gate.check(
            *candidate,
            budget_s=question.budget_s,
            tell=lambda left_s: self._tell(questions.Underway(left_s)),
        )

    def do_collect(self, question: questions.CollectKernels) -> questions.Collected:
        from autotune.compiling.child.collecting import collect

        known = dict(zip(question.names, question.refs, strict=True))
        more: dict[str, Any] = {"declare": question.declare, "likely": question.likely}
        return collect(self.loader, question.ref, question.chip, known, **more)

    def do_executable(self, question: questions.WriteExecutable) -> None:
        from autotune.compiling.child.measure import accelerator

        compiled = accelerator.compiled(
            self._kernel(question),
            question.problem,
            question.config,
            question.name,
            question.chip,
            question.options,
        )
        libtpu.clear(self.dump)
        accelerator.save(compiled, Path(question.path))

    def _tell(self, underway: questions.Underway) -> None:
        left = f"{underway.left_s:.1f} {underway.done} {underway.total}"
        (self.dump.parent / protocol.UNDERWAY).write_text(left)

    def _kernel(self, question: questions.OfProblem[Any]) -> Kernel:
        return self.loader.kernel(question.ref)

    def _candidate(self, question: questions.OfConfig[Any]) -> tuple[Kernel, Problem, Config, Chip]:
        return self._kernel(question), question.problem, question.config, question.chip


class ImpossibleError(Exception):
    """The problem is impossible, in the kernel's own words."""


STAGES: dict[type[BaseException], str] = {
    ImpossibleError: questions.PROBLEM,
    InvalidInputError: questions.PROBLEM,
    NameLoadError: questions.NAME,
    LoadError: questions.LOAD,
    Exception: "request",
    BaseException: "kernel",
}


@contextmanager
def _blaming(kernel: Kernel, question: questions.OfProblem[Any]) -> Iterator[None]:
    """What a declaration raises is a sentence that names its file."""
    try:
        yield
    except ImpossibleError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise LoadError(f"kernel {kernel.name} in {question.ref.path}: {reason}") from error


def main() -> None:
    """``worker.py DUMP_FOLDER``."""
    flags = libtpu.interpreting_flags(libtpu.version("jaxlib") or "", libtpu.version() or "")
    os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}"  # the later one counts
    libtpu.log_the_packing(Path(sys.argv[1]))
    serve(lambda: CompilerWorker(Path(sys.argv[1])).answer)


if __name__ == "__main__":
    main()
