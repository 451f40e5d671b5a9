"""Making an environment from the package index, with uv where it is installed, else with pip.

It is made in its own folder and counts only once its note is there: what a kill leaves behind is
made again by the same command.
"""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from autotune.compiling.environments import environment
from autotune.domain.errors import AutotuneError, InvalidInputError

_NAMES = tuple(f"python3.{minor}" for minor in range(11, 16))
_PYENV = "versions/3.*/bin/python"
_VERSION = re.compile(r"Python (3\.\d+\.\d+)")


def fitting_interpreter(requires: str, release: str, given: str | None = None) -> tuple[str, str]:
    """Path and version of an interpreter that ``release`` can run under: the ``given`` one, else
    the running one if it fits, else another of this machine.

    ``requires``: what the release says of Python, such as ``>=3.12``. Raises ``InvalidInputError``.
    """
    allowed = _allowed(requires)
    tried: list[str] = []
    for path in [given] if given else _known():
        version = _version(path)
        if version is not None and version in allowed:
            return path, version
        tried.append(f"{path} is {version or 'no Python 3'}")
    raise InvalidInputError(
        f"{release} needs Python {allowed}: {'; '.join(tried)}; install one that fits, or name it "
        "with --python"
    )


def _allowed(requires: str) -> SpecifierSet:
    """What the release allows, and our own child: 3.11 and newer."""
    try:
        return SpecifierSet(requires) & SpecifierSet(">=3.11")
    except InvalidSpecifier:
        return SpecifierSet(">=3.11")


def _known() -> Iterator[str]:
    """The running one first, then by name, then those of pyenv; each once."""
    seen = set()
    of_pyenv = sorted(map(str, (Path.home() / ".pyenv").glob(_PYENV)), reverse=True)
    for path in (sys.executable, *filter(None, map(shutil.which, _NAMES)), *of_pyenv):
        if (real := str(Path(path).resolve())) not in seen:
            seen.add(real)
            yield path


def _version(path: str) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return match[1] if match else None


_NEEDED = ("numpy",)  # what the compiling child imports beside JAX
_MOST_FORGOTTEN = 5

Announce = Callable[[str], None]


def create_environment(
    folder: Path,
    release: str,
    *,
    extra: Sequence[str] = (),
    python: str | None = None,
    announce: Announce = lambda _: None,
) -> environment.Environment:
    """An environment for ``release`` (``jax==0.6.2`` or ``0.6.2``); the one that is there already.
    ``0.6.2+libtpu.0.0.20``: another libtpu beside the packages of an interpreter that has that jax,
    of the environment 0.6.2 where no ``python`` is given.

    ``extra``: packages beside it. ``python``: the interpreter to build on. Raises
    ``InvalidInputError`` for what cannot be had, ``AutotuneError`` for what fails on the way.
    """
    version = _version_of(release)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"environments cannot be kept in {folder} ({error.strerror}): name a folder that can "
            "be written with AUTOTUNE_ENVIRONMENTS"
        ) from None
    jax, _, libtpu = version.partition(environment.LIBTPU)
    python = python and os.path.normpath(
        Path.cwd() / (shutil.which(python) or python)
    )  # links stay
    base = ""
    if libtpu:
        base = python or create_environment(folder, jax, announce=announce).python
    name = environment.name_of(version, base)
    with _alone(folder / f".{name}.lock", announce):
        for there in environment.environments(folder):
            is_meant = there.name in (name, version) and there.base == base
            if is_meant and set(extra) <= set(there.extra):
                return environment.checked(there)
        home = folder / name
        if python and Path(python).parent.resolve().is_relative_to(home.resolve()):
            raise InvalidInputError(
                f"{python} lies in the environment {name}, which is to be replaced: name an "
                "interpreter outside of it"
            )
        shutil.rmtree(home, ignore_errors=True)
        announce(f"installing {release}" + (f" beside the packages of {base}" if base else ""))
        fitting = base or fitting_interpreter(_requires_python(jax), f"jax {jax}", python)[0]
        tool = _Installer(fitting, home)
        try:
            tool.make()
            if libtpu:
                tool.install("--no-deps", f"libtpu=={libtpu}")
                tool.share_packages()
            tool.install(f"jax=={jax}" if libtpu else f"jax[tpu]=={jax}", *_NEEDED, *extra)
            interpreter = _import_or_complete(tool, announce)
        except AutotuneError:
            shutil.rmtree(home, ignore_errors=True)
            raise
        made = environment.Environment(
            name=name,
            python=str(tool.python),
            python_version=interpreter.python_version,
            toolchain=interpreter.toolchain,
            extra=tuple(extra),
            base=base,
        )
        environment.keep(folder, made)
    return made


