"""A serialized XSpace (what the profiler writes as ``*.xplane.pb``) as planes, in picoseconds.

``jax.profiler.ProfileData`` reads the same bytes, but cuts durations to whole nanoseconds and gives
starts as floats of nanoseconds since 1970, which are 256 ns apart: too coarse for a kernel of
microseconds. So the few fields that are needed are read here, exactly. Field numbers are those of
``tsl/profiler/protobuf/xplane.proto``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.protobuf import Field, read_fields

_MODULE_STAT = "hlo_module"


class UnreadableProfileError(Exception):
    """The bytes are no XSpace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``module``: the HLO module that it names, empty where it names none (TPU)."""

    name: str
    start_ps: int
    duration_ps: int
    module: str = ""

    @property
    def end_ps(self) -> int:
        return self.start_ps + self.duration_ps


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    name: str
    lines: tuple[Line, ...]


def planes(serialized: bytes) -> list[Plane]:
    """All planes, in the order of the file. Raises ``UnreadableProfileError``."""
    try:
        return [_plane(value) for number, value in read_fields(serialized) if number == 1]
    except (IndexError, ValueError, TypeError) as error:
        raise UnreadableProfileError(f"the profile cannot be read: {error}") from error


def _plane(data: int | bytes) -> Plane:
    fields = list(read_fields(data))
    events = dict(_entry(value) for number, value in fields if number == 4)
    stats = dict(_entry(value) for number, value in fields if number == 5)
    return Plane(
        name=_text(_last(fields, 2, b"")),
        lines=tuple(_line(value, events, stats) for number, value in fields if number == 3),
    )


def _entry(data: int | bytes) -> tuple[int, str]:
    """One entry of a map from an id to metadata: the id and the name."""
    fields = list(read_fields(data))
    return _int(_last(fields, 1, 0)), _text(_last(list(read_fields(_last(fields, 2, b""))), 2, b""))


def _line(data: int | bytes, names: Mapping[int, str], stats: Mapping[int, str]) -> Line:
    fields = list(read_fields(data))
    origin_ps = _signed(_last(fields, 3, 0)) * 1000
    events = [_event(value, names, stats, origin_ps) for number, value in fields if number == 4]
    return Line(name=_text(_last(fields, 2, b"")), events=tuple(events))


def _event(
    data: int | bytes, names: Mapping[int, str], stats: Mapping[int, str], origin_ps: int
) -> Event:
    fields = list(read_fields(data))
    return Event(
        name=names.get(_int(_last(fields, 1, 0)), ""),
        start_ps=origin_ps + _signed(_last(fields, 2, 0)),
        duration_ps=_signed(_last(fields, 3, 0)),
        module=next((m for n, v in fields if n == 4 and (m := _module(v, stats))), ""),
    )


def _module(data: int | bytes, names: Mapping[int, str]) -> str:
    """The text of a stat, itself or by reference, when it names the HLO module; else nothing."""
    fields = list(read_fields(data))
    if names.get(_int(_last(fields, 1, 0))) != _MODULE_STAT:
        return ""
    return _text(_last(fields, 5, b"")) or names.get(_int(_last(fields, 7, 0)), "")


def _last(fields: list[Field], number: int, otherwise: int | bytes) -> int | bytes:
    """As protobuf has it, the last of several wins."""
    return next((value for n, value in reversed(fields) if n == number), otherwise)


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise TypeError("a number was expected")
    return value


def _signed(value: int | bytes) -> int:
    """Two's complement of 64 bits."""
    number = _int(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise TypeError("a text was expected")
    return value.decode(errors="replace")
