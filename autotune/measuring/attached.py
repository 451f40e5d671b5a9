"""The TPU that is attached to this machine, without loading any TPU software."""

from pathlib import Path

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, parse_chip

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


_BUS = Path("/sys/bus/pci/devices")


def attached_chips(bus: Path = _BUS) -> list[Chip]:
    """The generations of the attached TPUs, one for each device on the bus; empty without any."""
    chips = (_chip(vendor) for vendor in sorted(bus.glob("*/vendor")))
    return [chip for chip in chips if chip is not None]


def attached_chip(bus: Path = _BUS) -> Chip:
    """The generation of the attached TPU. Raises ``InvalidInputError`` that lists the chips."""
    chips = attached_chips(bus)
    if chips:
        return chips[0]
    raise InvalidInputError(
        f"no TPU is attached to this machine: name the chip with --chip, one of {', '.join(Chip)}"
    )


def chip_or_attached(name: str | None) -> Chip:
    """The chip that was named, else the attached one. Raises ``InvalidInputError``."""
    return attached_chip() if name is None else parse_chip(name)


def _chip(vendor: Path) -> Chip | None:
    if vendor.read_text().strip() != _GOOGLE:
        return None
    return _DEVICES.get(vendor.with_name("device").read_text().strip())
