"""What a library looks up for a problem: its own function is called, with a table that has whatever
it is asked for. Started by file path under the library's interpreter; reads one request from stdin
and writes one answer to stdout."""

import dataclasses
import importlib
import importlib.util
import json
import sys
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any
from unittest.mock import patch

Plain = Any
"""JSON; what is of a class is an object of ``made``, its name, and ``fields``."""


class Willing(dict[Any, Any]):
    """Has every key. ``asked``: the last path that ended at the depth of a row."""

    def __init__(self, asked: list[Any], depth: int, answer: Any, path: tuple[Any, ...] = ()):
        super().__init__()
        self._asked, self._depth, self._answer, self._path = asked, depth, answer, path

    def __contains__(self, key: Any) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        if len(path) < self._depth:
            return Willing(self._asked, self._depth, self._answer, path)
        self._asked[:] = path
        return self._answer

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ARG002 (a dictionary's own)
        return self[key]


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """For each row and each way to ask for it: the path that was looked up, what the library makes
    of the row's value, and what it takes without a table."""
    module = _module(request["module"], request.get("file"))
    device = type("Device", (), {"device_kind": request["device_kind"], "platform": "tpu"})()
    import jax

    with patch.object(jax, "devices", lambda *_, **__: [device]):
        return [_row(module, request, row) for row in request["rows"]]


def _row(module: ModuleType, request: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    classes = {name: getattr(module, name) for name in request["classes"] if name}
    value = _live(row["value"], classes)
    paths: list[Plain] = []
    answers: dict[str, Any] = {"paths": paths}
    for arguments in row["asks"]:
        given = {name: _live(argument, classes) for name, argument in arguments.items()}
        asked: list[Any] = []
        try:
            with patch.object(module, request["variable"], Willing(asked, row["depth"], value)):
                made = getattr(module, request["function"])(**given)
            with patch.object(module, request["variable"], {}):
                fallback = getattr(module, request["function"])(**given)
            if request["file"] is not None:
                answers["own"] = _plain(getattr(module, request["function"])(**given))
        except Exception as error:  # whatever their function has against the question
            paths.append(None)
            answers.setdefault("error", f"{type(error).__name__}: {error}"[:300])
            continue
        paths.append([_plain(path) for path in asked])
        answers.setdefault("fallback", _plain(fallback))
        answers.setdefault("made", _plain(made))
        if paths[-1] == row["path"]:
            answers |= {"fallback": _plain(fallback), "made": _plain(made)}
            break
    return answers


def _module(name: str, file: str | None) -> ModuleType:
    """``file``: in the place of the installed one."""
    if file is None:
        return importlib.import_module(name)
    importlib.import_module(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


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


def _main() -> None:
    try:
        with redirect_stdout(sys.stderr):  # what a library prints is no answer
            reply: Plain = {"rows": answer(json.load(sys.stdin))}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    _main()
