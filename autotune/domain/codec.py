"""Domain values as plain JSON data and back, by their annotations alone: one value, one shape.

A dataclass is an object of its fields in their order; a value of a closed union says its ``kind``
first; a tuple is a list, an enum its value, a time its ISO text. A number that is not finite is the
text *inf*, *-inf* or *nan*: JSON has none, and databases and browsers refuse what Python writes.

Data of older versions may lack fields that have a default, data of newer ones may have more: these
are ignored. The limits of ``autotune.domain.limits`` are checked where data comes from strangers,
not here.

``msgspec`` was tried: it checks limits and refuses unknown fields by the class and not by the call,
so that each value would need two classes, and it leaves out defaults by the class as well. It takes
17 ms of the start of a model server, this 2 ms.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

T = TypeVar("T")

BY_NAME, FLAT, LOCAL = "by name", "flat", "local"
_OMIT_NONE, _OMIT_DEFAULT = "omit None", "omit default"

ByName = Annotated[tuple[tuple[str, T], ...], BY_NAME]
"""Pairs of a name and a plain value: an object that keeps their order, not a list."""

Flat = Annotated[T, FLAT]
"""A dataclass whose fields stand among those of the one that holds it."""

OmitNone = Annotated[T, _OMIT_NONE]
"""A field that is left out where it is None: older versions take what does not have it."""

OmitDefault = Annotated[T, _OMIT_DEFAULT]
"""A field that is left out where it has its default: most values have nothing to say of it."""

Local = Annotated[T, LOCAL]
"""A field that stays on the machine where it was made: ``to_data(…, sent=True)`` leaves it out, and
a service takes none."""


_DECODE, _ENCODE, _SEND = "decode", "encode", "send"

_Part = Callable[[Any], Any] | None
"""Makes a value of data, or data of a value, as the way of three says. None: both are the same."""

_Fields = list[tuple[Field[Any], _Part, tuple[Any, ...]]]


def to_data(value: Any, *, sent: bool = False) -> dict[str, Any]:
    """Of a dataclass: plain JSON data, all its containers new. ``from_data`` is the inverse.
    ``sent``: to another machine, without what stays here (``Local``)."""
    form: Any = type(value)
    encode = _part(form, _SEND if sent else _ENCODE)
    assert encode is not None, form
    data: dict[str, Any] = encode(value)
    return data


@overload
def from_data(form: type[T], data: Any) -> T: ...


@overload
def from_data(form: UnionType, data: Any) -> Any: ...


def from_data(form: Any, data: Any) -> Any:
    """A value of a class or of a union of classes.

    Raises ``ValueError`` with the reason for data that is not of this form.
    """
    decode = _part(form, _DECODE)
    assert decode is not None, form
    try:
        return decode(data)
    except KeyError as error:
        raise ValueError(f"{error} is missing or unknown") from error
    except (TypeError, AttributeError, IndexError) as error:
        raise ValueError(str(error)) from error


@cache
def field_decoders(cls: Any) -> dict[str, Callable[[Any], Any] | None]:
    """How each field of a dataclass is read, for those that are not kept together; None: its value
    and its data are the same."""
    return {field.name: decode for field, decode, _ in _fields(cls, _DECODE)}


@cache
def _part(hint: Any, way: str) -> _Part:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        by_name = _pairs if way == _DECODE else dict
        return by_name if BY_NAME in args[1:] else _part(args[0], way)
    if origin in (tuple, list):
        return _sequence(origin, args, way)
    if origin in (UnionType, Union):
        return _union(args, way)
    return _class(hint, way) if isinstance(hint, type) else None


def _class(cls: type[Any], way: str) -> _Part:
    to_value = way == _DECODE
    if cls is float:
        return _number_from_data if to_value else _number_to_data
    if cls is int:
        return _checked_number if to_value else None
    if cls is bool:
        return _checked_bool if to_value else None
    if cls is datetime:
        return datetime.fromisoformat if to_value else datetime.isoformat
    if issubclass(cls, Enum):
        return cls if to_value else lambda value: value.value
    if hasattr(cls, "from_data"):  # its data are not its fields
        return cls.from_data if to_value else cls.to_data  # type: ignore[no-any-return]
    if is_dataclass(cls):
        return (_decoder_of if to_value else _encoder_of)(cls, _fields(cls, way))
    if not hasattr(cls, "_fields"):
        return None
    hints = get_type_hints(cls, include_extras=True)
    make = (lambda values: cls(*values)) if way == _DECODE else list
    return _row(make, [_part(hints[name], way) for name in cls._fields])


def _number_to_data(number: float) -> float | str:
    return number if isfinite(number) else str(number)


def _number_from_data(data: float | str) -> float:
    return float(data) if isinstance(data, str) else _checked_number(data)


def _checked_bool(data: Any) -> bool:
    """Raises ``ValueError`` for what would pass for true: the text *false*."""
    if not isinstance(data, bool):
        raise ValueError(f"{str(data)[:40]!r} is neither true nor false")
    return data


def _checked_number(data: Any) -> Any:
    """Raises ``ValueError`` for what would fail only later, where somebody reckons with it."""
    if not isinstance(data, (int, float)):
        raise ValueError(f"{str(data)[:40]!r} is no number")
    return data


def _pairs(data: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(data.items())


def _sequence(kind: type[Any], args: tuple[Any, ...], way: str) -> _Part:
    make = kind if way == _DECODE else list
    if args[-1] is not ... and kind is not list:
        return _row(make, [_part(arg, way) for arg in args])
    part = _when_met(args[0], way)
    return make if part is None else lambda given: make([part(item) for item in given])


def _row(make: Callable[[Any], Any], parts: list[_Part]) -> _Part:
    """Something else at each place."""

    def convert(given: Any) -> Any:
        pairs = zip(parts, given, strict=True)
        return make([item if part is None else part(item) for part, item in pairs])

    return convert if any(parts) else make


def _union(args: tuple[Any, ...], way: str) -> _Part:
    """A closed union of dataclasses with a ``kind``, of plain values, or something or None."""
    if NoneType in args:
        rest = tuple(arg for arg in args if arg is not NoneType)
        return _or_none(_when_met(rest[0], way) if len(rest) == 1 else _union(rest, way))
    if not all(map(kind_of, args)):
        return None
    if way != _DECODE:
        return partial(to_data, sent=way == _SEND)
    classes = {kind_of(arg): arg for arg in args}  # of most unions few are ever met
    return lambda data: _part(classes[data["kind"]], way)(data)  # type: ignore[misc]


def _when_met(hint: Any, way: str) -> _Part:
    """Of what is often not there, or of its own class: the function of a dataclass is made when it
    meets one."""
    if not is_dataclass(hint):
        return _part(hint, way)
    return lambda given: _part(hint, way)(given)  # type: ignore[misc, arg-type]


def _or_none(function: _Part) -> _Part:
    return function and (lambda given: None if given is None else function(given))


def is_optional(marks: tuple[Any, ...]) -> bool:
    """Whether a field with these marks may be left out."""
    return _OMIT_NONE in marks or _OMIT_DEFAULT in marks


def kind_of(cls: Any) -> str | None:
    """What tells values of this class from others of its union; None: it is in none."""
    kind = getattr(cls, "kind", None)
    return kind if isinstance(kind, str) else None


# The functions of a dataclass are written out and compiled once, as ``dataclasses`` does with
# ``__init__``: a service decodes 100,000 records when it starts, and a loop over fields took twice
# as long. Each is made when it is first needed: a client never encodes a record.


def _encoder_of(cls: type[Any], known: _Fields) -> Callable[[Any], Any]:
    names: dict[str, Any] = {"kind": kind_of(cls)}
    parts = ["'kind': kind"] if kind_of(cls) else []
    for field, encode, marks in known:
        value = f"value.{field.name}"
        if encode is not None:
            names[f"encode_{field.name}"] = encode
            value = f"encode_{field.name}({value})"
        if FLAT in marks:
            parts.append(f"**{value}")
        elif _OMIT_NONE in marks:
            parts.append(f"**({{}} if value.{field.name} is None else {{{field.name!r}: {value}}})")
        elif _OMIT_DEFAULT in marks:
            names[f"default_{field.name}"] = field.default
            given = f"value.{field.name} == default_{field.name}"
            parts.append(f"**({{}} if {given} else {{{field.name!r}: {value}}})")
        else:
            parts.append(f"{field.name!r}: {value}")
    return _compiled("value", f"{{{', '.join(parts)}}}", names)


def _decoder_of(cls: type[Any], known: _Fields) -> Callable[[Any], Any]:
    names: dict[str, Any] = {"cls": cls}
    parts = []
    for field, decode, marks in known:
        value = "data" if FLAT in marks else f"data[{field.name!r}]"
        if decode is not None:
            names[f"decode_{field.name}"] = decode
            value = f"decode_{field.name}({value})"
        if field.default is not MISSING:
            names[f"default_{field.name}"] = field.default
            value += f" if {field.name!r} in data else default_{field.name}"
        elif field.default_factory is not MISSING:
            names[f"default_{field.name}"] = field.default_factory
            value += f" if {field.name!r} in data else default_{field.name}()"
        parts.append(f"{field.name}={value}")
    return _compiled("data", f"cls({', '.join(parts)})", names)


def _fields(cls: type[Any], way: str) -> _Fields:
    """Each that goes this way, with what converts it and its marks."""
    hints = get_type_hints(cls, include_extras=True)
    marked = [(field, getattr(hints[field.name], "__metadata__", ())) for field in fields(cls)]
    return [
        (field, _part(hints[field.name], way), marks)
        for field, marks in marked
        if way != _SEND or LOCAL not in marks
    ]


def _compiled(argument: str, expression: str, names: dict[str, Any]) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = eval(f"lambda {argument}: {expression}", names)  # noqa: S307 (made of field names)
    return function
