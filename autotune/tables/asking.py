"""What the library of a table makes of it: its own functions are called, in its own interpreter."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.key import Chip
from autotune.tables.description import Description
from autotune.tables.levels import leaf
from autotune.tables.python_source import ConstructorCall, imports_of
from autotune.tables.table import TableRow

_CHILD = Path(__file__).parents[1] / "compiling" / "child"
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupAnswer:
    """``path``: what the lookup asked its table for, None where it did not come to it; ``made``:
    what it makes of the row's value; ``fallback``: what it takes where the table has nothing;
    ``taken``: what it takes from its own table, or that of the file; ``error``: what it has against
    the question."""

    path: tuple[Any, ...] | None
    is_reached: bool
    made: Any = None
    fallback: Any = None
    taken: Any = None
    error: str = ""


def ask_lookup(
    table: Description,
    rows: Sequence[TableRow],
    chip: Chip,
    python: str,
    file: Path | None = None,
    packages: Path | None = None,
) -> list[LookupAnswer]:
    """Of each row, under a device of that generation. ``file`` is imported in the place of the
    module that is installed, or lies in the folder ``packages``. Raises ``AutotuneError``."""
    request = {
        "module": table.module,
        "function": table.lookup,
        "variable": table.looked_up or table.variable,
        "classes": table.classes,
        "file": None if file is None else str(file),
        "device_kind": chip.device_kind,
        "rows": [
            {
                "path": _to_plain(row.path),
                "value": _to_plain(leaf(table, row)),
                "asks": [{n: _to_plain(v) for n, v in ask.items()} for ask in table.asks(row)],
            }
            for row in rows
        ],
    }
    return [
        LookupAnswer(
            path=None if answer["path"] is None else _from_plain(answer["path"]),
            is_reached=answer["reached"],
            made=_from_plain(answer.get("made")),
            fallback=_from_plain(answer.get("fallback")),
            taken=_from_plain(answer.get("taken")),
            error=answer.get("error", ""),
        )
        for answer in _asked("table_lookup.py", request, python, packages)["rows"]
    ]


def ask_tokamax(
    texts: Mapping[Path, str], python: str, packages: Path | None = None
) -> Mapping[Path, Mapping[str, LookupAnswer]]:
    """What tokamax makes of each key of these cache files. Raises ``CompilerUnavailableError``."""
    asked = [{"op": file.stem, "text": text} for file, text in texts.items()]
    reply = _asked("tokamax_cache.py", {"files": asked}, python, packages)
    return {
        file: {
            key: LookupAnswer(
                path=(key,),
                is_reached=not (entry.get("why") or answer["whole"]),
                taken=entry.get("taken"),
                error=entry.get("why") or answer["whole"],
            )
            for key in json.loads(text)
            for entry in [answer["entries"].get(key, {})]
        }
        for (file, text), answer in zip(texts.items(), reply["files"], strict=True)
    }


def _asked(
    script: str, request: Mapping[str, Any], python: str, packages: Path | None
) -> dict[str, Any]:
    """The answer of a script of the child's room, which finds the packages of a folder before those
    that are installed. Raises ``CompilerUnavailableError``."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if packages is not None:
        paths = [str(packages.absolute()), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        done = subprocess.run(
            [python, "-P", str(_CHILD / script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            env=environment,
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
def is_used(table_file: str, lookup: str, folder: Path, kernels: str) -> bool:
    """Whether a module of the installed package imports the lookup of a table: one that is outside
    the folder ``kernels``, or that such a module imports in turn."""
    first = table_file.removesuffix(".py").replace("/", ".")
    waiting, seen = [(first, lookup)], {first}
    while waiting:
        module, name = waiting.pop()
        for importer in _importers(module, name, folder):
            if not kernels or kernels not in importer.split("."):
                return True
            if importer not in seen:
                seen.add(importer)
                waiting.append((importer, ""))
    return False


def _importers(module: str, name: str, folder: Path) -> Iterator[str]:
    leaf_name = module.removesuffix(".__init__").rpartition(".")[2]
    by_text = ".".join(module.split(".")[-2:])  # importlib.import_module(f"{package}.…")
    for importer, text in _sources(folder / module.partition(".")[0]).items():
        if importer == module or leaf_name not in text:
            continue
        if any(f"{by_text}{quote}" in text for quote in "\"'") or imports_of(
            text, module.removesuffix(".__init__"), importer, name
        ):
            yield importer


@cache
def _sources(package: Path) -> Mapping[str, str]:
    """Of all modules but those of tests and benchmarks, by name."""
    return {
        ".".join(file.relative_to(package.parent).with_suffix("").parts): file.read_text(
            encoding="utf-8", errors="replace"
        )
        for file in package.rglob("*.py")
        if not (file.stem.endswith("_test") or file.stem.startswith(("test_", "bench")))
        and not {"test", "tests"} & {*file.relative_to(package).parts}
    }


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
