"""`autotune collect` on models of packages that nobody here wrote, counted by hand."""

import json
import os
from pathlib import Path

import pytest

from tests.servers.commands import autotune

pytestmark = pytest.mark.slow
MODELS = Path(__file__).parents[1] / "samples" / "models"

TUNIX = pytest.mark.skipif(
    not os.environ.get("TUNIX_PYTHON"), reason="TUNIX_PYTHON names no interpreter with google-tunix"
)
TOKAMAX = pytest.mark.skipif(
    not os.environ.get("TOKAMAX_PYTHON"), reason="TOKAMAX_PYTHON names no interpreter with tokamax"
)


def collected(model: str, call: str, chip: str, python: str) -> dict[str, float]:
    """The weight of each kernel, by its name and shape; of what is undeclared by its name."""
    where = f"{MODELS / model}"
    done = autotune(
        *("collect", where, "--args", call, "--chip", chip),
        *("--python", os.environ[python], "--json"),
        cwd=MODELS,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    declared = {f"{one['kernel']} {one['shape']}": one["weight"] for one in found["problems"]}
    return declared | {one["name"]: one["weight"] for one in found["undeclared"]}


@TUNIX
@pytest.mark.parametrize(
    ("function", "counts"),
    [
        # vmap over two sequences; 28 layers
        ("dense", {"jax_splash_attention heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 56}),
        # 4 layers, computed again: what has residuals is undeclared, its grid has the batch
        (
            "trained",
            {
                "jax_splash_attention_dkv heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 8,
                "jax_splash_attention_dq heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 8,
                "splash_mha_fwd_residuals": 8,
            },
        ),
        # 48 layers: attention of two sequences; gate and up, down: 2 x 2048 tokens to 8 experts
        (
            "experts",
            {
                "jax_splash_attention heads=32,kv_heads=4,seq=2048,qk_dim=128,v_dim=128": 96,
                "jax_gmm m=32768,k=2048,n=768,groups=128": 96,
                "jax_gmm m=32768,k=768,n=2048,groups=128": 48,
            },
        ),
    ],
)
def test_kernels_of_a_flax_transformer(function: str, counts: dict[str, float]) -> None:
    tokens = "tokens=i32[2,2048]"
    assert collected(f"qwen3.py:{function}", tokens, "v5e", "TUNIX_PYTHON") == counts


@TOKAMAX
def test_kernels_of_tokamax() -> None:
    found = collected("mixture.py:forward", "x=bf16[2,1024,1024]", "v6e", "TOKAMAX_PYTHON")
    assert found == {
        "tokamax_ragged_dot m=2048,k=1024,n=512,groups=8": 12,
        "tokamax_ragged_dot m=2048,k=512,n=1024,groups=8": 12,
        "splash_mha_fwd_no_residuals": 12,
    }
