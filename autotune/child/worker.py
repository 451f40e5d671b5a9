"""The child process: reads requests on stdin, answers on what was stdout. Run as a script.

It starts without the parent's packages on its path, under any Python 3.11+ with any JAX from 0.6:
the one folder it needs is its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import autotune  # noqa: F401  (cached, so that the folder can leave the path again)

    sys.path.pop(0)
    sys.path[:] = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]
    from autotune.child.guardian import stand_guard

    stand_guard(Path(sys.argv[1]).parent)  # before NumPy starts its threads

from autotune.catalogue.discovery import fingerprint
from autotune.child import chips
from autotune.child.compile import build, declaration
from autotune.child.loading import Loader, LoadError
from autotune.child.serving import failed, serve
from autotune.compiler import libtpu
from autotune.domain.chip import Chip
from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.problem import Problem
from autotune.kernel import Kernel


class CompilerWorker:
    """One handler per request; every answer is plain JSON data."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.loader = Loader()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"ok": ...}`` or ``{"error": ...}``; nothing a candidate does gets past here."""
        try:
            return {"ok": getattr(self, "do_" + request["do"])(request)}
        except build.StageError as error:
            return failed(error.cause, error.stage)
        except LoadError as error:
            return failed(error, "load")
        except Exception as error:
            return failed(error, "request")
        except BaseException as error:  # SystemExit, KeyboardInterrupt: a candidate's whim as well
            return failed(error, "kernel")

    def do_hello(self, _: dict[str, Any]) -> dict[str, Any]:
        import jax
        import jaxlib

        toolchain = {
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "libtpu": libtpu.version() or "none",
        }
        return {"toolchain": toolchain, "python": sys.version.split()[0], "pid": os.getpid()}

    def do_chip(self, request: dict[str, Any]) -> dict[str, Any]:
        import dataclasses

        return dataclasses.asdict(chips.chip_info(Chip(request["chip"]), self.dump))

    def do_describe(self, request: dict[str, Any]) -> dict[str, Any]:
        ref = KernelRef(**request["ref"])
        kernel = self.loader.kernel(ref)
        spec = KernelSpec(
            name=kernel.name,
            fingerprint=fingerprint(ref),
            problems=kernel.problem_spec,
            axes=tuple(axis.name for axis in kernel.axes),
            grid=kernel.grid,
            doc=kernel.doc or "",
            cuts=tuple((axis.name, axis.dim) for axis in kernel.axes if axis.dim),
        )
        return to_data(spec)

    def do_choices(self, request: dict[str, Any]) -> dict[str, Any]:
        kernel, problem = self._subject(request)
        with _blaming(kernel, request):
            sentence = kernel.check(problem) if kernel.check else None
            if sentence:
                return {"impossible": sentence}
            return {
                "impossible": None,
                "choices": declaration.choices(kernel, problem, request["chip"]),
                "default": kernel.default_axes(problem, request["chip"]),
                "grid": list(kernel.grid),
            }

    def do_check(self, request: dict[str, Any]) -> None:
        kernel, problem = self._subject(request)
        with _blaming(kernel, request):
            sentence = declaration.complaint(kernel, problem, Chip(request["chip"]))
            if sentence:
                raise ValueError(sentence)

    def do_trace(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        kernel, problem = self._subject(request)
        chip = Chip(request["chip"]) if request.get("chip") else None
        answers = []
        for data in request["configs"]:
            try:
                traces = build.trace_config(
                    kernel, problem, from_data(Config, data), orders=request["orders"], chip=chip
                )
                answers.append({"ok": [to_data(trace) for trace in traces]})
            except build.StageError as error:
                answers.append(failed(error.cause, error.stage))
        return answers

    def do_compile(self, request: dict[str, Any]) -> dict[str, Any]:
        kernel, problem = self._subject(request)
        config = from_data(Config, request["config"])
        trace, compiled = build.compile_config(
            kernel, problem, config, Chip(request["chip"]), self.dump
        )
        return {"trace": to_data(trace), "compiled": dict(compiled)}

    def do_draw(self, request: dict[str, Any]) -> dict[str, Any]:
        kernel, problem = self._subject(request)
        config, chip = from_data(Config, request["config"]), Chip(request["chip"])
        steps = request["steps"]
        return dict(build.draw_config(kernel, problem, config, chip, self.dump, steps))

    def do_baseline(self, request: dict[str, Any]) -> dict[str, Any]:
        kernel, problem = self._subject(request)
        return dict(build.compile_baseline(kernel, problem, Chip(request["chip"]), self.dump))

    def do_verify(self, request: dict[str, Any]) -> dict[str, Any]:
        from autotune.child.verify import gate

        kernel, problem = self._subject(request)
        config = from_data(Config, request["config"])
        return to_data(gate.check(kernel, problem, config, Chip(request["chip"])))

    def do_executable(self, request: dict[str, Any]) -> dict[str, Any]:
        from autotune.child.measure import programs

        kernel, problem = self._subject(request)
        config = request["config"] and from_data(Config, request["config"])
        chip = request["chip"] and Chip(request["chip"])
        compiled = programs.compiled(kernel, problem, config, request["name"], chip)
        libtpu.clear(self.dump)
        return {"bytes": programs.save(compiled, Path(request["path"]))}

    def _subject(self, request: dict[str, Any]) -> tuple[Any, Problem]:
        kernel = self.loader.kernel(KernelRef(**request["ref"]))
        return kernel, from_data(Problem, request["problem"])


@contextmanager
def _blaming(kernel: Kernel, request: dict[str, Any]) -> Iterator[None]:
    """What a declaration raises is a sentence that names its file."""
    try:
        yield
    except Exception as error:
        told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise LoadError(f"kernel {kernel.name} in {request['ref']['path']}: {told}") from error


def main() -> None:
    """``worker.py DUMP_FOLDER``."""
    serve(lambda: CompilerWorker(Path(sys.argv[1])).answer)


if __name__ == "__main__":
    main()
