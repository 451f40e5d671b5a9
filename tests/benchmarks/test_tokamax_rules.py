"""What rows of tokamax's caches mean, which several of its versions wrote."""

import pytest

from autotune.domain.compiler_options import parsed
from benchmarks.kernels.tokamax_rules import (
    compiler_options,
    config_as_read,
    has_gradients_of_operands,
    peak_in_mb,
)

TRANSPOSED, AS_GIVEN = [[1], [2]], [[1], [1]]
TILES = {"tile_m": 512, "tile_k": 256, "tile_n": 1024}
EVEN, LISTED = {"num_groups": 2, "total_size": 64}, [32, 32]


@pytest.mark.parametrize(
    ("chip", "contracted", "groups", "family", "is_exchanged"),
    [
        ("v5e", TRANSPOSED, EVEN, "pallas_mosaic_tpu_ragged_dot", True),
        ("v5e", TRANSPOSED, LISTED, "pallas_mosaic_tpu_ragged_dot", True),
        ("v7x", TRANSPOSED, EVEN, "pallas_mosaic_tpu_ragged_dot", True),
        ("v7x", TRANSPOSED, LISTED, "pallas_mosaic_tpu_ragged_dot", False),
        ("v5p", TRANSPOSED, EVEN, "pallas_mosaic_tpu_ragged_dot", False),
        ("v6e", TRANSPOSED, EVEN, "pallas_mosaic_tpu_ragged_dot", False),
        ("v7x", AS_GIVEN, EVEN, "pallas_mosaic_tpu_ragged_dot", False),
        ("v7x", TRANSPOSED, EVEN, "pallas_mosaic_tpu_v2_ragged_dot", False),
    ],
)
def test_tiles_of_transposed_weights(chip, contracted, groups, family, is_exchanged):
    dims = {"dot_dimension_numbers": [contracted, [[], []]]}
    problem = {"ragged_dot_dimension_numbers": dims, "group_sizes": groups}
    read = config_as_read({"chip": chip, "family": family, "problem": problem, "config": TILES})
    assert read == (TILES | {"tile_k": 1024, "tile_n": 256} if is_exchanged else TILES)


def test_a_row_without_a_ragged_dot_has_its_config_as_written():
    row = {"chip": "v7x", "family": "normalization", "problem": {}, "config": {}}
    assert config_as_read(row) == {}


@pytest.mark.parametrize("count", [113_494_016, 3_750_768_640, 74_691_643_424, 4_389_877_792])
def test_a_peak_is_the_same_in_mb_and_mib(count):
    assert peak_in_mb(count / 1e6) == pytest.approx(count / 1e6, rel=1e-12)
    assert peak_in_mb(count / 2**20) == pytest.approx(count / 1e6, rel=1e-12)


@pytest.mark.parametrize(
    ("chip", "family", "options"),
    [
        ("v5p", "normalization", [set()]),
        ("v6e", "normalization", [{"gather"}]),
        ("v5p", "ragged_dot", [set(), {"kernel"}]),
        ("v6e", "ragged_dot", [{"gather"}, {"gather", "kernel"}]),
        ("v6e", "pallas_mosaic_tpu_ragged_dot", [{"gather"}]),
    ],
)
def test_what_a_row_may_have_been_compiled_with(chip, family, options):
    names = {
        "gather": "xla_tpu_offload_gather_to_sparsecore",
        "kernel": "xla_tpu_enable_ragged_dot_kernel",
    }
    made = compiler_options({"chip": chip, "family": family})
    wanted = [{names[name]: "false" for name in some} for some in options]
    assert [parsed(text or "") for text in made] == wanted


@pytest.mark.parametrize(("chip", "is_cast"), [("v5p", False), ("v6e", True), ("v7x", True)])
def test_dtypes_of_gradients(chip, is_cast):
    family = "linear_softmax_cross_entropy_loss_vjp"
    assert has_gradients_of_operands({"chip": chip, "family": family}) == is_cast
    assert not has_gradients_of_operands({"chip": chip, "family": f"chunked_xla_{family}"})
