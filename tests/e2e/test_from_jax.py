"""JAX's own kernels through the real compiler and the gate, from whatever JAX is installed."""

import pytest

from autotune.domain.compilers import CheckDeclaration, ListChoices
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from tests.samples.questions import case_of

FLASH = "batch=2,heads=2,q_len=512,kv_len=512,head_dim=128"
SPLASH = "heads=4,kv_heads=2,seq=512,qk_dim=128,v_dim=128"
GROUPED = "m=512,k=256,n=256,groups=3"
PAGED = "batch=4,q_heads=8,kv_heads=2,pages=8,page_size=16,head_dim=128"
RAGGED = "seqs=4,tokens=64,q_heads=8,kv_heads=2,pages=8,page_size=16,head_dim=128"

KERNELS = {
    "jax_flash_attention": (FLASH, "causal=true"),
    "jax_flash_attention_dkv": (FLASH, "causal=false"),
    "jax_flash_attention_dq": (FLASH, "causal=true"),
    "jax_splash_attention": (SPLASH, "mask=local"),
    "jax_splash_attention_dkv": (SPLASH, "mask=causal"),
    "jax_splash_attention_dq": (SPLASH, "mask=full"),
    "jax_splash_attention_fused": (SPLASH, "mask=causal"),
    "jax_gmm": (GROUPED, "sizes=skewed"),
    "jax_tgmm": (GROUPED, "sizes=skewed"),
    "jax_paged_attention": (PAGED, "lengths=long-tail"),
    "jax_ragged_paged_attention": (RAGGED, "batch=mixed"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_compiles_is_estimated_and_is_right(pool, name):
    shape, option = KERNELS[name]
    case = case_of(pool, name, shape, None, [option])
    case.ask(CheckDeclaration, chip=Chip.V6E)
    config = make_config(case.ask(ListChoices).default)
    answer = case.compile(config, Chip.V6E)
    assert isinstance(answer, tuple), answer
    trace, compiled = answer
    assert compiled.simulation is not None, compiled.refusal
    assert compiled.vmem_used_bytes > 0
    assert trace.grid
    verdict = case.verify(config)
    assert verdict.ok, verdict
