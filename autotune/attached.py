"""The TPU that is attached to this machine, without loading any TPU software."""

from pathlib import Path

from autotune.chip import Chip
from autotune.errors import InvalidInputError

_GOOGLE = "0x1ae0"

# Source: _TPU_PCI_DEVICE_IDS in jax/_src/hardware_utils.py. v2 and v3 share an id.
_DEVICES = {
    "0x0027": Chip.V3,
    "0x005e": Chip.V4,
    "0x0062": Chip.V5P,
    "0x0063": Chip.V5E,
    "0x006f": Chip.V6E,
    "0x0076": Chip.V7X,
}


def attached_chip(bus: Path = Path("/sys/bus/pci/devices")) -> Chip:
    """The generation of the attached TPU. Raises ``InvalidInputError`` that lists the chips."""
    for vendor in sorted(bus.glob("*/vendor")):
        if vendor.read_text().strip() == _GOOGLE:
            chip = _DEVICES.get(vendor.with_name("device").read_text().strip())
            if chip is not None:
                return chip
    raise InvalidInputError(
        f"no TPU is attached to this machine: name the chip with --chip, one of {', '.join(Chip)}"
    )
