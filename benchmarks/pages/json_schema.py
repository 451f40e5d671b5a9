"""The JSON Schema of what commands print, by the rules of ``autotune.domain.codec``, and what of it
a version promises.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from inspect import cleandoc, isclass
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from autotune.domain.codec import BY_NAME, FLAT, is_optional, kind_of
from autotune.domain.limits import Limit
from autotune.domain.outcome import Failure, Outcome, Violation

Schema = dict[str, Any]

UNITS = {
    "_us": "microseconds",
    "_s": "seconds",
    "seconds": "seconds",
    "_bytes": "bytes",
    "bytes": "bytes",
    "_ops_per_s": "operations a second",
    "_bytes_per_s": "bytes a second",
    "tflops_per_s": "10¹² operations a second",
    "hbm_gb_per_s": "10⁹ bytes a second",
    "_share": "of 1",
    "share": "of 1",
    "error": "of 1",
    "_error": "of 1",
    "resolution": "of 1",
    "_regret": "of 1",
    "margin": "of 1",
    "_at": "ISO 8601, UTC",
}
"""By what a field of numbers or a time is called, or how its name ends; the last that fits."""

_UNIONS = {"Outcome": Outcome, "Failure": Failure, "Violation": Violation}
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    None: {"type": "null"},
    NoneType: {"type": "null"},
    Any: {},
}
_NOT_FINITE: Schema = {"enum": ["inf", "-inf", "nan"]}


class Named(dict[str, Any]):
    """An object that is described once, as the classes are."""

    def __init__(self, name: str, form: dict[str, Any]) -> None:
        super().__init__(form)
        self.name = name


class _Kind(str):
    """The text that tells a class from others of its union."""


def of(cls: type[Any], *, whole: bool = False) -> dict[str, Any]:
    """The fields of a dataclass, to which a command adds others. ``whole``: as ``asdict`` writes
    them, which leaves none out."""
    hints = get_type_hints(cls, include_extras=True)
    kind = kind_of(cls)
    found: dict[str, Any] = {"kind": _Kind(kind)} if kind is not None else {}
    for field in fields(cls):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        if FLAT in marks:
            found |= of(hint.__origin__)
        else:
            found[field.name + "?" * (is_optional(marks) and not whole)] = hint
    return found


def without(form: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: inner for name, inner in form.items() if name not in names}


def document(forms: dict[str, Any], version: int) -> Schema:
    """One definition for each command, *token list* as ``token-list``, and for each value."""
    values: dict[str, Schema] = {}
    commands = {name.replace(" ", "-"): _schema(form, values) for name, form in forms.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What autotune prints with --json",
        "version": version,
        "$defs": commands | dict(sorted(values.items())),
    }


def gone(before: Schema, now: Schema) -> list[str]:
    """What a reader of ``before`` relies on and ``now`` does not have: by place."""
    return [
        f"{name}{place}"
        for name, schema in before["$defs"].items()
        for place in _gone(schema, now["$defs"].get(name, {}))
    ]


def _gone(before: Any, now: Any) -> Iterator[str]:
    """Fields, their types and what is always there; another kind of a union is an addition."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return
    same = ("type", "$ref", "const", "minItems")
    is_less = not set(before.get("enum", ())) <= set(now.get("enum", ()))
    if is_less or any(before.get(word) != now.get(word) for word in same):
        yield ""
        return
    fields_now, always = now.get("properties", {}), now.get("required", ())
    for name, inner in before.get("properties", {}).items():
        if name not in fields_now or (name in before["required"] and name not in always):
            yield f".{name}"
        else:
            yield from (f".{name}{place}" for place in _gone(inner, fields_now[name]))
    for word, sign in (("items", "[]"), ("additionalProperties", ".*")):
        yield from (sign + place for place in _gone(before.get(word), now.get(word)))
    for inner in before.get("anyOf", ()):
        yield from min(([*_gone(inner, other)] for other in now.get("anyOf", [now])), key=len)


