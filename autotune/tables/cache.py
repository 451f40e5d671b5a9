"""tokamax's autotuning caches and its ``AutotuningResult``, and the flags of MaxText's YAML."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from math import isfinite, prod
from pathlib import Path, PurePath
from statistics import median
from typing import Any

from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.problem import parse_dtype
from autotune.tables.description import Description
from autotune.tables.table import UNTYPED, Named, TableRow, UnreadRow

_SHAPE = re.compile(r"([a-z0-9_]+)\[([\d,]*)\](\{.*\})?")
_ROWS = "per_device_batch_size", "max_target_length", "num_experts_per_tok"  # of experts
_SPEC = re.compile(r"(?!^)([A-Z])")


def read_cache(table: Description, text: str, file: str) -> Iterator[TableRow | UnreadRow]:  # noqa: ARG001 (as each reader takes it)
    """``path`` of a row: the text of its key. Raises ``InvalidInputError``."""
    data, path = _loaded(text, file), PurePath(file)
    if "device_kind" in data and isinstance(data.get("data"), list):
        yield from _results(data, path.name)
        return
    for number, (key, configs) in enumerate(data.items(), 1):
        place = f"{path.parent.name}/{path.name} entry {number}"
        try:
            arguments = json.loads(key)
        except (ValueError, RecursionError) as error:
            yield UnreadRow(place=place, reason=f"its key is no JSON: {error}")
            continue
        yield from _rows(place, path.parent.name, path.stem, arguments, configs, (key,))


def _loaded(text: str, file: str) -> Named:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} is no JSON, so tokamax takes none of it: {error}"
        ) from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{file} is no autotuning cache of tokamax: it holds no object")
    return data


def _results(data: Named, name: str) -> Iterator[TableRow | UnreadRow]:
    """What ``AutotuningResult.dumps`` writes."""
    for number, pair in enumerate(data["data"], 1):
        place = f"{name} entry {number}"
        try:
            bound, configs = pair
            kind = bound["op"]["__type"].rpartition(".")[2]
            op = _SPEC.sub(r"_\1", kind).lower()
            yield from _rows(place, data["device_kind"], op, bound["arguments"], configs)
        except UNTYPED as error:
            yield UnreadRow(place=place, reason=f"it is no call with its configs: {error}")


def _rows(
    place: str, device: str, op: str, arguments: Any, configs: Any, path: tuple[str, ...] = ()
) -> Iterator[TableRow | UnreadRow]:
    if configs == {}:
        yield UnreadRow(place=place, reason="no config: tokamax takes its own heuristics there")
    if not isinstance(configs, dict) or not isinstance(arguments, dict):
        yield UnreadRow(place=place, reason="it has no configs with their times")
        return
    for config, times in configs.items():
        try:
            key = {"device": device.lower().replace(" ", "_"), "op": op, **flattened(arguments)}
            value, time_us = dict(json.loads(config)), _median_us(times)
            yield TableRow(place=place, key=key, value=value, path=path, time_us=time_us)
        except UNTYPED as error:
            yield UnreadRow(place=place, reason=f"its config cannot be read: {error}")


def _median_us(times: Any) -> float | None:
    """None where it was estimated, or never timed."""
    if times.get("metadata", {}).get("estimated"):
        return None
    times_ms = [float(time) for time in times.get("evaluation_times_ms", ())]
    is_timed = times_ms and all(isfinite(time) and time > 0 for time in times_ms)
    return median(times_ms) * 1000 if is_timed else None


def flattened(arguments: Named) -> Named:
    """``lhs.0`` and ``lhs.dtype`` for the sizes and the type of an array; fields of objects by
    their names, joined by points; a list of anything else as its JSON."""
    fields: Named = {}

    def note(name: str, value: Any) -> Any:
        fields[name] = value
        return value

    _walked(arguments, "", note)
    return fields


def filled(arguments: Any, fields: Named) -> Any:
    """``arguments`` with other values in the place of those that ``fields`` names."""
    return _walked(arguments, "", lambda name, value: fields.get(name, value))


def _walked(value: Any, name: str, leaf: Callable[[str, Any], Any]) -> Any:
    """``value`` with what ``leaf`` gives for each field."""
    below = f"{name}." if name else ""
    match = _SHAPE.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, dict) and value:
        return {n: _walked(part, f"{below}{n}", leaf) for n, part in value.items()}
    if isinstance(value, list) and any(isinstance(p, str) and _SHAPE.fullmatch(p) for p in value):
        return [_walked(part, f"{below}{n}", leaf) for n, part in enumerate(value)]
    if match is None:
        text = json.dumps(value) if isinstance(value, (list, dict)) else value
        new = leaf(name, text)
        return value if new == text else new
    dtype = _dtype(match[1])
    new = leaf(f"{below}dtype", dtype)
    sizes = [leaf(f"{below}{n}", int(s)) for n, s in enumerate(filter(None, match[2].split(",")))]
    if match[3]:
        leaf(f"{below}vmapped", match[3])
    kind = match[1] if new == dtype else re.sub("^(bf|f|i)[a-z]*", r"\1", new)
    return f"{kind}[{','.join(map(str, sizes))}]{match[3] or ''}"


def _dtype(text: str) -> str:
    try:
        return parse_dtype(text)
    except UnknownNameError:  # a type of later releases
        return text


def compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def read_flags(table: Description, text: str, file: str) -> Iterator[TableRow | UnreadRow]:
    """A row, where the file sets any of the flags. What it does not say stands in the files that it
    is based on: ``base_config``, and that of its model. Raises ``InvalidInputError``."""
    data = yaml_of(text, file)
    value = {n: v for n, v in data.items() if any(fnmatch(n, p) for p in table.value.split())}
    if not value:
        raise InvalidInputError(f"{file} sets none of {table.value.replace(' ', ', ')}")
    bad = [f"{n}={v!r}" for n, v in value.items() if type(v) is not int or v < 1]
    if bad:
        yield UnreadRow(place="flags", reason=f"{', '.join(bad)} is no block size")
        return
    based = {**_based_on(data, Path(file)), **data}
    key = {name: based[name] for name in table.key[0].split() if name in based}
    factors = [based[name] for name in _ROWS if isinstance(based.get(name), int | float)]
    if len(factors) == len(_ROWS):
        key["moe_rows"] = int(prod(factors))
    yield TableRow(place="flags", key=key, value=value)


def _based_on(data: Named, file: Path) -> Named:
    student = data.get("student_overrides") or {}  # of a distillation
    model = student.get("model_name", data.get("model_name"))
    names = [data.get("base_config"), f"models/{model}.yml"]
    based: Named = {}
    for name in filter(None, names):
        for folder in file.parents:
            if (folder / str(name)).is_file() and folder / str(name) != file:
                based |= yaml_of((folder / str(name)).read_text(encoding="utf-8"), str(name))
                break
    return {**based, **student}


def yaml_of(text: str, file: str) -> Named:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise InvalidInputError(f"{file} is YAML: pip install pyyaml") from error
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, *UNTYPED) as error:
        raise InvalidInputError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{file} holds no flags")
    return data


def write_flags(text: str, rows: Sequence[TableRow]) -> str:
    """``text`` with these flags in the place of its own, the others behind it. Raises
    ``InvalidInputError`` where two rows have another value for a flag."""
    flags: Named = {}
    for name, value in [pair for row in rows for pair in {**row.key, **row.value}.items()]:
        if flags.setdefault(name, value) != value:
            raise InvalidInputError(
                f"MaxText has one set of flags for a run, these records have {name}={flags[name]} "
                f"and {value}: choose with --kernel and --chip, or `autotune export --shape`"
            )
    for name, value in flags.items():
        line = f"{name}: {json.dumps(value) if isinstance(value, bool) else value}"
        key = rf"(['\"]?){name}\1[ \t]*:"
        text, count = re.subn(rf"(?m)^{key}[^#\n]*?(?=\s*(#|$))", line, text)
        text += "" if count else "\n" * (text[-1:] not in ("", "\n")) + f"{line}\n"
    return text
