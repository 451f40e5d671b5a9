"""What the compiled HLO module says: VMEM of the kernel, cycles that XLA expects for the rest."""

import re

_USED = re.compile(
    r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
_PALLAS_CALL = 'custom_call_target="tpu_custom_call"'
_INSTRUCTION = re.compile(r"^ *(?:ROOT )?(?=%[\w.-]+ = )", re.M)  # its metadata may have lines
_NO_IDEA = 2**62
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


def kernel_vmem_bytes(hlo: str) -> int | None:
    """Scoped VMEM that the compiled Pallas calls use at most, bytes; None when none is there."""
    used = None
    for call in _pallas_calls(hlo):
        found = _USED.search(call)
        used = max(used or 0, int(found.group(1)) if found else 0)
    return used


def estimated_cycles(hlo: str) -> int:
    """Sum of the cycles that XLA itself expects for its own operations; 0 where it has no idea of
    one of them (a gather, for example), for which it writes the largest number there is."""
    cycles = [int(found) for found in _CYCLES.findall(hlo)]
    return 0 if any(found >= _NO_IDEA for found in cycles) else sum(cycles)


def kernel_cycles(hlo: str) -> list[int]:
    """Cycles that libtpu expects of each Pallas call; none without its static profile."""
    found = (_CYCLES.search(call) for call in _pallas_calls(hlo))
    return [int(cycles[1]) for cycles in found if cycles]


def _pallas_calls(hlo: str) -> list[str]:
    return [text for text in _INSTRUCTION.split(hlo) if _PALLAS_CALL in text]
