"""The VMEM limit that a claimed config may have is what the chip has."""

import pytest
from jax.experimental.pallas import tpu as pltpu

from autotune.domain.claims import MOST_VMEM_BYTES
from autotune.domain.key import Chip

VERSIONS = {"v7x": "7x"}


@pytest.mark.parametrize("chip", Chip)
def test_each_limit_is_what_jax_says_of_the_chip(chip):
    version = pltpu.ChipVersion(VERSIONS.get(chip.value, chip.value))
    found = pltpu.get_tpu_info_for_chip(version, chip.cores_per_device)
    assert found.vmem_capacity_bytes == MOST_VMEM_BYTES[chip]
