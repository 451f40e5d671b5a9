"""What a library looks up for a problem: its own function is called, with a table that has one row.
Started by file path under the library's interpreter; reads one request from stdin and writes one
answer to stdout."""

import dataclasses
import importlib
import importlib.util
import json
import sys
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

Plain = Any
"""JSON; what is of a class is an object of ``made``, its name, and ``fields``."""

_NOTHING = object()


class OneRow(dict[Any, Any]):
    """A table with the row at ``row``, or with whatever it is asked for (None). ``asked``: all
    paths of the depth of a row that were looked for."""

    def __init__(self, asked: list[Any], depth: int, row: Any, value: Any, path: Any = ()):
        super().__init__()
        self._asked, self._depth, self._row, self._value = asked, depth, row, value
        self._path = path

    def __len__(self) -> int:
        return 1

    def get(self, key: Any, default: Any = None) -> Any:
        path = (*self._path, key)
        if is_row := len(path) == self._depth:
            self._asked.append(path)
        if self._row is not None and path != self._row[: len(path)]:
            return default
        below = self._asked, self._depth, self._row, self._value, path
        return self._value if is_row else OneRow(*below)

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _NOTHING) is not _NOTHING

    def __getitem__(self, key: Any) -> Any:
        if (value := self.get(key, _NOTHING)) is _NOTHING:
            raise KeyError(key)
        return value


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """For each row: the path that was looked up, whether it is the row's, what the library makes
    of the row's value, what it takes without a table, and what it takes from its own."""
    module = _module(request["module"], request.get("file"))
    device = type("Device", (), {"device_kind": request["device_kind"], "platform": "tpu"})()
    import jax

    with patch.object(jax, "devices", lambda *_, **__: [device]):
        return [_row(module, request, row) for row in request["rows"]]


def _row(module: ModuleType, request: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    classes = {name: getattr(module, name) for name in request["classes"]}
    value, path = _live(row["value"], classes), _live(row["path"], classes)
    function, depth = getattr(module, request["function"]), len(path)
    answers: dict[str, Any] = {"path": None, "reached": False}
    for arguments in row["asks"]:
        given = {name: _live(argument, classes) for name, argument in arguments.items()}
        asked: list[Any] = []
        try:
            with patch.object(module, request["variable"], OneRow(asked, depth, path, value)):
                made = function(**given)
            answers["reached"] = path in asked
            if not answers["reached"]:
                asked.clear()
                whatever = OneRow(asked, depth, None, value)
                with patch.object(module, request["variable"], whatever):
                    made = function(**given)
            if answers["path"] is not None and not answers["reached"]:
                continue
            with patch.object(module, request["variable"], {}):
                fallback = function(**given)
            taken = function(**given)
        except Exception as error:  # whatever their function has against the question
            answers.setdefault("error", f"{type(error).__name__}: {error}"[:300])
            continue
        first = path if answers["reached"] else next(iter(asked), ())
        answers |= {"path": _plain(first), "made": _plain(made)}
        answers |= {"fallback": _plain(fallback), "taken": _plain(taken)}
        if answers["reached"]:
            break
    return answers


def _module(name: str, file: str | None) -> ModuleType:
    """``file``: in the place of the installed one."""
    module = _imported(name)
    if file is None:
        return module
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def _imported(name: str) -> ModuleType:
    """A module of tables needs little of its package. Where that does not import, because it wants
    another, the module is imported without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise
    parts = name.split(".")
    path = importlib.util.find_spec(parts[0]).submodule_search_locations  # type: ignore[union-attr]
    for depth in range(1, len(parts)):
        package = ModuleType(".".join(parts[:depth]))
        package.__path__ = [f"{where}/{'/'.join(parts[1:depth])}" for where in path or ()]
        sys.modules[package.__name__] = package
    while True:
        try:
            return importlib.import_module(name)
        except (
            ModuleNotFoundError
        ) as error:  # torch, vLLM: a lookup that depends on it finds no row
            if not error.name or error.name.partition(".")[0] == parts[0]:
                raise
            sys.modules[error.name] = absent = MagicMock(name=error.name)
            absent.__path__, absent.__spec__ = [], importlib.util.spec_from_loader(error.name, None)


def _live(data: Plain, classes: dict[str, Any]) -> Any:
    """``classes``: nothing else is called, whatever a table says."""
    if isinstance(data, dict):
        fields = {name: _live(value, classes) for name, value in data["fields"].items()}
        return classes[data["made"]](**fields)
    return tuple(_live(item, classes) for item in data) if isinstance(data, list) else data


def _plain(value: Any) -> Plain:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"made": type(value).__name__, "fields": fields}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, str, float)):
        return value
    return int(value) if isinstance(value, int) or hasattr(value, "__index__") else str(value)


if __name__ == "__main__":
    try:
        with redirect_stdout(sys.stderr):  # what a library prints is no answer
            reply: Plain = {"rows": answer(json.load(sys.stdin))}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    json.dump(reply, sys.stdout)
