"""tokamax's autotuning caches, as its own classes read them. Started by file path under the
interpreter that has it; reads one request from stdin and writes one answer to stdout."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields
from typing import Any

Named = dict[str, Any]


def answer(request: Named) -> Named:
    return {"files": [_read(file) for file in request["files"]]}


def _read(file: Named) -> Named:
    """What tokamax makes of a file for ``op``: why it drops the whole, and for each of its keys why
    it is never found (empty where it is) and the config that it takes, in JSON."""
    from tokamax._src.autotuning import cache

    op = op_named(file["op"])
    if op is None:
        return {"whole": f"this tokamax has no op {file['op']}", "entries": {}}
    adapter = cache._get_cache_adapter(op)
    keys: dict[Any, str] = {}
    entries: Named = {}
    for text, configs in json.loads(file["text"]).items():
        try:
            (arguments,) = adapter.validate_python({text: {}})
            bound = op.bind(**arguments).autotuning_cache_key
            unknown = sorted(set(json.loads(text)) - set(arguments))
            why = ""
            if unknown:
                why = f"this tokamax has no argument {', '.join(unknown)}: it reads another call"
            elif bound in keys:
                entries[keys[bound]]["why"] = "a later entry is for the same call, and counts"
            keys[bound] = text
            (data,) = adapter.validate_json(json.dumps({text: configs})).values()
            best = data.fastest_config if data else None
            taken = best and {field.name: getattr(best, field.name) for field in fields(best)}
        except Exception as error:  # whatever it has against the entry
            why, taken = _said(error), None
        entries[text] = {"why": why, "taken": taken}
    try:
        adapter.validate_json(file["text"])
    except Exception as error:
        return {"whole": f"tokamax drops the whole file: {_said(error)}", "entries": entries}
    return {"whole": "", "entries": entries}


def op_named(name: str) -> Any:
    """The op whose class has this name in snake case."""
    import tokamax  # noqa: F401 (imports all ops)
    from tokamax._src.autotuning import api  # noqa: F401 (the others)
    from tokamax._src.ops import op

    for cls in _below(op.Op):
        if re.sub(r"(?!^)([A-Z])", r"_\1", cls.__name__).lower() == name:
            return cls()
    return None


def _below(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _below(subclass)


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    try:
        with redirect_stdout(sys.stderr):  # what a library prints is no answer
            reply = answer(json.load(sys.stdin))
    except Exception as error:
        reply = {"error": _said(error)}
    json.dump(reply, sys.stdout, default=str)
