"""An environment on disk, finding the one that is meant, and what JAX an interpreter has, found out
in a process of its own."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from packaging.version import Version

from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError, UnknownNameError
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
    facts = _answer(done.stdout) or {}
    if "python" not in facts:
        return CannotCompile(lacks=None, message="it does not answer as a Python does")
    return Interpreter(python_version=facts.pop("python"), toolchain=Toolchain(**facts))


def releases(python: str, packages: Iterable[str]) -> dict[str, str] | None:
    """Of those packages that it has; None where it is no Python that can be started."""
    known = "{n: d.version for n in sys.argv[1:] for d in [*distributions(name=n)][:1]}"
    imports = "import json, sys; from importlib.metadata import distributions"
    ask = [python, "-P", "-c", f"{imports}; print(json.dumps({known}))", *packages]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(ask, capture_output=True, text=True, timeout=_LIMIT_S)
        return _answer(done.stdout)
    return None


def _answer(printed: str) -> dict[str, str] | None:
    """The line in JSON among what it printed, a banner too."""
    for line in printed.splitlines():
        with suppress(ValueError):
            if isinstance(answer := json.loads(line), dict):
                return answer
    return None


def last_words(text: str) -> str:
    """The line that says most: the first one that speaks of an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it left no message"])[-1][:300]


FOLDER_VARIABLE = "AUTOTUNE_ENVIRONMENTS"
LIBTPU = "+libtpu."
"""In the name of an environment: the version of its jax, and of a libtpu that is not its own."""

_OF_BASE = "_"  # between the versions and what stands for the base, in a name
_NOTE = "autotune-environment.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment that was finished. ``name``: also of its folder, as ``name_of`` has it;
    ``python``: the path of its interpreter; ``extra``: what was installed beside jax; ``base``: the
    interpreter whose packages it shares, but for libtpu."""

    name: str
    python: str
    python_version: str
    toolchain: Toolchain
    extra: tuple[str, ...] = ()
    base: str = ""


def environments_folder() -> Path:
    """Where environments are kept: ``$AUTOTUNE_ENVIRONMENTS``, else in the user's data."""
    given = os.environ.get(FOLDER_VARIABLE)
    default = Path(platformdirs.user_data_dir("pallas-autotune")) / "environments"
    return Path(given).expanduser().absolute() if given else default


def environments(folder: Path) -> list[Environment]:
    """The finished ones, the newest jax first."""
    known = filter(None, map(_read, sorted(folder.glob(f"*/{_NOTE}"))))
    return sorted(known, key=lambda environment: Version(environment.name), reverse=True)


def unfinished(folder: Path) -> list[str]:
    """The names of those whose making was killed; one that is being made has its lock."""
    names = (k.stem[1:] for k in sorted(folder.glob(".*.lock")) if not _is_locked(k))
    return [n for n in names if (folder / n).is_dir() and _read(folder / n / _NOTE) is None]


def _is_locked(lock: Path) -> bool:
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True


def name_of(version: str, base: str) -> str:
    """The version of its jax, and of its libtpu where that is another than that jax asks for: then
    with a short hash of the base, an absolute path."""
    digest = hashlib.sha256(base.encode()).hexdigest()[:8]
    return f"{version}{_OF_BASE}{digest}" if base else version


def find_environment(folder: Path, wanted: str) -> Environment:
    """The one with this version of jax, or the newest of those that begin with it (``0.12`` is
    0.12.0.1). Raises ``UnknownNameError``, also where several bases have it."""
    known = environments(folder)
    names = [environment.name for environment in known]
    alike = (n for n in names if (LIBTPU in wanted) == (LIBTPU in n))
    fitting = [n for n in alike if n.startswith(f"{wanted}.")]
    of_bases = [n for n in names if n.startswith(f"{wanted}{_OF_BASE}")]
    if wanted not in names and len(of_bases) > 1:
        raise UnknownNameError(f"{wanted} is there on several bases: name {' or '.join(of_bases)}")
    fitting = of_bases or fitting
    for environment in known:
        if environment.name == (wanted if wanted in names else next(iter(fitting), None)):
            return environment
    have = f"there are {', '.join(names)}" if known else "there is none yet"
    raise UnknownNameError(
        f"no environment has jax {wanted} ({have}): make it with `autotune env create "
        f"jax=={wanted}`"
    )


def checked(environment: Environment) -> Environment:
    """It, unless what its base has is another JAX by now. Raises ``InvalidInputError``."""
    now = probe(environment.python) if environment.base else environment
    has = now.message if isinstance(now, CannotCompile) else now.toolchain
    if has != environment.toolchain:
        raise InvalidInputError(
            f"{environment.name} was made with {environment.toolchain}, and with its base "
            f"{environment.base} it has {has} now: `autotune env remove {environment.name}`, and "
            "create it again"
        )
    return environment


def keep(folder: Path, environment: Environment) -> None:
    """Write the note that makes an environment a finished one; it comes last."""
    note = folder / environment.name / _NOTE
    new = note.with_suffix(".new")
    new.write_text(json.dumps(to_data(environment), indent=2), encoding="utf-8")
    new.replace(note)


def remove(folder: Path, name: str) -> None:
    """Delete it, the note first: what is half deleted is no environment."""
    home = folder / name
    (home / _NOTE).unlink(missing_ok=True)
    shutil.rmtree(home)


def _read(note: Path) -> Environment | None:
    """None for a note that was not written by this command."""
    try:
        return from_data(Environment, json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
