"""A kernel of Helion's is tuned as any function of JAX: ``test_in_the_field`` runs this under a
Python that has Helion."""

from functools import partial
from typing import Any

import pytest

import autotune
from tests.samples.installed import PublishedAxes, array, program, told

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
import helion.language as hl  # noqa: E402


def theirs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            total = torch.addmm(total, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = total.to(x.dtype)
    return out


@autotune.tunable(block_m=[64, 128, 256], block_n=[128, 256], block_k=[128, 256])
def product(x: Any, y: Any, *, block_m: int = 128, block_n: int = 128, block_k: int = 128) -> Any:
    config = helion.Config(block_sizes=[block_m, block_n, block_k])
    return helion.kernel(theirs, backend="pallas", config=config).jax_fn(x, y)


def test_it_takes_published_blocks() -> None:
    arrays = array("bfloat16", 512, 1024), array("bfloat16", 1024, 512)
    axes = {"block_m": 64, "block_n": 256, "block_k": 256}
    with told("TPU v6 lite"):
        default, given = (program(partial(product, **said), *arrays) for said in ({}, axes))
        autotune.configure(source=PublishedAxes(product=axes), chip="v6e")
        assert default != given == program(product, *arrays)
    autotune.configure()
