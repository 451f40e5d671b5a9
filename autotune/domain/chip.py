"""TPU generations and their core mode, and every name that people give them.

Capacities are not here: the process that compiles asks
``jax.experimental.pallas.tpu.get_tpu_info_for_chip`` (see ``ChipInfo``).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.codec import OmitDefault
from autotune.domain.errors import UnknownNameError


class Chip(StrEnum):
    """A TPU generation as one compile target.

    The target is one JAX device: v4 and v5p are *megacore* (two TensorCores behind one device);
    v2, v3 and v7x show each TensorCore as a device of its own; v5e and v6e have one TensorCore.
    """

    V2 = "v2"
    V3 = "v3"
    V4 = "v4"
    V5E = "v5e"
    V5P = "v5p"
    V6E = "v6e"
    V7X = "v7x"

    @property
    def cores_per_device(self) -> int:
        """TensorCores behind one device: 2 for a megacore."""
        return 2 if self in (Chip.V4, Chip.V5P) else 1

    @property
    def is_megacore(self) -> bool:
        return self.cores_per_device == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipInfo:
    """What the installed JAX and libtpu say about a chip. All figures are per TensorCore.

    ``scoped_vmem_bytes`` is the limit that the compiler applies when a kernel asks for none; it is
    read from the compiler's own refusal, as are the two traits below.
    """

    chip: Chip
    device_kind: str
    num_cores: int
    vmem_capacity_bytes: int
    scoped_vmem_bytes: int
    hbm_capacity_bytes: int
    hbm_bytes_per_s: float
    bf16_ops_per_s: float
    int8_ops_per_s: float
    fp8_ops_per_s: OmitDefault[float] = 0.0
    num_lanes: int = 128
    num_sublanes: int = 8
    single_buffer_fallback: bool = False
    """The compiler drops double buffering when it does not fit (seen up to jax 0.6)."""
    whole_tiles_up_to_bits: OmitDefault[int] = 0
    """The compiler wants whole tiles of rows (32 of 8 bits, 64 of 4) in blocks of dtypes of so many
    bits or fewer. Seen from v4 on: 8 with jax 0.10 and 0.11, 0 with 0.9 and 0.12; with 0.6 8 on v6e
    and 4 on the others."""
    places_operands_in_vmem: bool = False
    """The compiler may put small operands in VMEM ahead of the call (seen on v7x)."""


# Sources: `Device.device_kind` of JAX, the Pathways spelling (`TPU v5p`, tpu-inference PRs 716 and
# 676), Cloud accelerator types (`v5litepod-8`, `tpu7x-8`) and the marketing names.
_ALIASES: dict[Chip, tuple[str, ...]] = {
    Chip.V2: ("tpu v2", "tpuv2", "cloud tpu v2"),
    Chip.V3: ("tpu v3", "tpuv3", "cloud tpu v3"),
    Chip.V4: ("tpu v4", "tpuv4", "cloud tpu v4", "v4p", "pufferfish"),
    Chip.V5E: (
        "tpu v5 lite",
        "tpu v5e",
        "tpuv5e",
        "v5 lite",
        "v5lite",
        "v5litepod",
        "tpu v5litepod",
        "tpu v5lite",
        "viperlite",
        "cloud tpu v5e",
    ),
    Chip.V5P: ("tpu v5", "tpu v5p", "tpuv5p", "v5", "viperfish", "cloud tpu v5p"),
    Chip.V6E: (
        "tpu v6 lite",
        "tpu v6e",
        "tpuv6e",
        "v6",
        "v6 lite",
        "v6lite",
        "tpu v6lite",
        "trillium",
        "cloud tpu trillium",
        "cloud tpu v6e",
        "ghostlite",
    ),
    Chip.V7X: (
        "tpu7x",
        "tpu 7x",
        "tpu v7x",
        "tpuv7x",
        "7x",
        "v7",
        "tpu7",
        "tpu v7",
        "ironwood",
        "cloud tpu ironwood",
        "tpu ironwood",
    ),
}

_BY_NAME: dict[str, Chip] = {
    name: chip for chip, aliases in _ALIASES.items() for name in (chip.value, *aliases)
}

_SLICE_SUFFIX = re.compile(r"-\d+$")  # v5litepod-8, tpu7x-16: the number of chips in the slice


def aliases(chip: Chip) -> tuple[str, ...]:
    """Other spellings that ``parse_chip`` takes for this chip, all in lower case."""
    return _ALIASES[chip]


def parse_chip(text: str) -> Chip:
    """The chip that ``text`` names in any spelling.

    Raises ``UnknownNameError`` with the list of chips.
    """
    name = " ".join(str(text).strip().lower().replace("_", " ").split())
    found = _BY_NAME.get(name) or _BY_NAME.get(_SLICE_SUFFIX.sub("", name))
    if found is None:
        raise UnknownNameError(f"unknown chip {text!r}: choose one of {', '.join(Chip)}")
    return found
