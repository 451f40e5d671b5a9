"""What JAX an interpreter has, found out in a process of its own."""

import json
import re
import subprocess
from dataclasses import dataclass

from autotune.domain.key import Toolchain

_LACKS = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PACKAGE_OF = {"absl": "absl-py"}  # where the package is not called like the module
_LIMIT_S = 120.0
_ASK = """
import json, platform
from importlib.metadata import version
import jax, jaxlib
from jax.experimental import pallas, topologies
from jax.experimental.pallas import tpu
import numpy
names = ("jax", "jaxlib", "libtpu")
print(json.dumps({"python": platform.python_version(), **{n: version(n) for n in names}}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """One that can compile."""

    python_version: str
    toolchain: Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotCompile:
    """``lacks``: the package whose absence it is, if it is one; ``message``: its last words."""

    lacks: str | None
    message: str


def probe(python: str) -> Interpreter | CannotCompile:
    """Imports there what the compiling child does."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", _ASK],
            capture_output=True,
            text=True,
            env={"JAX_PLATFORMS": "cpu", "PATH": ""},
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CannotCompile(lacks=None, message=str(error))
    if done.returncode:
        lacks = _LACKS.search(done.stderr)
        module = lacks[1].partition(".")[0] if lacks else None
        package = _PACKAGE_OF.get(module, module) if module else None
        return CannotCompile(lacks=package, message=last_words(done.stderr))
    facts = json.loads(done.stdout.splitlines()[-1])
    return Interpreter(python_version=facts.pop("python"), toolchain=Toolchain(**facts))


def last_words(text: str) -> str:
    """The line that says most: the first one that speaks of an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it left no message"])[-1][:300]
