"""What the instructions of an HLO module send to other devices and to the host, and how many
multiplications and additions its matrix products have."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod

from autotune.compiling.child.compile.computations import (
    ARRAY,
    HOST,
    Computation,
    HloInstruction,
    copied_arrays,
    padded_bytes,
    sizes,
    space,
)
from autotune.domain.explanation import LinkTransfer, Route

_ROUTES = {
    "all-gather": Route.GATHER,
    "collective-broadcast": Route.GATHER,
    "all-reduce": Route.REDUCE,
    "reduce-scatter": Route.SCATTER,
    "all-to-all": Route.EXCHANGE,
    "ragged-all-to-all": Route.EXCHANGE,
    "collective-permute": Route.PERMUTE,
    "send": Route.PERMUTE,
    "recv": Route.PERMUTE,
}
_SCATTERED = "all-reduce-scatter"
_STEP = "async_collective_fusion"
_HOSTS = ("infeed", "outfeed")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_COUNTED = re.compile(r"replica_groups=\[(?:\d+,)*(\d+)\]<=")
_NAMED = re.compile(r"replica_groups=\w+\[([^\]]*)\] \{([^}]*)\}")
_AXIS = re.compile(r"'(\w+)'=(\d+)")


def transfer(
    instruction: HloInstruction, computations: Mapping[str, Computation]
) -> LinkTransfer | None:
    """None for what a device does by itself, and for the products that steps of a collective are
    fused into: it has a start and a done of its own."""
    plain = instruction.opcode.removesuffix("-start").removesuffix("-done")
    if plain in _ROUTES:
        return _collective(instruction, _ROUTES[plain])
    if plain in _HOSTS:
        moved = sum(map(padded_bytes, ARRAY.finditer(instruction.result)))
        return LinkTransfer(route=Route.HOST, size_bytes=moved)
    if plain in ("fusion", "async"):
        for name in instruction.called:
            for inner in computations.get(name, {}).values():
                if inner.opcode in _ROUTES and not name.startswith(_STEP):
                    is_scattered = name.startswith(_SCATTERED)
                    return _collective(inner, Route.SCATTER if is_scattered else None)
        return None
    return _to_host(instruction) if instruction.opcode.endswith("-start") else None


def _collective(instruction: HloInstruction, route: Route | None) -> LinkTransfer:
    arrays = [padded_bytes(array) for array in ARRAY.finditer(instruction.result)]
    route = route or _ROUTES[instruction.opcode]
    size = max(arrays, default=0) if instruction.opcode.endswith("-start") else sum(arrays)
    devices = _group(instruction.text)
    is_cut = instruction.opcode.startswith("reduce-scatter")
    return LinkTransfer(route=route, size_bytes=size * (devices if is_cut else 1), devices=devices)


def _group(text: str) -> int:
    """How many devices exchange an array; 0 for all."""
    if named := _NAMED.search(text):
        axes = dict(_AXIS.findall(named[1]))
        return prod(int(axes.get(axis, 1)) for axis in re.findall(r"\w+", named[2]))
    if counted := _COUNTED.search(text):
        return int(counted[1])
    listed = _LISTED.search(text)
    return len(listed[1].split(",")) if listed and listed[1] else 0


def _to_host(instruction: HloInstruction) -> LinkTransfer | None:
    """Of a copy or slice between HBM and the memory of the host: what moves."""
    is_update = instruction.opcode == "dynamic-update-slice-start"
    arrays = copied_arrays(instruction.result, is_update=is_update)
    if not any(space(array) == HOST for array in arrays):
        return None
    moved = padded_bytes(arrays[0]) if is_update else min(map(padded_bytes, arrays))
    return LinkTransfer(route=Route.HOST, size_bytes=moved)


_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "s8": "int8", "u8": "uint8"}
_NARROW = {"s4": "int4", "u4": "uint4"}


def products(
    instruction: HloInstruction, computation: Computation, computations: Mapping[str, Computation]
) -> Iterator[tuple[int, str]]:
    """Operations and the dtype of the operands of each product that an instruction makes, those in
    the computations that it calls among them."""
    if instruction.opcode in ("convolution", "dot"):
        given = [computation[name] for name in instruction.operands if name in computation]
        arrays = [ARRAY.search(operand.result) for operand in given]
        result = ARRAY.search(instruction.result)
        if len(arrays) == 2 and arrays[0] and arrays[1] and result:
            shapes = [sizes(array) for array in (arrays[0], arrays[1], result)]
            count = _dot if instruction.opcode == "dot" else _convolution
            yield count(instruction.text, *shapes), _dtype(arrays[0])
    for name in instruction.called if instruction.opcode in ("fusion", "call") else ():
        inner = computations.get(name, {})
        for part in inner.values():
            yield from products(part, inner, computations)


def _dtype(array: re.Match[str]) -> str:
    name = array[1] + (array[2] or "")
    if array[3]:
        return f"float8_{array[3]}"
    return _DTYPES.get(name) or _NARROW.get(name, name)


def _dot(text: str, left: list[int], _: list[int], result: list[int]) -> int:
    contracted = _CONTRACTED.search(text)
    places = [int(place) for place in contracted[1].split(",") if place] if contracted else []
    return 2 * prod(result) * prod(left[place] for place in places)


def _convolution(text: str, left: list[int], right: list[int], result: list[int]) -> int:
    """As XLA's cost analysis counts: of a window only what falls on an element that is there. A
    batch of products is a convolution whose window takes each of them once."""
    labels = _LABELS.search(text)
    if labels is None:
        return 0
    inputs, kernel, outputs = labels.groups()
    window = _WINDOW.search(text)
    fields = dict(part.split("=") for part in window[1].split()) if window else {}
    taken = [
        _positions(
            left[inputs.index(axis)],
            right[kernel.index(axis)],
            result[outputs.index(axis)],
            *(_of_axis(fields, name, int(axis)) for name in ("stride", "pad", "lhs_dilate")),
            _of_axis(fields, "rhs_dilate", int(axis)),
        )
        for axis in sorted(set(kernel) - {"i", "o"})
    ]
    rows = prod(result[place] for place, name in enumerate(outputs) if name in "bf")
    return 2 * rows * right[kernel.index("i")] * prod(taken)


def _of_axis(fields: Mapping[str, str], name: str, axis: int) -> int:
    """The low end of a padding."""
    if name not in fields:
        return 0 if name == "pad" else 1
    return int(fields[name].split("x")[axis].partition("_")[0])


@lru_cache(maxsize=4096)
def _positions(
    size: int, window: int, results: int, stride: int, pad: int, dilated: int, spread: int
) -> int:
    """Pairs of a result and a place of the window on an element that is there."""
    most = (size - 1) * dilated
    count = 0
    for place in range(window):
        start = place * spread - pad  # of the first result; then each stride further
        first = max(0, -(start // stride))
        last = min(results - 1, (most - start) // stride)
        if dilated == 1:
            count += max(0, last - first + 1)
        else:
            count += sum((start + n * stride) % dilated == 0 for n in range(first, last + 1))
    return count
