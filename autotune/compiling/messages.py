"""What a message of the TPU compiler means. One pure function, tested on recorded messages."""

import re

from autotune.domain.outcome import CompileFailed, OutOfVmem

Verdict = OutOfVmem | CompileFailed

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = r"([\d.]+)([KMG]?)"

# Where the scoped limit is passed (jax 0.6 without the E1001, all later ones with it).
_SCOPED = re.compile(rf"Scoped allocation with size {_SIZE} and limit {_SIZE} exceeded scoped vmem")
# Where the chip's capacity is passed, and on v3 and v4 always.
_CAPACITY = re.compile(rf"memory space vmem\. Used {_SIZE} of {_SIZE} vmem")
# One buffer alone is above the capacity (all versions seen).
_ONE_BUFFER = re.compile(
    r"Allocation \(size=(\d+)\)() would exceed memory \(size=(\d+)\)() :: .*?space=vmem", re.DOTALL
)
_OTHER_SPACE = re.compile(rf"memory space (\w+)\. Used {_SIZE} of {_SIZE}")
# HBM from jax 0.10 on; jax 0.6 says it as above.
_HBM = re.compile(
    rf"out of memory on (HBM), the total memory required [^(]*\({_SIZE}\) exceeds available HBM "
    rf"\({_SIZE}\)"
)

_UNSUPPORTED = re.compile(
    r"unsupported|not implemented|unimplemented|notimplementederror|not supported|E2001|E2003",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(INTERNAL|INVALID_ARGUMENT|UNIMPLEMENTED): ")
_FRAMING = re.compile(
    r"Mosaic failed to compile TPU kernel(?: with MLIR module name `[^`]*` HLO name `[^`]*`)?: |"
    r"(?<=: )CompileTimeMosaic\w+:\s*"  # the number before it says the same
)
_ANNOUNCED = re.compile(r":\s*\n\s*")


# JAX's words where a shard_map has no mesh, or another than the one that code is traced for.
_MESH = re.compile(
    r"unbound axis name|mesh passed to shard_map|product of mesh_shape|mesh cannot be empty|"
    r"context mesh|refer to an axis marked as manual",
    re.IGNORECASE,
)


def without_mesh(message: str) -> str | None:
    """What to do about a function that JAX refuses for its mesh; None for anything else."""
    if not _MESH.search(message):
        return None
    return (
        "the function is written for a mesh of devices: give the declaration "
        "`mesh=lambda problem: {'x': 4}` with the names and sizes of its axes, and shard_map "
        "`mesh=jax.sharding.get_abstract_mesh()` in `build` or in the function that it returns "
        f"(JAX: {message.splitlines()[0][:120]})"
    )


def classify(error_type: str, message: str) -> Verdict:
    """Out of VMEM with used and allowed bytes, or a failure with one line of reason.

    ``error_type`` is the name of the Python exception. The whole message is kept in a failure.
    """
    for pattern in (_SCOPED, _CAPACITY, _ONE_BUFFER):
        match = pattern.search(message)
        if match:
            used, allowed = _bytes(*match.group(1, 2)), _bytes(*match.group(3, 4))
            return OutOfVmem(used_bytes=used, allowed_bytes=allowed)
    space = _OTHER_SPACE.search(message) or _HBM.search(message)
    if space:
        return CompileFailed(
            reason=f"out of {space.group(1).upper()}: needs {''.join(space.group(2, 3))}, "
            f"{''.join(space.group(4, 5))} are there",
            message=message,
        )
    unsupported = bool(_UNSUPPORTED.search(f"{error_type} {message}"))
    return CompileFailed(
        reason=_first_sentence(error_type, message), unsupported=unsupported, message=message
    )


def _bytes(number: str, unit: str) -> int:
    """The compiler rounds to two decimals of the unit."""
    return round(float(number) * _UNITS[unit])


def _first_sentence(error_type: str, message: str) -> str:
    """The first line that says something, without the framing that each message has; with what it
    announces where it ends in a colon."""
    text = _ANNOUNCED.sub(": ", _FRAMING.sub("", _NOISE.sub("", message.strip())))
    line = next((part.strip() for part in text.splitlines() if part.strip()), error_type)
    return line if len(line) <= 240 else line[:237] + "…"
