"""Kernels in many styles pass the gate; each fault that somebody makes in one is refused."""

import json
from pathlib import Path

import pytest

from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import ListChoices, ReadProblem, VerifyConfig
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import make_config

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[3] / "samples" / "twins" / "strangers.py"
FAULTS = json.loads(SOURCE.with_suffix(".json").read_text())

CALLS = {
    "back_substitution": ("u=f32[1024,1024], b=f32[1024,256]", {"block": 32}),
    "segment_sum": ("ids=i32[1,8192], x=f32[8192,128]", {"rows": 128, "segments": 64}),
    "image_convolution": ("x=f32[256,128,128], w=f32[3,3,128]", {"block": 16}),
    "top_k": ("x=f32[64,10000]", {"rows": 16, "block": 512}),
    "running_maximum": ("x=f32[256,8192]", {"rows": 16, "block": 512}),
    "block_sparse": (
        "starts=i32[17], columns=i32[100], a=f32[100,128,128], b=f32[2048,1024]",
        {"block": 256},
    ),
    "page_update": (
        "pages=i32[128], places=i32[1024], new=f32[1024,8,128], cache=f32[256,16,8,128]",
        {"block": 16},
    ),
    "four_bits": ("x=f32[512,4096], w=i8[2048,512], scales=f32[32,512]", {"m": 128, "n": 256}),
    "rope": ("x=f32[8,4000,128]", {"block": 128}),
    "layer_norm": ("x=f32[256,5000], w=f32[1,5000]", {"rows": 16, "block": 512}),
    "sort_runs": ("x=f32[1024,512]", {"block": 128}),
    "histogram": ("x=f32[1000,256]", {"block": 16}),
    "dropout": ("x=f32[1024,2048]", {"rows": 64, "columns": 256}),
    "window_attention": ("q=f32[4096,64], k=f32[4096,64], v=f32[4096,64]", {"block": 128}),
    "biased": (
        "x=bf16[1024,4096], w=bf16[4096,512], bias=bf16[1,512]",
        {"m": 256, "n": 256, "k": 512},
    ),
    "gather_rows": ("ids=i32[2048], table=f32[10000,8,128]", {"block": 32, "flight": 8}),
    "column_variance": ("x=f32[4096,512]", {"rows": 256, "lanes": 256}),
    "sum_of_parts": ("x=f32[1048576,4096], w=f32[1,4096]", {"block": 16}),
    "divided_product": ("x=f32[512,1024], w=f32[1024,256]", {"block": 32}),
    "ring_gather": ("x=f32[64,128]", {"unused": 2}),
    "paged_sum": ("lengths=i32[16], table=i32[8192], cache=f32[96,16,8,128]", {"block": 256}),
    "generated_product": ("x=f32[512,512], y=f32[512,512]", {"m": 64, "n": 256, "k": 256}),
}
"""Of each kernel: a call, and a config that is not the default."""


def verdict_on(pool, kernel, source):
    call, config = CALLS[kernel]
    ref = KernelRef(path=str(source), attribute=kernel, call=call)
    problem = pool.ask(ReadProblem(ref=ref, words=ProblemWords(call=call))).problem
    choices = pool.ask(ListChoices(ref=ref, problem=problem, chip=Chip.V5E))
    axes = make_config({**choices.default, **config})
    return pool.ask(VerifyConfig(ref=ref, problem=problem, config=axes, chip=Chip.V5E))


@pytest.mark.parametrize("kernel", CALLS)
def test_a_kernel_that_is_right_passes(pool, kernel):
    verdict = verdict_on(pool, kernel, SOURCE)
    assert verdict.ok is True, verdict


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [pytest.param(kernel, *edit, id=f"{kernel}-{fault}") for kernel, fault, *edit in FAULTS],
)
def test_one_with_a_fault_does_not(pool, tmp_path, kernel, old, new):
    source, broken = SOURCE.read_text(), tmp_path / f"{kernel}.py"
    assert source.count(old) == 1
    broken.write_text(source.replace(old, new))
    verdict = verdict_on(pool, kernel, broken)
    assert verdict.ok is not True, verdict
