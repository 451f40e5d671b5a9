"""The wire format of protocol buffers, without their descriptions."""

from collections.abc import Iterator

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
