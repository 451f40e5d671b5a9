"""Nodes of a cluster, and why they are not used."""

from collections.abc import Sequence

from autotune.domain.toolchain import Toolchain

NO_NODE = "no node of the Ray cluster can compile: start nodes with pallas-autotune[search,ray]"
ALL_TAKEN = (
    "the slots of the Ray cluster are not free: others hold its cores or its memory; wait for "
    "them, or start more nodes"
)
NONE_LEFT = (
    "no node of the Ray cluster is left: what is finished is kept, start nodes, and the same "
    "command goes on"
)


def refused(address: str, reason: str) -> str:
    return f"node {address} is not used: {reason}"


def all_lack(reasons: Sequence[str]) -> str:
    return f"no node of the Ray cluster can be asked about this kernel: {'; '.join(reasons)}"


def no_such_jax(wanted: str) -> str:
    return f"no node of the Ray cluster has jax {wanted}: start one, or name another version"


def too_small(memory_bytes: int, slot_bytes: int) -> str:
    return (
        f"it has {memory_bytes / 2**30:.1f} GiB for Ray and a compiler may take "
        f"{slot_bytes / 2**30:.1f}: lower --candidate-memory"
    )


def why_not(
    version: str | None,
    machine: str,
    toolchain: Toolchain | None,
    own_version: str,
    wanted: Toolchain | None,
) -> str:
    """Empty for a node that can be used. ``version``: None where the package is not there."""
    if version is None:
        return f"it has no pallas-autotune {own_version}: install it in the Python of its Ray"
    if version != own_version:
        return f"it has pallas-autotune {version}, not {own_version}: install that there"
    if machine.lower() not in ("x86_64", "amd64"):
        return f"it is {machine}, and the TPU compiler is for x86_64 only"
    if toolchain is None:
        return "it has no JAX with libtpu: install pallas-autotune[search] there"
    return "" if toolchain == wanted else f"it has {toolchain}, not {wanted}"
