"""Changed tables as the formatter of their project writes them: what its commits are checked with
(``.pre-commit-config.yaml``), else what its ``pyproject.toml`` configures."""

import os
import re
import shutil
import subprocess
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autotune.tables.export import FileChange, Formatting

_HOOK = re.compile(r"^\s*-\s+id:\s*(?:(yapf|black)(?:-jupyter)?|(ruff)-format)\s*$", re.M)
_COMMANDS = {
    "yapf": ["yapf"],
    "black": ["black", "--quiet", "--stdin-filename={}", "-"],
    "ruff": ["ruff", "format", "--quiet", "--stdin-filename={}", "-"],
}


def formatted(change: FileChange, repository: Path, python: str) -> FileChange:
    """A change of Python source, formatted where the file was so before: else more would change
    than rows. The formatter is that of the interpreter, or on the path."""
    file = repository / change.file
    name = _formatter(file, repository) if file.suffix == ".py" else ""
    if not name:
        return change
    program, *rest = _COMMANDS[name]
    found = shutil.which(program, path=f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        return replace(change, formatter=name, formatting=Formatting.NOT_INSTALLED)
    command = [found, *(word.format(file) for word in rest)]
    texts = [_output(command, text, file.parent) for text in (change.before, change.after)]
    if texts[0] != change.before or not texts[1]:
        return replace(change, formatter=name, formatting=Formatting.OTHERWISE)
    return replace(change, after=texts[1], formatter=name, formatting=Formatting.DONE)


def _output(command: list[str], text: str, folder: Path) -> str:
    """Empty where it fails."""
    done = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True)
    return "" if done.returncode else done.stdout


def _formatter(file: Path, repository: Path) -> str:
    """Its name; empty where none is configured."""
    with suppress(OSError):
        hooks = (repository / ".pre-commit-config.yaml").read_text(encoding="utf-8")
        if hook := _HOOK.search(hooks):
            return hook[1] or hook[2]
    for folder in file.relative_to(repository).parents:
        with suppress(OSError, tomllib.TOMLDecodeError):
            text = (repository / folder / "pyproject.toml").read_text(encoding="utf-8")
            tools = tomllib.loads(text).get("tool", {})
            if configured := [name for name in _COMMANDS if name in tools]:
                return configured[0]
    return ""
