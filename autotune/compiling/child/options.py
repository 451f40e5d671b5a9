"""Options of the TPU compiler, in the child."""

import os
import re
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.serving import StageError
from autotune.domain.compiler_options import for_executable, parsed

_NOT_OF_EXECUTABLE = re.compile(r"No such compile option: '(\w+)'")


def compile_with(lowered: Any, options: str | None, **ours: str | bool) -> Any:
    """What JAX has lowered, with these options but for those that libtpu was loaded with, and with
    ``ours``, as far as it knows these. Raises ``StageError`` with the name of one that no program
    takes by itself; else what JAX raises."""
    loaded = parsed(os.environ.get(libtpu.READ_ONCE, ""))
    asked = {n: value for n, value in for_executable(options or "").items() if n not in loaded}
    given = asked | ours
    if not given:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=given)
    except Exception as error:
        refused = _NOT_OF_EXECUTABLE.search(str(error))
        if refused is None:
            raise
        if ours.pop(refused[1], None) is not None:
            return compile_with(lowered, options, **ours)
        raise StageError(protocol.READ_ONCE, ValueError(refused[1])) from error
