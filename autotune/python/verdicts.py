"""What a kernel's own rules say of configs, asked when a model first traces it with one. To trace
it once more takes some 40 ms: the verdict is kept on disk. What a search has proven for exactly
this key is not asked."""

import logging
import os
import sys
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Thread

from autotune.declaring.calls.listening import LISTENER
from autotune.declaring.kernel import Kernel
from autotune.domain.folders import cache_folder
from autotune.domain.key import Key
from autotune.domain.problem import Config, make_config
from autotune.domain.version import VERSION

_log = logging.getLogger("autotune")

_LIMIT_S = 30.0  # a model waits no longer for it


def refused_by_rules(kernel: Kernel, key: Key, config: Config, *, is_proven: bool = False) -> str:
    """Why the config cannot run for this key, in one sentence; empty where that is not shown, and
    where nothing is traced in this process, as it has no JAX. ``is_proven``: by a search with the
    toolchain of the key, which went by the same rules."""
    jax = sys.modules.get("jax")
    if jax is None or (is_proven and jax.__version__ == key.toolchain.jax):
        return ""
    file, known = _known(key.fingerprint)
    asked = f"{key} {key.toolchain.options} {config!r} {jax.__version__} {VERSION}"
    digest = sha256(asked.encode()).hexdigest()[:16]
    if digest not in known:
        answer: list[str] = []
        work = Thread(target=copy_context().run, args=(_judge, answer, kernel, key, config))
        work.daemon = True
        work.start()  # where a model is traced there may be a mesh, or axes of its own
        work.join(_LIMIT_S)
        known[digest] = answer[0] if answer else ""  # what took too long is not asked again
        if answer:
            with suppress(OSError), file.open("a", encoding="utf-8") as verdicts:
                verdicts.write(f"{digest} {answer[0]}\n")
    return known[digest]


def _judge(answer: list[str], kernel: Kernel, key: Key, config: Config) -> None:
    LISTENER.set(None)  # this is no call of the model
    try:
        from autotune.compiling.child.static_rules import refusal
        from autotune.wording.outcome import reason_of

        default = make_config(kernel.default_axes(key.problem, key.chip), grid_order=kernel.grid)
        chip, options = key.chip, key.toolchain.options
        refused = refusal(kernel, key.problem, config, default, chip, options)
    except Exception as error:  # it cannot be traced here: the model will say what is wrong
        _log.debug("autotune: the rules of %s cannot be asked: %s", kernel.name, error)
        refused = None
    text = ""
    if isinstance(refused, Exception):
        text = f"is refused by the kernel ({type(refused).__name__}: {str(refused)[:200]})"
    elif refused:
        text = f"cannot run: {reason_of(refused)}"
    answer.append(" ".join(text.split()))


@cache
def _known(fingerprint: str) -> tuple[Path, dict[str, str]]:
    """The file, and its reasons by digest, as read when the first is asked for."""
    file, lines = (cache_folder() or Path(os.devnull)) / f"{fingerprint}.verdicts", list[str]()
    with suppress(OSError, ValueError):
        lines = file.read_text(encoding="utf-8").splitlines()
    return file, {digest: reason for digest, _, reason in (line.partition(" ") for line in lines)}
