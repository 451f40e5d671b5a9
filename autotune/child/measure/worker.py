"""The measuring child: the only process that opens the accelerator. Run as a script, like the
compiler's worker, whose protocol it speaks."""

import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    import autotune  # noqa: F401  (cached, so that the folder can leave the path again)

    sys.path.pop(0)
    sys.path[:] = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]
    from autotune.child.guardian import stand_guard

    stand_guard(Path(sys.argv[1]).parent)  # before NumPy starts its threads

from autotune.child.compile.build import StageError
from autotune.child.loading import Loader, LoadError
from autotune.child.measure import device as accelerator
from autotune.child.measure import programs
from autotune.child.serving import failed, serve
from autotune.domain.chip import Chip
from autotune.domain.codec import from_data
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.measurement import NotMeasured
from autotune.domain.problem import Problem
from autotune.kernel import Kernel


class Measurer:
    """One handler per request; every answer is plain JSON data."""

    def __init__(self) -> None:
        self.loader = Loader()
        self.device: Any = None
        self.programs: dict[str, Any] = {}
        self.inputs: accelerator.Inputs = []
        self.taken = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"ok": ...}`` or ``{"error": ...}`` with the stage: open, load, compile, run."""
        try:
            return {"ok": getattr(self, "do_" + request["do"])(request)}
        except accelerator.CannotOpenError as error:
            return failed(error, "open")
        except StageError as error:
            return failed(error.cause, error.stage)
        except LoadError as error:
            return failed(error, "load")
        except BaseException as error:  # a candidate's whim as well
            return failed(error, "run")

    def do_hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid()}

    def do_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.device = accelerator.open_device(request["device"])
        return accelerator.description(self.device)

    def do_inputs(self, request: dict[str, Any]) -> int:
        kernel, problem = self._subject(request)
        self.inputs = accelerator.rotated_inputs(kernel, problem, request["seed"], self.device)
        return len(self.inputs)

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a candidate ready and run it once or twice; ``note``: why it was compiled here."""
        note, program = "it was not compiled elsewhere", None
        if request["path"]:
            try:
                program = programs.load(Path(request["path"]), self.device)
                note = ""
            except StageError as error:
                note = f"what was compiled elsewhere is refused here: {error}".splitlines()[0][:240]
        if program is None:
            program = self._compiled(request)
        accelerator.warm_up(program, self.inputs)
        self.programs[request["name"]] = program
        return {"note": note}

    def do_sample(self, request: dict[str, Any]) -> list[int | str]:
        """Picoseconds of each run, or a sentence why there are none."""
        order = request["order"]
        times = accelerator.timed(order, self.programs, self.inputs, self.taken, self.device)
        self.taken += len(order)
        return [time.reason if isinstance(time, NotMeasured) else time for time in times]

    def _compiled(self, request: dict[str, Any]) -> Any:
        kernel, problem = self._subject(request)
        config = request["config"] and from_data(Config, request["config"])
        chip = Chip(request["chip"]) if request["chip"] else None
        return programs.compiled(kernel, problem, config, request["name"], chip, self.device)

    def _subject(self, request: dict[str, Any]) -> tuple[Kernel, Problem]:
        kernel = self.loader.kernel(KernelRef(**request["ref"]))
        return kernel, from_data(Problem, request["problem"])


def main() -> None:
    """``worker.py FOLDER``."""
    serve(lambda: Measurer().answer)


if __name__ == "__main__":
    main()
