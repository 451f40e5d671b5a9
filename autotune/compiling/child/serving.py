"""What every child does around its work: private pipes, JSON line by line, limits on the disk."""

import json
import os
import resource
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from autotune.compiling.protocol import Raised
from autotune.domain.codec import from_data, to_data

_MAX_FILE_BYTES = 1 << 30

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class StageError(Exception):
    """A candidate failed at a stage: build, trace or compile. Carries the original as cause."""

    def __init__(self, stage: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.stage, self.cause = stage, cause

    @classmethod
    def of(cls, stage: str, error: Exception) -> "StageError":
        """What says its stage itself stays as it is."""
        return error if isinstance(error, cls) else cls(stage, error)


def serve(make: Callable[[], Answer]) -> None:
    """Answer until nobody is left to ask. ``make`` is called once the pipes are private."""
    requests, answers = _private_pipes()
    _spare_the_disk()
    answer = make()
    for line in requests:
        print(_encoded(answer(json.loads(line))), file=answers, flush=True)


def answered(
    worker: object, questions: Any, request: dict[str, Any], stages: Mapping[type[Any], str]
) -> dict[str, Any]:
    """``{"ok": ...}`` by the worker's method for the question, or ``{"error": ...}``: nothing that
    a candidate does gets past here. ``stages``: what failed, by what was raised, the first that
    fits."""
    try:
        question = from_data(questions, request)
        value = getattr(worker, "do_" + question.kind)(question)
        return {"ok": None if value is None else to_data(value)}
    except StageError as error:
        return failed(error.cause, error.stage)
    except BaseException as error:  # SystemExit, KeyboardInterrupt: a candidate's whim as well
        return failed(error, next(s for kind, s in stages.items() if isinstance(error, kind)))


def failed(error: BaseException, stage: str) -> dict[str, Any]:
    """The answer that says so, and where it was raised; an ``assert`` without words speaks for
    itself."""
    name, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    line = frames[-1].line if frames and isinstance(error, AssertionError) else ""
    place = f"{name} {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    raised = Raised(type=name, message=str(error) or line or "", stage=stage, raised_at=place)
    return {"error": to_data(raised)}


def _encoded(answer: dict[str, Any]) -> str:
    """One line. A kernel may give NumPy's numbers as choices."""
    try:
        return json.dumps(answer, default=lambda value: value.item())
    except Exception as error:
        return json.dumps(failed(error, "request"))


def _private_pipes() -> tuple[IO[str], IO[str]]:
    """Requests and answers. Whatever else reads stdin finds it empty, and whatever libtpu or a
    kernel prints goes to the log."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with Path(os.devnull).open() as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _spare_the_disk() -> None:
    """A kernel that prints without end must not fill it, nor a compiler that dumps its core."""
    for limit, most in ((resource.RLIMIT_FSIZE, _MAX_FILE_BYTES), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        soft = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(limit, (soft, hard))
