"""The wire format of protocol buffers, without their descriptions."""

from collections.abc import Iterable, Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, int | bytes]
"""Its number, and an integer or the bytes within."""


def read_fields(data: int | bytes) -> Iterator[Field]:
    """Number and value of each field of a message, as they come. Raises ``TypeError`` for what
    is no message; ``IndexError`` and ``ValueError`` where it is damaged."""
    if isinstance(data, int):
        raise TypeError("a message was expected")
    place = 0
    while place < len(data):
        tag, place = read_varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = read_varint(data, place)
            yield tag >> 3, value
        elif kind in (_BYTES, _FIXED64, _FIXED32):
            size, place = (
                read_varint(data, place)
                if kind == _BYTES
                else (8 if kind == _FIXED64 else 4, place)
            )
            if place + size > len(data):
                raise ValueError("it ends in the middle of a field")
            yield tag >> 3, data[place : place + size]
            place += size
        else:
            raise ValueError(f"it has a field of the unknown kind {kind}")


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, and the place behind it. Raises as above."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("it has a number of more than 64 bits")


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message, an integer of at least 0 or bytes. ``read_fields`` is the inverse."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def packed(numbers: Iterable[int]) -> bytes:
    """Integers as the value of one field."""
    return b"".join(map(_varint, numbers))


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number >= 0x80:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])
