"""What the library of a table makes of it: its own functions are called, in its own interpreter."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.domain.errors import CompilerUnavailableError, InvalidInputError
from autotune.domain.key import Chip
from autotune.tables.python_source import ConstructorCall, imports_of
from autotune.tables.python_table import PythonTable
from autotune.tables.table import TableRow

_CHILD = Path(__file__).parents[1] / "compiling" / "child"
_LIMIT_S = 600.0
_KINDS = {  # ``Device.device_kind``, as libraries read it
    Chip.V4: "TPU v4",
    Chip.V5E: "TPU v5 lite",
    Chip.V5P: "TPU v5",
    Chip.V6E: "TPU v6 lite",
    Chip.V7X: "TPU7x",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupAnswer:
    """``paths``: what the lookup asked its table for, for each way to ask for the row; ``made``:
    what it makes of the row's value; ``fallback``: what it takes where the table has nothing;
    ``from_file``: what it takes from the table of the file, where a file was given; ``error``: what
    it has against the question."""

    paths: tuple[tuple[Any, ...], ...]
    made: Any = None
    fallback: Any = None
    from_file: Any = None
    error: str = ""


def ask_lookup(
    form: PythonTable, rows: Sequence[TableRow], chip: Chip, python: str, file: Path | None = None
) -> list[LookupAnswer]:
    """Of each row, under a device of that generation. ``file`` is imported in the place of the
    installed module. Raises ``AutotuneError``."""
    request = {
        "module": form.module,
        "function": form.function,
        "variable": form.looked_up or form.variable,
        "classes": [form.key_class, form.value_class],
        "file": None if file is None else str(file),
        "device_kind": kind_of(chip),
        "rows": [
            {
                "path": _to_plain(row.path),
                "depth": len(row.path),
                "value": _to_plain(form.leaf(row)),
                "asks": [{n: _to_plain(v) for n, v in ask.items()} for ask in form.asks(row)],
            }
            for row in rows
        ],
    }
    reply = ask_child("table_lookup.py", request, python)
    return [
        LookupAnswer(
            paths=tuple(_from_plain(path) for path in answer["paths"] if path is not None),
            made=_from_plain(answer.get("made")),
            fallback=_from_plain(answer.get("fallback")),
            from_file=_from_plain(answer.get("own")),
            error=answer.get("error", ""),
        )
        for answer in reply["rows"]
    ]


def ask_tokamax(files: Sequence[Path], python: str) -> Mapping[Path, Sequence[str]]:
    """Why each entry of each cache file is never found; empty where it is. Raises
    ``CompilerUnavailableError``."""
    asked = [{"op": file.stem, "text": file.read_text(encoding="utf-8")} for file in files]
    reply = ask_child("tokamax_cache.py", {"task": "read", "files": asked}, python)
    return {
        file: [
            why or answer["whole"]
            for why in answer["entries"] or [""] * len(json.loads(question["text"]))
        ]
        for file, question, answer in zip(files, asked, reply["files"], strict=True)
    }


def kind_of(chip: Chip) -> str:
    kind = _KINDS.get(chip)
    if kind is None:
        raise InvalidInputError(f"no library has a table for {chip}")
    return kind


def ask_child(script: str, request: Mapping[str, Any], python: str) -> dict[str, Any]:
    """The answer of a script of the child's room. Raises ``CompilerUnavailableError``."""
    try:
        done = subprocess.run(
            [python, "-P", str(_CHILD / script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        reply: dict[str, Any] = json.loads(done.stdout)
    except OSError as error:
        raise CompilerUnavailableError(
            f"the interpreter {python} cannot be started: {error.strerror}"
        ) from error
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise CompilerUnavailableError(
            f"the library of the table gave no answer: {error}"
        ) from error
    if "error" in reply:
        raise CompilerUnavailableError(
            f"the library of the table cannot be asked under {python}: {reply['error']}"
        )
    return reply


@cache
def is_imported(module: str, folder: Path) -> bool:
    """Whether any other module of the installed package imports that of the table."""
    package, leaf = folder / module.partition(".")[0], module.rpartition(".")[2]
    table_file = folder / (module.replace(".", "/") + ".py")
    for file in package.rglob("*.py"):
        if file == table_file or file.stem.endswith("_test"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        importer = ".".join(file.relative_to(folder).with_suffix("").parts)
        if leaf in text and imports_of(text, module, importer):
            return True
    return False


def _to_plain(value: Any) -> Any:
    if isinstance(value, ConstructorCall):
        fields = {name: _to_plain(part) for name, part in value.fields}
        return {"made": value.name, "fields": fields}
    return [_to_plain(part) for part in value] if isinstance(value, tuple) else value


def _from_plain(data: Any) -> Any:
    if isinstance(data, dict):
        fields = tuple((name, _from_plain(part)) for name, part in data["fields"].items())
        return ConstructorCall(data["made"], fields)
    return tuple(_from_plain(part) for part in data) if isinstance(data, list) else data
