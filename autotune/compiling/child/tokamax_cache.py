"""tokamax's autotuning caches, read and written by its own classes. Started by file path under the
interpreter that has it; reads one request from stdin and writes one answer to stdout."""

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

Named = dict[str, Any]


def answer(request: Named) -> Any:
    tasks = {"read": _read_all, "write": _write, "look up": _look_up}
    return tasks[request["task"]](request)


def _read_all(request: Named) -> Named:
    return {"files": [_read(file) for file in request["files"]]}


def _read(request: Named) -> Named:
    """What tokamax makes of a file for ``op``: why it drops the whole file, or why each of its
    entries is never found; empty where it is."""
    from tokamax._src.autotuning import cache

    op = op_named(request["op"])
    if op is None:
        return {"whole": f"this tokamax has no op {request['op']}", "entries": []}
    adapter = cache._get_cache_adapter(op)
    keys: dict[Any, int] = {}
    entries: list[str] = []
    for number, (text, configs) in enumerate(json.loads(request["text"]).items()):
        why = ""
        try:
            (arguments,) = adapter.validate_python({text: {}})
            bound = op.bind(**arguments).autotuning_cache_key
            unknown = sorted(set(json.loads(text)) - set(arguments))
            if unknown:
                why = f"this tokamax has no argument {', '.join(unknown)}: it reads another call"
            elif bound in keys:
                entries[keys[bound]] = f"entry {number + 1} is for the same call, and counts"
            keys[bound] = number
            adapter.validate_json(json.dumps({text: configs}))
        except Exception as error:  # whatever it has against the entry
            why = _said(error)
        entries.append(why)
    whole = ""
    try:
        adapter.validate_json(request["text"])
    except Exception as error:
        whole = f"tokamax drops the whole file: {_said(error)}"
    return {"whole": whole, "entries": entries}


def _write(request: Named) -> Named:
    """A cache file with the calls' configs."""
    from tokamax._src import benchmarking
    from tokamax._src.autotuning import autotuner, cache

    known: dict[Any, Any] = {}
    for call in request["calls"]:
        bound, config = _bound(call)
        data = benchmarking.BenchmarkData(0.0, 0.0, (call["time_ms"],), call["metadata"])
        known[bound.autotuning_cache_key] = autotuner.AutotuningData({config: data})
    adapter = cache._get_cache_adapter(op_named("pallas_mosaic_tpu_ragged_dot"))
    return {"text": adapter.dump_json(known, indent=2, round_trip=True).decode() + "\n"}


def _look_up(request: Named) -> Named:
    """Whether each call finds its config in a file, as this tokamax reads it."""
    from tokamax._src.autotuning import cache

    op, kind = op_named("pallas_mosaic_tpu_ragged_dot"), request["device_kind"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / kind.lower().replace(" ", "_")
        place.mkdir()
        (place / "pallas_mosaic_tpu_ragged_dot.json").write_text(request["text"])
        takes = inspect.signature(cache.AutotuningCache).parameters
        if "paths" in takes:
            known = cache.AutotuningCache(op, paths=[folder])[kind]
        else:
            known = cache.AutotuningCache(op)._load_cache(kind, (folder,))
    return {"found": [_is_there(known, *_bound(call)) for call in request["calls"]]}


def _is_there(known: dict[Any, Any], bound: Any, config: Any) -> bool:
    data = known.get(bound.autotuning_cache_key)
    return data is not None and bool(data.fastest_config == config)


def _bound(call: Named) -> tuple[Any, Any]:
    """A call as a model makes it, and its config."""
    import jax
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as ops

    m, k, n, groups = (call[name] for name in ("m", "k", "n", "groups"))
    numbers, rhs = {
        "fwd": (ops.DEFAULT_RAGGED_DOT_DIM_NUMS, (groups, k, n)),
        "dlhs": (ops.DLHS_RAGGED_DOT_DIM_NUMS, (groups, n, k)),
        "drhs": (ops.DRHS_RAGGED_DOT_DIM_NUMS, (m, n)),
    }[call["mode"]]
    arrays = [jax.ShapeDtypeStruct(shape, call["dtype"]) for shape in ((m, k), rhs)]
    bound = ops.PallasMosaicTpuRaggedDot().bind(
        *arrays,
        group_sizes=jax.ShapeDtypeStruct((groups,), "int32"),
        ragged_dot_dimension_numbers=numbers,
    )
    return bound, ops.Config(**call["config"])


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


def _main() -> None:
    try:
        with redirect_stdout(sys.stderr):  # what a library prints is no answer
            reply = answer(json.load(sys.stdin))
    except Exception as error:
        reply = {"error": _said(error)}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    _main()
