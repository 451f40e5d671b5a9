"""JAX's paged attention kernels: what is declared of them, against NumPy and in interpret mode."""

from collections.abc import Callable
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune.compiling.child.devices import abstract_mesh
from autotune.domain.problem import make_config
from autotune_kernels.from_jax.flash_attention import DQ
from autotune_kernels.from_jax.flash_attention import FORWARD as FLASH
from autotune_kernels.from_jax.paged_attention import PAGED
from autotune_kernels.from_jax.ragged_paged_attention import RAGGED

Check = Callable[..., None]
LENGTHS = ("full", "uniform", "long-tail")
BATCHES = ("decode", "prefill", "mixed")
KERNELS = pytest.mark.parametrize("kernel", [PAGED, RAGGED], ids=lambda kernel: kernel.name)


def _scalars(kernel, problem):
    return {a.name: a.values() for a in kernel.inputs(problem) if a.values is not None}


def _arrays(kernel, problem):
    """Random numbers, none of them large: attention is then far from choosing a single key."""
    rng, known = np.random.default_rng(1), _scalars(kernel, problem)
    return [
        known.get(a.name, 0.5 * rng.standard_normal(a.shape).astype(np.float32))
        for a in kernel.inputs(problem)
    ]


def _attend(q, k, v):
    """One query [head_dim], keys and values [keys, head_dim]."""
    weights = np.exp(k @ q - np.max(k @ q))
    return weights @ v / weights.sum()


