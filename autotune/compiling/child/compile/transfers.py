"""What the instructions of an HLO module send to other devices, and to the host."""

import re
from collections.abc import Mapping

from autotune.compiling.child.compile.computations import (
    ARRAY,
    HOST,
    Computation,
    HloInstruction,
    copied_arrays,
    padded_bytes,
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
        count = 1
        for axis in re.findall(r"\w+", named[2]):
            count *= int(axes.get(axis, 1))
        return count
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
