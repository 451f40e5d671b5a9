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


@pytest.mark.parametrize(
    "model", LISTED, ids=lambda one: f"{one['package']} {one['name']} {one['args']}"
)
def test_each_model_runs_its_kernels_as_often_as_its_layers_say(model):
    """By name and shape; what is undeclared has its name alone, and of some, options differ."""
    if model["python"] not in os.environ:
        pytest.skip(f"{model['python']} names no interpreter with {model['package']}")
    asked = (f"{MODELS / model['call']}", "--args", model["args"], "--chip", "v6e")
    done = autotune(
        "collect", *asked, "--python", os.environ[model["python"]], "--json", cwd=MODELS
    )
    assert done.returncode == 0, done.stderr
    told, found = json.loads(done.stdout), Counter[str]()
    calls = [(f"{one['kernel']} {one['shape']}", one["weight"]) for one in told["problems"]]
    for name, weight in calls + [(one["name"], one["weight"]) for one in told["undeclared"]]:
        beginnings = (prefix for prefix in model["kernels"] if name.startswith(prefix))
        found[max(beginnings, key=len, default=name)] += weight
    assert found == model["kernels"]


@pytest.mark.skipif(
    not os.environ.get("MAXTEXT_PYTHON"), reason="MAXTEXT_PYTHON names no interpreter with maxtext"
)
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
