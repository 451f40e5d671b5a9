"""What the compiled HLO module says: VMEM of the kernel, cycles that XLA expects for the rest."""

import re

_USED = re.compile(
    r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
_PALLAS_CALL = 'custom_call_target="tpu_custom_call"'
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


def kernel_vmem_bytes(hlo: str) -> int | None:
    """Scoped VMEM that the compiled Pallas calls use at most, bytes; None when none is there."""
    used = None
    for line in hlo.splitlines():
        if _PALLAS_CALL not in line:
            continue
        found = _USED.search(line)
        used = max(used or 0, int(found.group(1)) if found else 0)
    return used


def estimated_cycles(hlo: str) -> int:
    """Sum of the cycles that XLA itself expects for its own operations."""
    return sum(int(cycles) for cycles in _CYCLES.findall(hlo))


def kernel_cycles(hlo: str) -> list[int]:
    """Cycles that libtpu expects of each Pallas call; none without its static profile."""
    calls = (line for line in hlo.splitlines() if _PALLAS_CALL in line)
    found = (_CYCLES.search(call) for call in calls)
    return [int(cycles[1]) for cycles in found if cycles]