def _schema(form: Any, values: dict[str, Schema]) -> Schema:
    if isinstance(form, _Kind):
        return {"const": str(form)}
    if isinstance(form, list):
        return {"type": "array", "items": _schema(form[0], values)}
    if isinstance(form, tuple):
        return {"anyOf": [_schema(each, values) for each in form]}
    if isinstance(form, Named):
        return _described(form.name, "", form, values)
    if isinstance(form, dict):
        return _object(form, values)
    if form in _PLAIN:
        return dict(_PLAIN[form])
    return _value(form, values) if isclass(form) and not get_args(form) else _hint(form, values)


def _object(form: dict[str, Any], values: dict[str, Schema]) -> Schema:
    if "*" in form:
        return {"type": "object", "additionalProperties": _schema(form["*"], values)}
    properties = {name.rstrip("?"): _named(name, inner, values) for name, inner in form.items()}
    required = [name for name in form if not name.endswith("?")]
    return {"type": "object", "properties": properties, "required": required}


def _named(name: str, form: Any, values: dict[str, Schema]) -> Schema:
    """With its unit."""
    schema = _schema(form, values)
    unit = next((UNITS[end] for end in reversed(UNITS) if _ends(name.rstrip("?"), end)), None)
    forms = schema.get("anyOf", [schema])
    has_unit = any(each.get("type") in ("number", "integer") or "format" in each for each in forms)
    return schema | ({"description": unit} if unit and has_unit else {})


def _ends(name: str, end: str) -> bool:
    return name.endswith(end) if end.startswith("_") else name == end


def _value(cls: type[Any], values: dict[str, Schema]) -> Schema:
    """A class of ours: described once, then named."""
    if issubclass(cls, Enum):
        return {"enum": [member.value for member in cls]}
    if not is_dataclass(cls):  # a named tuple
        hints = get_type_hints(cls, include_extras=True)
        return _row(list(hints.values()), values)
    text = re.sub(r":\w+:`(.*?)`", r"`\1`", " ".join(cleandoc(cls.__doc__ or "").split()))
    return _described(cls.__name__, text.replace("``", "`"), of(cls), values)


def _described(name: str, text: str, form: dict[str, Any], values: dict[str, Schema]) -> Schema:
    if name not in values:
        values[name] = {}  # it may hold itself
        values[name] = ({"description": text} if text else {}) | _object(form, values)
    return {"$ref": f"#/$defs/{name}"}


def _hint(hint: Any, values: dict[str, Schema]) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(args[0], args[1:], values)
    if origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return {"type": "object", "additionalProperties": _schema(args[1], values)}
    if origin is tuple and args[-1] is not ...:
        return _row(list(args), values)
    if origin in (tuple, list):
        return _schema([args[0]], values)
    return _union(args, values)


def _annotated(hint: Any, marks: tuple[Any, ...], values: dict[str, Schema]) -> Schema:
    if BY_NAME in marks:
        return _schema({"*": get_args(get_args(hint)[0])[1]}, values)
    limits = [mark for mark in marks if isinstance(mark, Limit) and not mark.finite]
    schema = _schema(hint, values)
    return {"anyOf": [schema, _NOT_FINITE]} if limits else schema


def _row(forms: list[Any], values: dict[str, Schema]) -> Schema:
    places = [_schema(form, values) for form in forms]
    return {"type": "array", "prefixItems": places, "minItems": len(places), "items": False}


def _union(args: tuple[Any, ...], values: dict[str, Schema]) -> Schema:
    """One of ours is named, though ``X | None`` has lost its name."""
    rest = frozenset(args) - {NoneType}
    for name, union in _UNIONS.items():
        if rest == frozenset(get_args(union)):
            if name not in values:
                values[name] = {}
                values[name] = {"anyOf": [_schema(each, values) for each in get_args(union)]}
            named = {"$ref": f"#/$defs/{name}"}
            return {"anyOf": [named, _PLAIN[None]]} if NoneType in args else named
    forms = [_schema(each, values) for each in args]
    flat = [each for form in forms for each in form.get("anyOf", [form])]
    return {"anyOf": flat}
