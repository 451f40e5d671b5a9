"""The measuring child: the only process that opens the accelerator. Run as a script, like the
compiler's worker, whose protocol it speaks."""

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
    import autotune.domain  # noqa: F401  (cached, so that the folder can leave the path again)

    sys.path.pop(0)
    sys.path[:] = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]
    from autotune.compiling.child.guardian import stand_guard

    stand_guard(Path(sys.argv[1]).parent)  # before NumPy starts its threads

from autotune.compiling import protocol
from autotune.compiling.child.loading import Loader, LoadError
from autotune.compiling.child.measure import accelerator
from autotune.compiling.child.serving import StageError, answered, serve
from autotune.compiling.protocol import Device, Loaded, Sample, Samples
from autotune.declaring.kernel import Kernel
from autotune.domain.compilers import LOAD, OfProblem
from autotune.domain.evidence import NotMeasured
from autotune.domain.problem import Problem

STAGES: dict[type[BaseException], str] = {
    accelerator.CannotOpenError: protocol.OPEN,
    LoadError: LOAD,
    BaseException: protocol.RUN,
}


class Measurer:
    """One handler per question; every answer is plain JSON data."""

    def __init__(self) -> None:
        self.loader = Loader()
        self.device: Any = None
        self.programs: dict[str, Any] = {}
        self.inputs: accelerator.Inputs = []
        self.taken = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return answered(self, protocol.MeasuringQuestion, request, STAGES)

    def do_open(self, question: protocol.OpenDevice) -> Device:
        self.device = accelerator.open_device(question.number)
        return accelerator.description(self.device)

    def do_inputs(self, question: protocol.MakeInputs) -> None:
        self.inputs = accelerator.rotated_inputs(
            *self._subject(question), question.seed, self.device
        )

    def do_load(self, question: protocol.LoadProgram) -> Loaded:
        program, loaded = None, Loaded(compiled_here=question.path is None)
        if question.path is not None:
            try:
                program = accelerator.load(Path(question.path), self.device)
            except StageError as error:
                loaded = Loaded(compiled_here=True, refusal=str(error))
        if program is None:
            program = accelerator.compiled(
                *self._subject(question),
                question.config,
                question.name,
                question.chip,
                device=self.device,
            )
        accelerator.warm_up(program, self.inputs)
        self.programs[question.name] = program
        return loaded

    def do_sample(self, question: protocol.TakeSamples) -> Samples:
        times = accelerator.timed(
            question.order, self.programs, self.inputs, self.taken, self.device
        )
        self.taken += len(question.order)
        return Samples(
            [Sample(None, t.reason) if isinstance(t, NotMeasured) else Sample(t) for t in times]
        )

    def _subject(self, question: OfProblem[Any]) -> tuple[Kernel, Problem]:
        return self.loader.kernel(question.ref), question.problem


def main() -> None:
    """``worker.py FOLDER``."""
    serve(lambda: Measurer().answer)


if __name__ == "__main__":
    main()
