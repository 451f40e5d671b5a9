"""JAX's flash and splash attention: references against NumPy, blocks, what the gate must refuse."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune.compiling.child.verify import gate
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from autotune_kernels.from_jax import attention, flash_attention, splash, splash_attention, versions

FLASH = "batch=1,heads=2,q_len=256,kv_len=256,head_dim=128"
SPLASH = "heads=4,kv_heads=2,seq=256,qk_dim=128,v_dim=128"


def numbers(kernel, problem):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(a.values() if a.values else a.std * rng.standard_normal(a.shape), a.dtype)
        for a in kernel.inputs(problem)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["causal=false", "causal=true"])
def test_flash_gradients_are_those_that_jax_derives(option):
    problem = flash_attention.FORWARD.problem_spec.parse(FLASH, "float32", [option])
    q, k, v = numbers(flash_attention.FORWARD, problem)
    do = jnp.asarray(np.random.default_rng(1).standard_normal(q.shape), jnp.float32)
    attend = flash_attention.FORWARD.reference(problem)
    out, back = jax.vjp(attend, q, k, v)
    visible = attention.causal(256, 256) if option == "causal=true" else None
    logits = attention.scores(q, k, visible, attention.scale_of(128))[:, :, 0]
    m = logits.max(-1)
    total = jnp.exp(logits - m[..., None]).sum(-1)
    saved = (total, m, do, (out * do).sum(-1))
    dq = flash_attention.DQ.reference(problem)(q, k, v, *saved)
    dkv = flash_attention.DKV.reference(problem)(q, k, v, *saved)
    for found, expected in zip((*dq, *dkv), back(do), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["mask=causal", "mask=local window=128", "mask=full", "segments=true soft_cap=true"]
)
def test_splash_gradients_are_those_that_jax_derives(options):
    parsed = [
        kernel.problem_spec.parse(SPLASH, "float32", options.split())
        for kernel in (splash_attention.FORWARD, splash_attention.FUSED)
    ]
    q, k, v, *segments = numbers(splash_attention.FORWARD, parsed[0])
    do = jnp.asarray(np.random.default_rng(1).standard_normal(q.shape), jnp.float32)
    attend = splash.plain(parsed[0], residuals=True)
    (out, rows), back = jax.vjp(lambda *qkv: attend(*qkv, *segments), q, k, v)
    saved = (rows, do, (out * do).sum(-1), *segments)
    found = splash_attention.FUSED.reference(parsed[1])(q, k, v, *saved)
    for got, expected in zip(found, back((do, jnp.zeros_like(rows))), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-4)


@pytest.mark.parametrize(
    "options", ["mask=causal", "mask=local window=127 stored=true", "mask=full"]
)
def test_our_mask_is_jaxs(options):
    problem = splash_attention.FORWARD.problem_spec.parse(SPLASH, "float32", options.split())
    theirs = np.asarray(splash_attention._mask(problem).masks[0][:, :])
    ours = splash.visible(problem)
    assert (theirs == (np.ones((256, 256), bool) if ours is None else np.asarray(ours))).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FORWARD", "segments=true residuals=true sinks=true"),
        ("FORWARD", "mask=local window=255 stored=true soft_cap=true"),
        ("FUSED", "segments=true soft_cap=true"),
        ("DQ", "mask=local window=255 stored=true sinks=true"),
    ],
)
def test_options_of_splash_attention_pass_the_gate(name, options):
    kernel = getattr(splash_attention, name)
    problem = kernel.problem_spec.parse(SPLASH, "bfloat16", options.split())
    config = make_config(dict(kernel.default(problem)))
    assert gate.check(kernel, problem, config, Chip.V6E).ok


def test_splash_attention_says_which_options_do_not_go_together():
    for options in (["mask=full", "stored=true"], ["mask=causal", "window=128"]):
        problem = splash_attention.FORWARD.problem_spec.parse(SPLASH, "float32", options)
        assert splash.check(problem)


@pytest.mark.parametrize("extent", [128, 192, 384, 1024, 4096, 5120])
def test_blocks_divide_the_length(extent):
    sizes = attention.dividing_blocks(extent)
    assert sizes and all(extent % size == 0 for size in sizes)
    assert all(size == extent or size % 128 == 0 for size in sizes)


BACKWARD = {"block_q_dq": 128, "block_k_major_dq": 128, "block_k_dq": 256}


def test_an_inner_block_larger_than_the_outer_is_refused_by_the_declaration():
    problem = flash_attention.DQ.problem_spec.parse(FLASH)
    with pytest.raises(ValueError, match=r"block_k_dq=256 should be smaller"):
        flash_attention.DQ.build(problem, make_config(BACKWARD))


@pytest.mark.slow
def test_without_that_the_gate_refuses_it(monkeypatch):
    """JAX's function takes such blocks, and leaves part of the result at zero."""
    real = versions.op

    def lenient(module, name):
        return (lambda **_: None) if name == "BlockSizes" else real(module, name)

    monkeypatch.setattr(flash_attention.versions, "op", lenient)
    problem = flash_attention.DQ.problem_spec.parse(FLASH.replace("256", "512"))
    verdict = gate.check(flash_attention.DQ, problem, make_config(BACKWARD), Chip.V5E)
    assert (verdict.ok, verdict.check) == (False, "values")
    right = make_config({**BACKWARD, "block_k_dq": 128})
    assert gate.check(flash_attention.DQ, problem, right, Chip.V5E).ok


def test_a_jax_that_lacks_something_says_what():
    with pytest.raises(ImportError, match=r"jax .* has no .*flash_attention\.no_such_thing"):
        versions.op("flash_attention", "no_such_thing")
    with pytest.raises(ImportError, match=r"has no .*ops\.tpu\.no_such_module\.x"):
        versions.op("no_such_module", "x")


def test_parameters_that_a_jax_lacks_are_left_out_or_named():
    def function(block_q, interpret=False): ...

    found = versions.settings(function, block_q=128, sinks=None, interpret=False)
    assert found == {"block_q": 128, "interpret": False}
    with pytest.raises(TypeError, match=r"function of jax .* has no parameter block_kv"):
        versions.settings(function, block_kv=128)
    assert versions.settings(partial(function, interpret=True), block_q=8) == {"block_q": 8}
