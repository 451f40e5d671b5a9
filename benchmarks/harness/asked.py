"""``python -m benchmarks.harness.asked LOG COMMAND …``: a command of ours whose questions to the
compilers are counted, a JSON line each: its kind, and the processor seconds of the child."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil

from autotune.compiling.process import CompilerProcess

START, DRIVER = "starting a compiler", "the driver"


def _seconds_of(process: CompilerProcess) -> float:
    child = process._child
    if child is None:
        return 0.0
    try:
        used = psutil.Process(child.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(used.user + used.system)


def _count(log: Path) -> None:
    asked, ended = CompilerProcess.ask, os._exit

    def write(kind: str, seconds: float) -> None:
        with log.open("a") as file:
            file.write(json.dumps([kind, seconds]) + "\n")

    def ask(process: CompilerProcess, request: Any, limit_s: float) -> dict[str, Any]:
        kind = str(request["kind"]) if process.running else START
        before = _seconds_of(process)
        try:
            return asked(process, request, limit_s)
        finally:
            write(kind, max(0.0, _seconds_of(process) - before))

    def end(code: int) -> NoReturn:
        used = os.times()
        write(DRIVER, used.user + used.system)
        ended(code)

    CompilerProcess.ask, os._exit = ask, end  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    _count(Path(sys.argv.pop(1)))
    from autotune.cli.main import main

    main()
