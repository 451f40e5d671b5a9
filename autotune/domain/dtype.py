"""Element types by name: the few facts that need no JAX."""

import re

from autotune.domain.errors import UnknownNameError

_BITS = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "int32": 32,
    "uint32": 32,
    "int16": 16,
    "uint16": 16,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "uint4": 4,
    "bool": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e4m3b11fnuz": 8,
    "float64": 64,
    "int64": 64,
    "float4_e2m1fn": 4,
    "int2": 2,
    "uint2": 2,
}

DTYPES = tuple(_BITS)


def _short(name: str) -> set[str]:
    """As JAX and XLA print it: f32, i32 and s32, f8_e4m3fn and f8e4m3fn."""
    short = name.replace("float", "f").replace("uint", "u").replace("int", "i")
    return {short, short.replace("_", ""), re.sub("^i", "s", short)}


_SHORT = {short: name for name in _BITS for short in _short(name)} | {
    "fp8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "pred": "bool",
}


def parse_dtype(text: str) -> str:
    """The full name of an element type (``bf16`` → ``bfloat16``).

    Raises ``UnknownNameError`` with the list of names.
    """
    name = text.strip().lower()
    name = _SHORT.get(name, name)
    if name not in _BITS:
        raise UnknownNameError(f"unknown dtype {text!r}: choose one of {', '.join(_BITS)}")
    return name


def bits(dtype: str) -> int:
    """Width of one element in bits."""
    return _BITS[dtype]


def memory_bits(dtype: str) -> int:
    """Width of one element in what a kernel reads and writes: a boolean takes a whole word there
    (Mosaic's memory references have none, XLA converts the array ahead of the call)."""
    return 32 if dtype == "bool" else bits(dtype)
