"""A kernel of Helion's is tuned as any function of JAX: ``test_in_the_field`` runs this under a
Python that has Helion."""

from functools import partial
from typing import Any

import pytest

import autotune
from autotune.domain.errors import InvalidInputError
from tests.samples.installed import PublishedAxes, array, program, told

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
import helion.language as hl  # noqa: E402


def theirs(x, y):
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
def product(x, y, *, block_m=128, block_n=128, block_k=128):
    config = helion.Config(block_sizes=[block_m, block_n, block_k])
    return helion.kernel(theirs, backend="pallas", config=config).jax_fn(x, y)


def test_it_takes_published_blocks():
    arrays = array("bfloat16", 512, 1024), array("bfloat16", 1024, 512)
    axes = {"block_m": 64, "block_n": 256, "block_k": 256}
    with told("TPU v6 lite"):
        default, given = (program(partial(product, **said), *arrays) for said in ({}, axes))
        autotune.configure(source=PublishedAxes(product=axes), chip="v6e")
        assert default != given == program(product, *arrays)
    autotune.configure()


def test_its_own_search_gets_our_estimates(monkeypatch):
    monkeypatch.setenv("HELION_AUTOTUNER", "RandomSearch")
    tensors = (torch.empty(512, 1024, dtype=torch.bfloat16), torch.empty(1024, 512).bfloat16())
    ours, told_ms = autotune.helion_search(chip="v6e"), dict[Any, float]()

    def search(*given, **more):
        made = ours(*given, **more)
        batch = made.benchmark_batch

        def noted(*configs, **how):
            results = batch(*configs, **how)
            told_ms.update({result.config: result.perf for result in results})
            return results

        made.benchmark_batch = noted
        return made

    seeds = [helion.Config(block_sizes=[size, size, size]) for size in (128, 256)]
    kernel = helion.kernel(
        theirs, backend="pallas", autotuner_fn=search, autotune_seed_configs=seeds
    )
    best = kernel.autotune(tensors, count=3)
    assert told_ms[best] == min(told_ms.values())
    arrays = array("bfloat16", 512, 1024), array("bfloat16", 1024, 512)
    blocks = dict(zip(("block_m", "block_n", "block_k"), seeds[0].block_sizes, strict=True))
    (alone,) = autotune.estimate(product, *arrays, configs=[blocks], chip="v6e")
    assert alone.estimate is not None and alone.estimate.time_us / 1e3 in told_ms.values()


def test_a_kernel_that_no_other_process_finds():
    @helion.kernel(backend="pallas", autotuner_fn=autotune.helion_search(chip="v6e"))
    def hidden(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size()):
            out[tile] = x[tile] * 2
        return out

    with pytest.raises(InvalidInputError, match="define it at the top of a module"):
        hidden.autotune((torch.empty(256, 256),))