class _Installer:
    """uv or pip on one folder. Raises ``AutotuneError`` with the tool's own last words."""

    def __init__(self, base: str, home: Path) -> None:
        self._base, self._home = base, home
        self.python = home / "bin" / "python"
        self._uv = _uv()

    def make(self) -> None:
        if self._uv:
            _run([*self._uv, "venv", "--quiet", "--python", self._base, str(self._home)])
        else:
            _run([self._base, "-m", "venv", "--without-pip", str(self._home)])

    def install(self, *packages: str) -> None:
        where = "--python", str(self.python)
        if self._uv:
            _run([*self._uv, "pip", "install", "--quiet", *where, *packages])
        else:
            pip = [sys.executable, "-m", "pip", *where, "install", "--quiet"]
            _run([*pip, "--disable-pip-version-check", *packages])

    def share_packages(self) -> None:
        """What the base has is found there as well, behind what is installed here."""
        listed = _run([self._base, "-P", "-c", "import sys; print(*sys.path, sep='\\n')"])
        (ours,) = self._home.glob("lib/python*/site-packages")
        theirs = (place for place in listed.splitlines() if place.endswith("-packages"))
        lines = [f"import site; site.addsitedir({place!r})\n" for place in theirs]
        (ours / "_base.pth").write_text("".join(lines), encoding="utf-8")


def _uv() -> list[str] | None:
    path = shutil.which("uv")
    if path:
        return [path]
    return [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") else None


def _version_of(release: str) -> str:
    try:
        wanted = Requirement(release if release[:1].isalpha() else f"jax=={release}")
    except InvalidRequirement:
        raise _no_release(release) from None
    pins = [spec.version for spec in wanted.specifier if spec.operator == "=="]
    if wanted.name != "jax" or len(pins) != 1 or len(wanted.specifier) != 1 or "*" in pins[0]:
        raise _no_release(release)
    return pins[0]


def _no_release(release: str) -> InvalidInputError:
    return InvalidInputError(f"{release!r} is not a release of JAX: write it as jax==0.10.2")


def _requires_python(version: str) -> str:
    """What the release says of Python: read from its metadata, nothing is installed."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    command += ["--ignore-requires-python", "--ignore-installed", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--report", "-", f"jax=={version}"], capture_output=True, text=True
    )
    if done.returncode:
        raise InvalidInputError(
            f"jax {version} cannot be had from the package index: "
            f"{environment.last_words(done.stderr)}"
        )
    metadata = json.loads(done.stdout)["install"][0]["metadata"]
    return str(metadata.get("requires_python", ""))


def libtpu_releases(first: str, last: str) -> list[str]:
    """Those of the package index from one to another, older or newer, in that order. Raises
    ``AutotuneError``."""
    listed = _run([sys.executable, "-m", "pip", "index", "versions", "libtpu"])
    names = re.findall(r"[^\s,]+", listed.partition("Available versions:")[2].partition("\n")[0])
    low, high = sorted(map(Version, (first, last)))
    between = [name for name in names if low < Version(name) < high]
    return sorted(between, key=Version, reverse=Version(first) > low)


def _import_or_complete(tool: _Installer, announce: Announce) -> environment.Interpreter:
    """What is in the environment. What a release forgot to ask for is installed beside it."""
    for _ in range(_MOST_FORGOTTEN):
        interpreter = environment.probe(str(tool.python))
        if isinstance(interpreter, environment.Interpreter):
            return interpreter
        if interpreter.lacks is None:
            raise AutotuneError(f"JAX cannot be imported there: {interpreter.message}")
        announce(f"installing {interpreter.lacks}, which this release of JAX forgot to ask for")
        tool.install(interpreter.lacks)
    raise AutotuneError("JAX cannot be imported there: it lacks one package after another")


def _run(command: Sequence[str]) -> str:
    """What it prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise AutotuneError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        raise AutotuneError(
            f"`{' '.join(command[:4])} …` failed: {environment.last_words(done.stderr)}"
        )
    return done.stdout


@contextmanager
def _alone(lock: Path, announce: Announce) -> Iterator[None]:
    """Two commands that make the same environment: the second waits, and finds it made."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("another command is making it: waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
