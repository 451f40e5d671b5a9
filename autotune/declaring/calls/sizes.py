"""A call by its sizes: what ``--shape``, ``--dtype`` and ``--option`` say of a function, as the
text of ``--args``."""

import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import count, takewhile

from autotune.domain.arguments import DEFAULT_DTYPE, ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.problem import named_parts, named_sizes, parse_dtype

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_WRITABLE = (bool, int, float, str)


def call_in_words(
    name: str,
    signature: inspect.Signature,
    words: ProblemWords,
    dims: Mapping[str, Sequence[str]],
    axes: Sequence[str] = (),
) -> str:
    """``dims``: what the dimensions of arrays are called beside x.0, x.1 …. Raises
    ``InvalidInputError``, with an example where no problem is named."""
    if words.call:
        return words.call
    options = named_parts(",".join(words.options), "option")
    needed = [array for array in _required(signature) if array not in options]
    if needed and not words.shape:
        raise InvalidInputError(f"say how {name} is called: {example(signature, axes)}")
    sizes = _sizes(words.shape, needed, dims) if words.shape else {}
    shapes = {
        array: names for array in signature.parameters if (names := _names(array, sizes, dims))
    }
    if bool(sizes) < bool(words.shape) or sizes.keys() - {
        name for names in shapes.values() for name in names
    }:
        raise InvalidInputError(
            f"--shape {words.shape} does not fit {name}: {example(signature, axes)}"
        )
    dtype = words.dtype or DEFAULT_DTYPE
    for array, names in shapes.items():
        array_dtype = parse_dtype(options.pop(f"{array}.dtype", dtype))
        options[array] = f"{array_dtype}[{','.join(map(sizes.__getitem__, names))}]"
    return ", ".join(f"{argument}={text}" for argument, text in options.items())


def example(signature: inspect.Signature, axes: Sequence[str] = ()) -> str:
    """What to add to a command, in words. ``axes``: parameters that are tuned."""
    arrays = _required(signature)
    shown = dict.fromkeys(arrays, "f32[128,128]") | {
        parameter.name: repr(parameter.default)
        for parameter in signature.parameters.values()
        if isinstance(parameter.default, _WRITABLE) and parameter.name not in axes
    }
    call = ", ".join(f"{argument}={text}" for argument, text in shown.items())
    return f"add --args {call!r}, or --shape {','.join(['128x128'] * len(arrays))}, as your call is"


def _required(signature: inspect.Signature) -> list[str]:
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC
    ]


def _sizes(shape: str, arrays: Sequence[str], dims: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """By the names of dimensions; nothing where there are more or fewer."""
    if "=" in shape:
        return named_sizes(shape)
    groups = shape.lower().split(",")
    if len(groups) == len(arrays):
        pairs = zip(arrays, groups, strict=True)
        return {f"{a}.{n}": s for a, group in pairs for n, s in enumerate(group.split("x"))}
    names = dict.fromkeys(name for array in arrays for name in dims.get(array, ()))
    flat = re.split("[x,]", shape.lower())
    return dict(zip(names, flat, strict=True)) if len(flat) == len(names) else {}


def _names(
    array: str, sizes: Mapping[str, str], dims: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """Those of its dimensions that are given, if all are."""
    declared = dims.get(array, ())
    if declared and all(name in sizes for name in declared):
        return declared
    if array in sizes:
        return [array]
    return list(takewhile(sizes.__contains__, (f"{array}.{place}" for place in count())))
