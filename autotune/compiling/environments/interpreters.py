"""Python interpreters on this machine, and the one that a release can run under."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from autotune.domain.errors import InvalidInputError

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
    for path in (sys.executable, *filter(None, map(shutil.which, _NAMES)), *_of_pyenv()):
        if (real := str(Path(path).resolve())) not in seen:
            seen.add(real)
            yield path


def _of_pyenv() -> list[str]:
    return sorted(map(str, (Path.home() / ".pyenv").glob(_PYENV)), reverse=True)


def _version(path: str) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return match[1] if match else None
