"""The child process: reads requests on stdin, answers on what was stdout. Run as a script.

It starts without the parent's packages on its path, under any Python 3.11+ with any JAX from 0.6:
the one folder it needs is its own.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from autotune.compiling.child.loading import Loader, LoadError, NameLoadError
from autotune.compiling.child.serving import answered, serve
from autotune.declaring.discovery import fingerprint
from autotune.declaring.kernel import Kernel
from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.codec import from_data
from autotune.domain.compiled import Compiled, XlaCost
from autotune.domain.config import Config
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.verdict import Verdict


class CompilerWorker:
    """One handler per request; every answer is plain JSON data."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.loader = Loader()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return answered(self, protocol.AnyQuestion, request, STAGES)

    def do_hello(self, _: protocol.Hello) -> protocol.Greeting:
        import jax
        import jaxlib

        toolchain = Toolchain(
            jax=jax.__version__, jaxlib=jaxlib.__version__, libtpu=libtpu.version() or "none"
        )
        return protocol.Greeting(toolchain, sys.version.split()[0], os.getpid())

    def do_chip(self, asked: protocol.DescribeChip) -> ChipInfo:
        return chips.chip_info(asked.chip, self.dump)

    def do_describe(self, asked: protocol.DescribeKernel) -> KernelSpec:
        kernel = self.loader.kernel(asked.ref)
        return KernelSpec(
            name=kernel.name,
            fingerprint=fingerprint(asked.ref, kernel.form),
            problems=kernel.problem_spec,
            axes=tuple(axis.name for axis in kernel.axes),
            grid=kernel.grid,
            doc=kernel.doc or "",
            form=kernel.form,
            cuts=tuple((axis.name, axis.dim) for axis in kernel.axes if axis.dim),
        )

    def do_problem(self, asked: protocol.ProblemOfCall) -> Problem:
        return self.loader.problem(asked.ref)

    def do_choices(self, asked: protocol.ListChoices) -> Choices:
        kernel, problem = self._kernel(asked), asked.problem
        with _blaming(kernel, asked), chips.told_of(asked.chip, {}):
            sentence = kernel.check(problem) if kernel.check else None
            if sentence:
                raise ImpossibleError(sentence)
            chip = asked.chip and asked.chip.value
            return Choices(
                axes=declaration.choices(kernel, problem, chip),
                default=kernel.default_axes(problem, chip),
                grid=kernel.grid,
            )

    def do_check(self, asked: protocol.CheckDeclaration) -> None:
        kernel = self._kernel(asked)
        assert asked.chip is not None
        with _blaming(kernel, asked):
            sentence = declaration.complaint(kernel, asked.problem, asked.chip)
            if sentence:
                raise ValueError(sentence)

    def do_trace(self, asked: protocol.TraceConfig) -> protocol.Traces:
        kernel, problem, chip = self._kernel(asked), asked.problem, asked.chip
        found = build.trace_config(kernel, problem, asked.config, orders=asked.orders, chip=chip)
        # Nothing is forgotten: JAX keeps what functions inside of it have given, and asks no more.
        return protocol.Traces(found, bool(chips.READS))

    def do_compile(self, asked: protocol.CompileConfig) -> protocol.CompiledConfig:
        trace, compiled = build.compile_config(*self._candidate(asked), self.dump)
        return protocol.CompiledConfig(trace, from_data(Compiled, compiled))

    def do_draw(self, asked: protocol.DrawConfig) -> protocol.Drawn:
        found = build.draw_config(*self._candidate(asked), self.dump, asked.steps)
        return from_data(protocol.Drawn, found)

    def do_baseline(self, asked: protocol.CompileBaseline) -> XlaCost:
        kernel = self._kernel(asked)
        assert asked.chip is not None
        return build.compile_baseline(kernel, asked.problem, asked.chip, self.dump)

    def do_verify(self, asked: protocol.VerifyConfig) -> Verdict:
        from autotune.compiling.child.verify import gate

        return gate.check(*self._candidate(asked))

    def do_collect(self, asked: protocol.CollectKernels) -> protocol.Collected:
        from autotune.compiling.child.collecting import collect

        known = dict(zip(asked.names, asked.refs, strict=True))
        return collect(self.loader, asked.ref, asked.chip, known)

    def do_executable(self, asked: protocol.WriteExecutable) -> None:
        from autotune.compiling.child.measure import programs

        compiled = programs.compiled(
            self._kernel(asked), asked.problem, asked.config, asked.name, asked.chip
        )
        libtpu.clear(self.dump)
        programs.save(compiled, Path(asked.path))

    def _kernel(self, asked: protocol.OfProblem[Any]) -> Kernel:
        return self.loader.kernel(asked.ref)

    def _candidate(self, asked: protocol.OfConfig[Any]) -> tuple[Kernel, Problem, Config, Chip]:
        assert asked.chip is not None
        return self._kernel(asked), asked.problem, asked.config, asked.chip


class ImpossibleError(Exception):
    """The problem is impossible, in the kernel's own words."""


STAGES: dict[type[BaseException], str] = {
    ImpossibleError: protocol.PROBLEM,
    NameLoadError: protocol.NAME,
    LoadError: protocol.LOAD,
    Exception: "request",
    BaseException: "kernel",
}


@contextmanager
def _blaming(kernel: Kernel, asked: protocol.OfProblem[Any]) -> Iterator[None]:
    """What a declaration raises is a sentence that names its file."""
    try:
        yield
    except ImpossibleError:
        raise
    except Exception as error:
        told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise LoadError(f"kernel {kernel.name} in {asked.ref.path}: {told}") from error


def main() -> None:
    """``worker.py DUMP_FOLDER``."""
    own = libtpu.interpreting_flags(libtpu.version("jaxlib") or "")
    os.environ["XLA_FLAGS"] = f"{own} {os.environ.get('XLA_FLAGS', '')}"  # the later one counts
    libtpu.log_the_packing(Path(sys.argv[1]))
    serve(lambda: CompilerWorker(Path(sys.argv[1])).answer)


if __name__ == "__main__":
    main()
