"""Changed tables as the formatter of their project writes them: what its commits are checked with
(``.pre-commit-config.yaml``), else what its ``pyproject.toml`` configures."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from autotune.tables.export import FileChange

_NAMED = re.compile(r"^\s*(?:- +id: *|\[tool\.)(yapf|black|ruff(?!-check| *$))", re.M)
_ARGUMENTS = {
    "yapf": [],
    "black": ["--quiet", "--stdin-filename={}", "-"],
    "ruff": ["format", "--quiet", "--stdin-filename={}", "-"],
}


def formatted(change: FileChange, repository: Path, python: str) -> FileChange:
    """By the program beside the interpreter, or on the path. A file that it would have written
    otherwise before stays as it is: more would change than rows."""
    repository = repository.absolute()
    file, beside = repository / change.file, Path(shutil.which(python) or python).absolute().parent
    name = _formatter(file, repository) if file.suffix == ".py" else ""
    places = f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    program = shutil.which(name, path=places) if name else None
    if program:
        words = [word.format(file) for word in _ARGUMENTS[name]]
        run = partial(subprocess.run, [str(Path(program).absolute()), *words], cwd=file.parent)
        with suppress(OSError):
            texts = (change.before, change.after)
            done = (run(input=t, capture_output=True, encoding="utf-8").stdout for t in texts)
            if next(done) == change.before and (after := next(done)):
                return replace(change, formatter=name, is_formatted=True, after=after)
    return replace(change, formatter=name)


def _formatter(file: Path, repository: Path) -> str:
    """Its name; empty where none is configured."""
    configs = [p / "pyproject.toml" for p in file.parents if p.is_relative_to(repository)]
    for config in (repository / ".pre-commit-config.yaml", *configs):
        if config.is_file() and (named := _NAMED.search(config.read_text(encoding="utf-8"))):
            return named[1]
    return ""
