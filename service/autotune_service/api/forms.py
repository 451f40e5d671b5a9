"""What FastAPI reads, answers and describes of the values of ``autotune.domain``: Pydantic models,
made of the declarations of these.

``Sent[Record]`` is a record as a stranger sends it: each field within its limits, none that is
unknown, none that stays on its machine. ``Answered[Job]`` is one as it is answered.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    create_model,
)
from pydantic import Field as ModelField
from pydantic_core import core_schema

from autotune.domain import limits
from autotune.domain.codec import BY_NAME, FLAT, LOCAL, from_data, is_optional, kind_of, to_data
from autotune.domain.errors import AutotuneError
from autotune.domain.limits import MOST_NAMES, Limit

T = TypeVar("T")
NotFinite = Literal["inf", "-inf", "nan"]  # as ``autotune.domain.codec`` writes them


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Sent:
    """Makes Pydantic read a domain value by its form."""

    def __get_pydantic_core_schema__(self, cls: Any, handler: Any) -> core_schema.CoreSchema:
        def value(form: BaseModel) -> Any:
            try:
                return from_data(cls, form.model_dump(mode="json", exclude_unset=True))
            except AutotuneError as error:
                raise ValueError(str(error)) from error

        form = handler.generate_schema(_form(cls, sent=True))
        return core_schema.no_info_after_validator_function(value, form)


class _Answered:
    """Makes Pydantic write a domain value as ``to_data`` does, a time with *Z*."""

    def __get_pydantic_core_schema__(self, cls: Any, handler: Any) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(_data)
        form = handler.generate_schema(_form(cls, sent=False))
        return core_schema.no_info_wrap_validator_function(
            lambda value, _: value, form, serialization=written
        )


Sent = Annotated[T, _Sent()]
Answered = Annotated[T, _Answered()]


def _data(value: Any) -> dict[str, Any]:
    data = to_data(value, sent=True)
    times = (name for name in data if isinstance(getattr(value, name, None), datetime))
    return data | {name: data[name].replace("+00:00", "Z") for name in times}


@cache
def _form(cls: Any, *, sent: bool) -> type[BaseModel]:
    """``sent``: by strangers; else the limits are not for it, and what is always there is said to
    be."""
    members: dict[str, Any] = {}
    kind = kind_of(cls)
    if kind is not None:
        members["kind"] = Literal[kind]
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        marks = getattr(hints[field.name], "__metadata__", ())
        if FLAT in marks:
            inner = _form(hints[field.name].__origin__, sent=sent)
            members |= {
                name: (member.annotation, member) for name, member in inner.model_fields.items()
            }
        elif LOCAL not in marks:
            hint = _hint(hints[field.name], sent=sent)
            members[field.name] = (hint, _default(field) if sent or is_optional(marks) else ...)
    name, base = (f"{cls.__name__}In", Part) if sent else (f"{cls.__name__}Data", BaseModel)
    return create_model(name, __base__=base, __doc__=cls.__doc__, **members)


def _default(field: Field[Any]) -> Any:
    """For the description: where nothing is sent, the value has its own."""
    value = field.default
    if value is MISSING:
        return ...
    if is_dataclass(value):
        return to_data(value)
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


def _hint(hint: Any, *, sent: bool) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(args[0], args[1:], sent=sent)
    inner = [_hint(arg, sent=sent) for arg in args if arg is not ...]
    if origin is tuple:
        return Annotated[list[inner[0]], FailFast()] if ... in args else tuple[*inner]  # type: ignore[valid-type]
    if origin in (Union, UnionType):
        has_kinds = all(kind_of(arg) for arg in args if arg is not NoneType)
        return Annotated[Union[*inner], ModelField(discriminator="kind" if has_kinds else None)]
    return _class(hint, sent=sent)


def _annotated(hint: Any, marks: tuple[Any, ...], *, sent: bool) -> Any:
    if BY_NAME in marks:
        name, value = get_args(get_args(hint)[0])
        mapping: Any = dict
        form = mapping[_hint(limits.Name if sent else name, sent=sent), _hint(value, sent=sent)]
        return Annotated[form, ModelField(max_length=MOST_NAMES if sent else None)]
    limit = next((mark for mark in marks if isinstance(mark, Limit)), None)
    if limit is None or not sent:
        return _hint(hint, sent=sent)
    if get_origin(hint) is tuple:
        items = ModelField(min_length=limit.shortest, max_length=limit.longest)
        return Annotated[_hint(hint, sent=sent), items]
    return _limited(hint, limit)


def _limited(cls: type[Any], limit: Limit) -> Any:
    checks: list[Any] = [AfterValidator(_printable)] if limit.printable else []
    if cls is datetime:
        return Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_within(limit))]
    if cls is str:
        length = ModelField(min_length=limit.shortest, max_length=limit.longest)
        return Annotated[str, ModelField(strict=True, pattern=limit.pattern), length, *checks]
    number = ModelField(strict=True, ge=limit.least, le=limit.most, allow_inf_nan=False)
    if cls is int:
        checks = [BeforeValidator(whole)] if limit.integral else []
        return Annotated[int, ModelField(strict=True, ge=limit.least, le=limit.most), *checks]
    return Annotated[float, number] if limit.finite else Annotated[float, number] | NotFinite


def _class(cls: Any, *, sent: bool) -> Any:
    if hasattr(cls, "form"):  # its data are not its fields
        return Annotated[_form(cls.form, sent=sent), AfterValidator(_readable(cls))]
    if isinstance(cls, type) and is_dataclass(cls):
        return _form(cls, sent=sent)
    if sent and cls in (str, int, float, datetime):
        raise TypeError(f"a {cls.__name__} that strangers send has no limits")
    return Annotated[bool, ModelField(strict=True)] if sent and cls is bool else cls


def _readable(cls: Any) -> Callable[[BaseModel], BaseModel]:
    def check(form: BaseModel) -> BaseModel:
        from_data(cls, form.model_dump(mode="json"))
        return form

    return check


def _no_number(given: Any) -> Any:
    """Pydantic would take seconds since 1970 for a time."""
    if isinstance(given, int | float):
        raise ValueError("must be a text such as 2026-01-31T12:00:00Z")
    return given


def _within(limit: Limit) -> Callable[[datetime], datetime]:
    def check(given: datetime) -> datetime:
        if limit.least is not None and given.year < limit.least:
            raise ValueError(f"must be of {limit.least} or later")
        if limit.most is not None and given.year > limit.most:
            raise ValueError(f"must be of {limit.most} or earlier")
        return given

    return check


def whole(given: Any) -> Any:
    """JSON has one kind of number: 2.0 is 2."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _printable(given: str) -> str:
    if not given.isprintable():
        raise ValueError("must have printable characters only")
    return given


if TYPE_CHECKING:
    from autotune.domain.limits import Choice as Choice
    from autotune.domain.limits import Count as Count
    from autotune.domain.limits import Name as Name
    from autotune.domain.limits import Size as Size
    from autotune.domain.limits import Text as Text
else:  # the same, as Pydantic checks them
    Choice, Count, Name, Size, Text = (
        _hint(limit, sent=True)
        for limit in (limits.Choice, limits.Count, limits.Name, limits.Size, limits.Text)
    )
