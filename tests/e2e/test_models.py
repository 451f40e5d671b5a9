"""`autotune collect` on models of packages that nobody here wrote, counted by hand."""

import json
import os
import shutil
import subprocess
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Evidence
from autotune_db import open_store
from tests.samples import records
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


@pytest.mark.skipif(
    not os.environ.get("TPU_INFERENCE_PYTHON"),
    reason="TPU_INFERENCE_PYTHON names no interpreter with tpu-inference",
)
@pytest.mark.parametrize(
    ("model", "kernel", "sizes", "options", "has_table"),
    [
        ("gpt-oss-20b", "_64", {"heads": 8}, {"sinks": True}, True),
        ("qwen3-0.6b", "", {"heads": 2, "head_dim": 128}, {}, False),
    ],
)
def test_what_apply_writes_is_what_a_model_runs(model, kernel, sizes, options, has_table, tmp_path):
    """Where its package has a table of the kernel; who computes its blocks has none."""
    python, kernel = os.environ["TPU_INFERENCE_PYTHON"], f"vllm_ragged_paged_attention{kernel}"
    ask = "from importlib.util import find_spec; print(find_spec('tpu_inference').origin)"
    init = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()
    shutil.copytree(Path(init).parent, tmp_path / "project" / "tpu_inference")
    dims = {"seqs": 64, "tokens": 64, "kv_len": 4096, "page_size": 128, "kv_heads": 1, **sizes}
    config = Config(axes=(("num_kv_pages_per_block", 8), ("num_queries_per_block", 16)))
    with open_store(str(tmp_path / "test.db"), create=True) as store:
        for window in (0, 128)[: 1 + has_table]:
            of_call = {"batch": "decode", "window": window, "soft_cap": False, **options}
            named = {"dims": tuple(dims.items()), "options": tuple(of_call.items())}
            problem = Problem(dtype="bfloat16", **named)
            key = replace(records.key(), kernel=kernel, problem=problem, chip=Chip.V6E)
            default = Evidence(config=config, time_us=9)
            store.save_record(replace(records.record(key), config=config, default=default))
    done = autotune(
        *("apply", "project", "--model", f"{MODELS / 'tpu_inference_steps.py'}:step", "--dry-run"),
        *("--args", f"model='{model}', mode='decode'", "--chip", "v6e", "--python", python),
        *("--db", str(tmp_path / "test.db"), "--json"),
        cwd=tmp_path,
    )
    told = json.loads(done.stdout)["model"]
    ran = {call["before"]: (call["weight"], call["after"]) for call in told["calls"]}
    new = "num_kv_pages_per_block=8,num_queries_per_block=16"
    if has_table:
        sizes = ("2", "32"), ("32", "32")
        old = ("num_kv_pages_per_block={},num_queries_per_block={}".format(*each) for each in sizes)
        assert ran == dict.fromkeys(old, (12, new)) and not told["unreached"]
    else:
        assert ran == {blocks: (28, blocks) for blocks in ran}
        assert [row["has_table"] for row in told["unreached"]] == [False]
