"""What XLA does around a kernel, through the real compiler."""

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import DescribeChip
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.operation import hbm_bytes_per_us
from tests.samples import surrounded
from tests.samples.questions import case_of

KERNEL = f"{surrounded.__file__}:KERNEL"
BLOCKS = make_config({"block_m": 256, "block_k": 512, "block_n": 256})
CHIPS = (Chip.V5E, Chip.V6E)


@pytest.mark.parametrize("chip", CHIPS)
def test_scaling_transposes_and_casts_are_in_the_time(pool, chip):
    """The result alone, [m, n] in float32, is read to be cast and transposed."""
    info = pool.ask(DescribeChip(chip=chip))
    found = case_of(pool, KERNEL, "m=4096,k=1024,n=8192").estimated(BLOCKS, chip)
    assert isinstance(found, Estimated), found
    e = found.estimate
    assert sum(us for _, us in e.explanation.parts_us) == pytest.approx(e.time_us)
    assert e.xla_us == pytest.approx(e.explanation.part_us("operations of XLA"))
    assert e.xla_us > 4096 * 8192 * 4 / hbm_bytes_per_us(info)
    assert 0.9 * e.xla_us < sum(one.time_us for one in e.operations) <= e.xla_us
    assert from_data(Estimated, to_data(found)) == found


def test_a_config_that_was_compiled_before_is_listed_again(pool):
    """JAX compiles the same trace but once in a process, and then nothing is written down."""
    case = case_of(pool, KERNEL, "m=512,k=512,n=256")
    found = [case.estimated(BLOCKS) for _ in range(2)]
    assert isinstance(found[0], Estimated), found[0]
    assert found[1] == found[0]
