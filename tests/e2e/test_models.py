"""`autotune collect` on models of packages that nobody here wrote, counted by hand."""

import json
import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.commands import autotune

pytestmark = pytest.mark.slow
MODELS = Path(__file__).parents[1] / "samples" / "models"
LISTED = tomllib.loads((MODELS / "models.toml").read_text())["model"]

TUNIX = pytest.mark.skipif(
    not os.environ.get("TUNIX_PYTHON"), reason="TUNIX_PYTHON names no interpreter with google-tunix"
)
MAXTEXT = pytest.mark.skipif(
    not os.environ.get("MAXTEXT_PYTHON"), reason="MAXTEXT_PYTHON names no interpreter with maxtext"
)
TOKAMAX = pytest.mark.skipif(
    not os.environ.get("TOKAMAX_PYTHON"), reason="TOKAMAX_PYTHON names no interpreter with tokamax"
)


def collected(model, call, chip, python):
    """The weight of each kernel, by its name and shape; of what is undeclared by its name."""
    where = f"{MODELS / model}"
    done = autotune(
        *("collect", where, "--args", call, "--chip", chip),
        *("--python", os.environ[python], "--json"),
        cwd=MODELS,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    weights = Counter[str]()  # of some, options differ
    for one in found["problems"]:
        weights[f"{one['kernel']} {one['shape']}"] += one["weight"]
    for one in found["undeclared"]:
        weights[one["name"]] += one["weight"]
    return weights


@pytest.mark.parametrize("model", LISTED, ids=lambda one: f"{one['package']} {one['args']}")
def test_each_model_runs_its_kernels_as_often_as_its_layers_say(model):
    if model["python"] not in os.environ:
        pytest.skip(f"{model['python']} names no interpreter with {model['package']}")
    found = Counter[str]()
    for name, weight in collected(model["call"], model["args"], "v6e", model["python"]).items():
        beginnings = (prefix for prefix in model["kernels"] if name.startswith(prefix))
        found[max(beginnings, key=len, default=name)] += weight
    assert found == model["kernels"]


@TUNIX
@pytest.mark.parametrize(
    ("function", "counts"),
    [
        # vmap over two sequences; 28 layers
        ("dense", {"jax_splash_attention heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 56}),
        # 4 layers, computed again, of two sequences
        (
            "trained",
            {
                "jax_splash_attention heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 16,
                "jax_splash_attention_dkv heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 8,
                "jax_splash_attention_dq heads=16,kv_heads=8,seq=2048,qk_dim=128,v_dim=128": 8,
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
def test_kernels_of_a_flax_transformer(function, counts):
    tokens = "tokens=i32[2,2048]"
    assert collected(f"qwen3.py:{function}", tokens, "v5e", "TUNIX_PYTHON") == counts


@TOKAMAX
def test_kernels_of_tokamax():
    found = collected("mixture.py:forward", "x=bf16[2,1024,1024]", "v6e", "TOKAMAX_PYTHON")
    assert found == {
        "tokamax_ragged_dot m=2048,k=1024,n=512,groups=8": 12,
        "tokamax_ragged_dot m=2048,k=512,n=1024,groups=8": 12,
        "tokamax_splash_attention heads=8,kv_heads=8,seq=1024,head_dim=128": 24,
    }


def attention(heads, kv_heads, dim, calls, layers):
    """Of packed sequences of 4,096: forward twice, as it is computed again."""
    shape = f"heads={heads},kv_heads={kv_heads},seq=4096,qk_dim={dim},v_dim={dim}"
    weights = {"": 2, "_dkv": 1, "_dq": 1}
    return {f"jax_splash_attention{n} {shape}": w * calls * layers for n, w in weights.items()}


@MAXTEXT
@pytest.mark.parametrize(
    ("model", "counts"),
    [
        # two sequences on each of eight chips
        ("llama3.1-8b", attention(32, 8, 128, 2, 32)),
        ("gemma3-4b", attention(8, 4, 256, 2, 34)),
        # gate, up and down, two experts for each of 8,192 tokens: forward twice, and dlhs; drhs
        (
            "mixtral-8x7b",
            attention(32, 8, 128, 2, 32)
            | {
                "maxtext_gmm m=16384,k=4096,n=14336,groups=8": (2 * 2 + 1) * 32,
                "maxtext_gmm m=16384,k=14336,n=4096,groups=8": (2 + 2) * 32,
                "maxtext_tgmm m=16384,k=4096,n=14336,groups=8": 2 * 32,
                "maxtext_tgmm m=16384,k=14336,n=4096,groups=8": 32,
            },
        ),
    ],
)
def test_kernels_of_a_step_of_training(model, counts):
    assert collected("maxtext_steps.py:step", f"model={model!r}", "v6e", "MAXTEXT_PYTHON") == counts


@MAXTEXT
def test_undeclared_kernels_of_packages_are_declared(tmp_path):
    """All of them; `autotune tune` takes what is written as it is."""
    done = autotune(
        *("collect", f"{MODELS / 'undeclared.py'}:step", "--chip", "v6e"),
        *("--args", "x=bf16[1024,2048],lengths=i32[4]", "--python", os.environ["MAXTEXT_PYTHON"]),
        *("--declare", str(tmp_path / "found.py"), "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["undeclared"] == []
    names = {one["kernel"].rpartition(":")[2]: one["weight"] for one in found["problems"]}
    assert names == {
        **dict.fromkeys(("matmul", "fused_fp8_matmul_pallas", "_rope_call"), 1),
        **dict.fromkeys(("ragged_gqa", "select", "gmm_v2", "mhc_pre_mixes"), 4),
    }
