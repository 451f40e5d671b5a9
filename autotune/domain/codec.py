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
from threading import RLock
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

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


class _Codec(NamedTuple):
    """None: value and data are the same."""

    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None


_Fields = list[tuple[Field[Any], _Codec, tuple[Any, ...]]]


def to_data(value: Any, *, sent: bool = False) -> dict[str, Any]:
    """Of a dataclass: plain JSON data, all its containers new. ``from_data`` is the inverse.
    ``sent``: to another machine, without what stays here (``Local``)."""
    form: Any = type(value)
    encode = _codec(form, sent).encode
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
    decode = _codec(form, False).decode
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
    return {field.name: codec.decode for field, codec, _ in _fields(cls, False)}


@cache
def _codec(hint: Any, sent: bool) -> _Codec:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _Codec(dict, _pairs) if BY_NAME in args[1:] else _codec(args[0], sent)
    if origin in (tuple, list):
        return _sequence(origin, args, sent)
    if origin in (UnionType, Union):
        return _union(args, sent)
    return _class(hint, sent) if isinstance(hint, type) else _Codec()


def _class(cls: type[Any], sent: bool) -> _Codec:
    if cls is float:
        return _Codec(_number_to_data, _number_from_data)
    if cls is datetime:
        return _Codec(datetime.isoformat, datetime.fromisoformat)
    if issubclass(cls, Enum):
        return _Codec(lambda value: value.value, cls)
    if hasattr(cls, "from_data"):  # its data are not its fields
        return _Codec(cls.to_data, cls.from_data)
    if is_dataclass(cls):
        return _dataclass(cls, sent)
    return _named_tuple(cls, sent) if hasattr(cls, "_fields") else _Codec()


_being_made: set[type[Any]] = set()
_one_thread = RLock()


def _dataclass(cls: type[Any], sent: bool) -> _Codec:
    with _one_thread:
        if cls in _being_made:  # it holds values of its own class, which wait until it is done
            return _Codec(partial(to_data, sent=sent), partial(from_data, cls))
        _being_made.add(cls)
        try:
            known = _fields(cls, sent)
            return _Codec(_encoder_of(cls, known, sent), _decoder_of(cls, known))
        finally:
            _being_made.discard(cls)


def _number_to_data(number: float) -> float | str:
    return number if isfinite(number) else str(number)


def _number_from_data(data: float | str) -> float:
    return float(data) if isinstance(data, str) else data


def _pairs(data: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(data.items())


def _sequence(kind: type[Any], args: tuple[Any, ...], sent: bool) -> _Codec:
    if args[-1] is ... or kind is list:
        encode, decode = _codec(args[0], sent)
        return _Codec(
            (lambda value: [encode(item) for item in value]) if encode else list,
            (lambda data: kind([decode(item) for item in data])) if decode else kind,
        )
    return _row(tuple, [_codec(arg, sent) for arg in args])


def _named_tuple(cls: type[Any], sent: bool) -> _Codec:
    hints = get_type_hints(cls, include_extras=True)
    return _row(lambda values: cls(*values), [_codec(hints[name], sent) for name in cls._fields])


def _row(make: Callable[[list[Any]], Any], places: list[_Codec]) -> _Codec:
    """Something else at each place."""

    def encode(value: Any) -> list[Any]:
        pairs = zip(places, value, strict=True)
        return [item if place.encode is None else place.encode(item) for place, item in pairs]

    def decode(data: Any) -> Any:
        pairs = zip(places, data, strict=True)
        return make([item if place.decode is None else place.decode(item) for place, item in pairs])

    if all(place == _Codec() for place in places):
        return _Codec(list, make)
    return _Codec(encode, decode)


def _union(args: tuple[Any, ...], sent: bool) -> _Codec:
    """A closed union of dataclasses with a ``kind``, of plain values, or something or None."""
    if NoneType in args:
        rest = tuple(arg for arg in args if arg is not NoneType)
        encode, decode = _codec(rest[0], sent) if len(rest) == 1 else _union(rest, sent)
        return _Codec(_or_none(encode), _or_none(decode))
    if not all(map(kind_of, args)):
        return _Codec()
    decoders = {kind_of(arg): _codec(arg, False).decode for arg in args}
    encode = partial(to_data, sent=sent)
    return _Codec(encode, lambda data: decoders[data["kind"]](data))  # type: ignore[misc]


def _or_none(function: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return function and (lambda value: None if value is None else function(value))


def is_optional(marks: tuple[Any, ...]) -> bool:
    """Whether a field with these marks may be left out."""
    return _OMIT_NONE in marks or _OMIT_DEFAULT in marks


def kind_of(cls: Any) -> str | None:
    """What tells values of this class from others of its union; None: it is in none."""
    kind = getattr(cls, "kind", None)
    return kind if isinstance(kind, str) else None


# Both functions of a dataclass are written out and compiled once, as ``dataclasses`` does with
# ``__init__``: a service decodes 100,000 records when it starts, and a loop over fields took twice
# as long.


def _encoder_of(cls: type[Any], known: _Fields, sent: bool) -> Callable[[Any], Any]:
    names: dict[str, Any] = {"kind": kind_of(cls)}
    parts = ["'kind': kind"] if kind_of(cls) else []
    for field, codec, marks in known:
        if sent and LOCAL in marks:
            continue
        value = f"value.{field.name}"
        if codec.encode is not None:
            names[f"encode_{field.name}"] = codec.encode
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
    for field, codec, marks in known:
        value = "data" if FLAT in marks else f"data[{field.name!r}]"
        if codec.decode is not None:
            names[f"decode_{field.name}"] = codec.decode
            value = f"decode_{field.name}({value})"
        if field.default is not MISSING:
            names[f"default_{field.name}"] = field.default
            value += f" if {field.name!r} in data else default_{field.name}"
        elif field.default_factory is not MISSING:
            names[f"default_{field.name}"] = field.default_factory
            value += f" if {field.name!r} in data else default_{field.name}()"
        parts.append(f"{field.name}={value}")
    return _compiled("data", f"cls({', '.join(parts)})", names)


def _fields(cls: type[Any], sent: bool) -> _Fields:
    """Each with its codec and its marks."""
    hints = get_type_hints(cls, include_extras=True)
    return [
        (field, _codec(hints[field.name], sent), getattr(hints[field.name], "__metadata__", ()))
        for field in fields(cls)
    ]


def _compiled(argument: str, expression: str, names: dict[str, Any]) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = eval(f"lambda {argument}: {expression}", names)  # noqa: S307 (made of field names)
    return function