def _paged_in_numpy(problem, arrays):
    q, k_pages, v_pages, lengths, table = arrays
    group, out = problem["q_heads"] // problem["kv_heads"], np.zeros_like(q)
    for b, head in np.ndindex(q.shape[:2]):
        k, v = (pages[head // group, table[b]] for pages in (k_pages, v_pages))
        k, v = (x.reshape(-1, q.shape[-1])[: lengths[b]] for x in (k, v))
        out[b, head] = _attend(q[b, head], k, v)
    return out


def _ragged_in_numpy(problem, arrays):
    q, kv_pages, kv_lens, table, starts, num_seqs = arrays
    group, out = problem["q_heads"] // problem["kv_heads"], np.zeros_like(q)
    for s in range(num_seqs[0]):
        kv = kv_pages[table[s]].reshape(-1, *kv_pages.shape[2:])[: kv_lens[s]]
        behind = kv_lens[s] - starts[s + 1]  # query number i sees keys up to i + behind
        for i in range(starts[s], starts[s + 1]):
            for head in range(problem["q_heads"]):
                k, v = (kv[: i + behind + 1, 2 * (head // group) + part] for part in (0, 1))
                out[i, head] = _attend(q[i, head] * q.shape[-1] ** -0.5, k, v)
    return out


def _assert_close(kernel, problem, arrays, want):
    for function in (kernel.reference, kernel.baseline):
        got = np.asarray(function(problem)(*arrays), np.float32)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-2)
    exact = kernel.reference(problem)(*arrays)
    tolerance = 1e-5 if problem.dtype == "float32" else 5e-3
    np.testing.assert_allclose(np.asarray(exact, np.float32), want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_paged_references_attend_to_the_pages_of_a_sequence(lengths):
    problem = PAGED.problem_spec.parse("3x4x2x4x8x128", options=[f"lengths={lengths}"])
    arrays = _arrays(PAGED, problem)
    _assert_close(PAGED, problem, arrays, _paged_in_numpy(problem, arrays))


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
def test_ragged_references_attend_causally(batch):
    problem = RAGGED.problem_spec.parse("4x20x4x2x3x8x128", "float32", [f"batch={batch}"])
    arrays = _arrays(RAGGED, problem)
    _assert_close(RAGGED, problem, arrays, _ragged_in_numpy(problem, arrays))


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("heads", ["4x2", "8x1"])
def test_the_paged_kernel_gives_the_references_result(assert_right, inline, heads):
    axes = {"pages_per_compute_block": 2, "inline_seq_dim": inline}
    assert_right(PAGED, f"2x{heads}x4x16x128", "bfloat16", "lengths=uniform", **axes)


@KERNELS
def test_every_choice_traces_to_the_references_result(kernel):
    shape = {PAGED.name: "4x8x2x4x16x128", RAGGED.name: "4x32x8x2x4x16x128"}[kernel.name]
    problem = kernel.problem_spec.parse(shape)
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kernel.inputs(problem)]
    want = jax.eval_shape(kernel.reference(problem), *specs)
    for axis in kernel.axes:
        for choice in axis.choices(problem):
            config = make_config({**kernel.default(problem), axis.name: choice})
            got = jax.eval_shape(kernel.build(problem, config), *specs)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)


def test_megacore_needs_a_chip_with_two_cores():
    problem = PAGED.problem_spec.parse("2x2x2x4x16x128")
    config = make_config({**PAGED.default(problem), "megacore_mode": "kv_head"})
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in PAGED.inputs(problem)]
    function = PAGED.build(problem, config)
    with abstract_mesh(SimpleNamespace(device_kind="TPU v5p", num_cores=2)):
        assert jax.eval_shape(function, *specs).shape == (2, 2, 128)
    with (
        abstract_mesh(SimpleNamespace(device_kind="TPU v5 lite", num_cores=1)),
        pytest.raises(ValueError, match="megacore_mode=kv_head needs a chip with two cores"),
    ):
        jax.eval_shape(function, *specs)


@pytest.mark.parametrize(
    ("kernel", "shape", "sentence"),
    [
        (PAGED, "2x3x2x4x16x128", "q_heads=3 must be a multiple of kv_heads=2"),
        (PAGED, "2x2x2x4x16x64", "head_dim=64 must be a multiple of 128"),
        (RAGGED, "2x8x3x2x4x16x128", "q_heads=3 must be a multiple of kv_heads=2"),
        (RAGGED, "2x8x2x2x4x16x192", "head_dim=192 must be a multiple of 128"),
        (RAGGED, "2x8x6x3x4x16x128", "kv_heads=3 do not fill whole tiles"),
        (FLASH, "1x8x1024x1000x128", "kv_len=1000 must be a multiple of 128"),
        (FLASH, "1x8x1x1024x128", "q_len=1 must be at least 128"),
        (DQ, "1x8x1000x1024x128", "q_len=1000 must be a multiple of 128"),
    ],
)
def test_impossible_problems_say_why(kernel, shape, sentence):
    assert sentence in str(kernel.check(kernel.problem_spec.parse(shape)))


@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e", "v7x"])
@pytest.mark.parametrize(
    "shape",
    [
        "seqs=32,tokens=1024,q_heads=16,kv_heads=4,pages=64,page_size=16,head_dim=128",
        "seqs=8,tokens=512,q_heads=8,kv_heads=4,pages=8,page_size=64,head_dim=128",
        "seqs=8,tokens=4000,q_heads=24,kv_heads=4,pages=40,page_size=32,head_dim=128",
    ],
)
def test_the_default_on_a_chip_is_what_jax_takes_there(chip, shape, monkeypatch):
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel, tuned_block_sizes

    kinds = {"v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite"}
    device = SimpleNamespace(device_kind=kinds.get(chip, "TPU7x"))
    monkeypatch.setattr(tuned_block_sizes.jax, "devices", lambda *_: [device])
    p = RAGGED.problem_spec.parse(shape)
    dtype = jnp.dtype(p.dtype)
    heads = kernel.get_min_heads_per_blk(p["q_heads"], 2 * p["kv_heads"], dtype, dtype)
    pages, queries = tuned_block_sizes.get_tuned_block_sizes(
        dtype,
        dtype,
        heads[0],
        heads[1] // 2,
        p["head_dim"],
        p["page_size"],
        p["tokens"],
        p["pages"],
    )
    expected = {"num_kv_pages_per_block": pages, "num_queries_per_block": queries}
    assert RAGGED.default_axes(p, chip) == expected
    assert RAGGED.default_axes(p, None) == RAGGED.default(p)
