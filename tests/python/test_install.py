"""``autotune.install`` and JAX's own kernels: without block sizes they take what is published."""

import json
import logging
import pickle
import sys
from typing import Any

import jax
import pytest
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention
from jax.experimental.pallas.ops.tpu.splash_attention import (
    CausalMask,
    FullMask,
    LocalMask,
    MultiHeadMask,
    make_splash_mha_single_device,
)

import autotune
from autotune.answering.client import ServiceAnswers
from autotune.answering.matching import default_match
from autotune.cli import doctor as diagnosis
from autotune.declaring import discovery
from autotune.domain.errors import InvalidInputError, ServiceError
from autotune.domain.problem import make_config
from autotune.domain.workload import Workload, workload_problem, workload_text
from autotune.python.install import install_from_environment
from autotune.tables import hooks
from autotune_kernels.from_jax.flash_attention import FORWARD
from tests.samples.installed import PublishedAxes, array, calls, grids

FLASH = {"block_q": 256, "block_k_major": 512, "block_k": 256, "block_b": 1}
FLASH_DQ = {"block_q_dq": 256, "block_k_major_dq": 256, "block_k_dq": 256}
SPLASH = {"block_q": 256, "block_kv": 512, "block_kv_compute": 256}
GMM = {"tile_m": 256, "tile_k": 256, "tile_n": 128}
TGMM = {"tile_m": 64, "tile_k": 128, "tile_n": 128}
RAGGED = {"num_kv_pages_per_block": 4, "num_queries_per_block": 8}
Q = array("bfloat16", 2, 4, 1024, 128)
HEADS = array("bfloat16", 4, 1024, 128)
GROUPED = array("float32", 512, 256), array("float32", 4, 256, 384), array("int32", 4)


@pytest.fixture(autouse=True)
def clean():
    yield
    autotune.uninstall()
    autotune.configure()
    jax.clear_caches()


def installed(**axes):
    source = PublishedAxes(**axes)
    autotune.configure(source=source, chip="v5e")
    jax.clear_caches()
    assert autotune.install("jax") == ["jax"]
    return source


def splash(mask=None):
    return make_splash_mha_single_device(
        MultiHeadMask([CausalMask((1024, 1024)) if mask is None else mask] * 4)
    )


def test_flash_attention_and_its_gradient():
    source = installed(jax_flash_attention=FLASH, jax_flash_attention_dq=FLASH_DQ)

    def loss(q, k, v):
        return flash.flash_attention(q, k, v, causal=True).sum().astype("float32")

    tuned_q, default_q, tuned_k = 1024 // 256, 1024 // 128, 1024 // 512
    forward, dkv, dq = grids(jax.grad(loss, (0, 1, 2)), Q, Q, Q)
    assert forward == (2, 4, tuned_q, tuned_k)
    assert (dkv, dq) == ((2, 4, default_q, default_q), (2, 4, tuned_q, tuned_q))
    problem = "batch=2,heads=4,q_len=1024,kv_len=1024,head_dim=128,dtype=bfloat16,causal=True"
    assert source.problem("jax_flash_attention") == problem


def test_what_the_caller_says_wins():
    source = installed(jax_flash_attention=FLASH, jax_splash_attention=SPLASH, jax_gmm=GMM)
    sizes = flash.BlockSizes(block_q=512, block_k_major=128, block_k=128, block_b=1)
    q_blocks = grids(lambda *a: flash.flash_attention(*a, block_sizes=sizes), Q, Q, Q)
    assert q_blocks == [(2, 4, 2, 8)]
    default = [grids(lambda *a, t=t: gmm(*a, tiling=t), *GROUPED) for t in [(128, 128, 128)] * 2]
    assert default[0][0][::2] == (3, 2)
    assert flash.BlockSizes.get_default(2, 4, 1024, 1024, 128).block_q == 128
    assert source.asked == []


def test_what_the_catalogue_does_not_have_runs_as_it_is():
    source = installed(jax_flash_attention=FLASH)
    bias = array("bfloat16", 2, 4, 1024, 1024)
    assert grids(flash.flash_attention, Q, Q, Q, bias) == [(2, 4, 8, 8)]
    mixed = array("float32", 2, 4, 1024, 128)
    assert grids(flash.flash_attention, Q, mixed, mixed) == [(2, 4, 8, 8)]
    assert source.asked == []


@pytest.mark.parametrize("mask", [CausalMask((1024, 1024)), FullMask((1024, 1024))])
def test_splash_attention(mask):
    installed(jax_splash_attention=SPLASH)
    kernel = splash(mask)
    (call,) = calls(kernel, HEADS, HEADS, HEADS)
    assert call["grid_mapping"].grid == (4, 4, 2)
    said = json.loads(dict(call["metadata"] or {})["xprof_metadata"])
    assert said["block_kv"] == 512 and "jax_splash_attention" in said["autotune"]
    assert grids(jax.vmap(kernel), Q, Q, Q) == [(2, 4, 4, 2)]
    forward, *_ = grids(jax.grad(lambda *a: kernel(*a).sum().astype("f4")), HEADS, HEADS, HEADS)
    assert forward == (4, 4, 2)


def test_a_splash_kernel_that_is_an_argument_is_not_taken_for_another_mask():
    source = installed(jax_splash_attention=SPLASH)
    called = jax.jit(lambda kernel, *arrays: kernel(*arrays))
    for mask in (CausalMask((1024, 1024)), LocalMask((1024, 1024), (256, 0), 0)):
        called.trace(splash(mask), HEADS, HEADS, HEADS)
    assert "mask=local,window=256," in source.problem("jax_splash_attention")
    sizes = splash().kwargs["block_sizes"]
    assert sizes == splash().kwargs["block_sizes"]
    assert pickle.loads(pickle.dumps(sizes)) == type(sizes).__base__.get_default()


@pytest.mark.parametrize(
    "mask", [LocalMask((1024, 1024), (64, 64), 0), LocalMask((1024, 1024), (64, 0), 1)]
)
def test_a_mask_of_another_kind_runs_as_it_is(mask):
    source = installed(jax_splash_attention=SPLASH)
    assert grids(splash(mask), HEADS, HEADS, HEADS)[0][1] == 8
    assert source.asked == []


def test_grouped_products_and_their_gradients():
    source = installed(jax_gmm=GMM, jax_tgmm=TGMM)

    def loss(lhs, rhs, sizes):
        return gmm(lhs, rhs, sizes).sum()

    tiles = [(grid[0], grid[-1]) for grid in grids(jax.grad(loss, (0, 1)), *GROUPED)]
    assert tiles[:2] == [(3, 1), (2, 2)]  # of n and k: 384 by 128 and 256 by 256, and transposed
    assert source.problem("jax_gmm").startswith("m=512,k=384,n=256,groups=4,dtype=float32")
    assert source.problem("jax_tgmm").startswith("m=512,k=256,n=384,groups=4,dtype=float32")


def test_ragged_paged_attention():
    source = installed(jax_ragged_paged_attention=RAGGED)
    pages = array("bfloat16", 100, 16, 8, 128)
    integers = [array("int32", *shape) for shape in ((8,), (8, 16), (9,), (1,))]
    grid = grids(ragged_paged_attention, array("bfloat16", 64, 8, 128), pages, *integers)
    assert grid == [(1, 64 // 8)]
    problem = "seqs=8,tokens=64,q_heads=8,kv_heads=4,pages=16,page_size=16,head_dim=128"
    assert source.problem("jax_ragged_paged_attention").startswith(problem)


def test_uninstall_gives_everything_back():
    before, defaults = (
        vars(flash.BlockSizes)["get_default"],
        gmm.__wrapped__.__wrapped__.__defaults__,
    )
    installed(jax_flash_attention=FLASH, jax_gmm=GMM, jax_splash_attention=SPLASH)
    kernel = splash()
    autotune.install("jax")  # once more changes nothing
    autotune.uninstall()
    assert vars(flash.BlockSizes)["get_default"] is before
    assert gmm.__wrapped__.__wrapped__.__defaults__ == defaults
    assert grids(flash.flash_attention, Q, Q, Q) == [(2, 4, 8, 8)]
    assert grids(kernel, HEADS, HEADS, HEADS) == [(4, 8, 8)]  # though it was made before


def test_a_limit_without_a_place_is_not_taken(caplog):
    installed(limit=2**26, jax_flash_attention=FLASH)
    assert grids(flash.flash_attention, Q, Q, Q) == [(2, 4, 8, 8)]
    assert "no place" in caplog.text


def test_blocks_that_the_package_refuses_cost_nothing(caplog):
    installed(jax_flash_attention=FLASH | {"block_k": 512, "block_k_major": 256})
    assert grids(flash.flash_attention, Q, Q, Q) == [(2, 4, 8, 8)]
    assert "is refused by the kernel (ValueError: block_k=512 should be" in caplog.text


def test_a_mistake_of_the_caller_stays_the_packages_own():
    installed(jax_flash_attention=FLASH)
    with pytest.raises(ValueError, match="Batch size mismatch"):
        grids(flash.flash_attention, Q, array("bfloat16", 1, 4, 1024, 128), Q)


def test_another_release_is_left_alone(monkeypatch, caplog):
    monkeypatch.setattr("autotune.python.install.installed_version", lambda _: "99.0")
    before = vars(flash.BlockSizes)["get_default"]
    assert autotune.install("jax") == []
    assert vars(flash.BlockSizes)["get_default"] is before
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "99.0" in caplog.text


def test_the_start_of_a_model_reads_no_other_package(monkeypatch):
    """To look for entry points in all that is installed takes longer than all else at the start."""

    def read_all(**_):
        raise AssertionError("all packages are read")

    monkeypatch.setattr(discovery.metadata, "entry_points", read_all)
    autotune.uninstall()  # forgets kernels, too
    source = installed(jax_flash_attention=FLASH)
    grids(flash.flash_attention, Q, Q, Q)
    assert len(source.asked) == 3


def test_what_is_no_package_is_refused(monkeypatch):
    names: Any
    for names in ((), ("torch",), (["jax"],), ("jax", 3)):
        with pytest.raises(InvalidInputError, match=r"choose among jax.*install\('jax'\)"):
            autotune.install(*names)
    with pytest.raises(InvalidInputError, match=r"nowhere\.toml"):
        autotune.install("jax", workload="nowhere.toml")


def test_a_workload_is_asked_for_at_once_and_not_before_something_is_traced(tmp_path):
    """Whoever asks JAX for its device too early ends ``jax.distributed.initialize``."""
    asked = []

    class Service(ServiceAnswers):
        def lookup(self, questions, *_):
            asked.append(len(questions))
            return [default_match()] * len(questions)

    problem = FORWARD.problem_spec.parse("1x8x128x128x128", "bfloat16")
    problems = [workload_problem(f"jax_flash_attention{n}", problem) for n in ("", "_dq")]
    file = tmp_path / "model.toml"
    file.write_text(workload_text(Workload(problems=tuple(problems))))
    autotune.configure(source=Service(None), chip="v5e")
    autotune.install("jax", workload=file)
    assert asked == []
    grids(flash.flash_attention, Q, Q, Q)
    assert asked == [2, 1]
    autotune.refresh()  # as a fork does, and the end of an outage
    jax.clear_caches()
    grids(flash.flash_attention, Q, Q, Q)
    assert asked == [2, 1, 2, 1]


def test_a_plug_in_does_what_the_environment_says(monkeypatch, caplog):
    before = vars(flash.BlockSizes)["get_default"]
    install_from_environment()
    monkeypatch.setenv("AUTOTUNE_INSTALL", "jaxx")
    install_from_environment()
    assert vars(flash.BlockSizes)["get_default"] is before and "jaxx" in caplog.text
    monkeypatch.setenv("AUTOTUNE_INSTALL", " jax, ")
    install_from_environment()
    assert vars(flash.BlockSizes)["get_default"] is not before


def test_doctor_says_what_would_be_patched(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOTUNE_INSTALL", "jax")
    jax_finding, *others = diagnosis.hooks(sys.executable)
    assert jax_finding.condition == "ok" and "AUTOTUNE_INSTALL" in jax_finding.says
    for name, version in (("tokamax", "0.0.17"), ("jax", "99.0")):  # of another interpreter
        place = tmp_path / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jax_finding, tokamax, *_ = diagnosis.hooks(sys.executable)
    assert (jax_finding.condition, tokamax.condition) == ("-", "ok")
    assert "jax 99.0 is left alone" in jax_finding.says
    assert len(others) == len(hooks.PACKAGES) - 1
    monkeypatch.setenv("AUTOTUNE_INSTALL", "jax,jaxx")
    unknown, *_ = diagnosis.hooks(sys.executable)
    assert unknown.condition == "bad" and "jaxx" in unknown.says and "tokamax" in unknown.remedy


def test_what_is_collected_is_the_model_as_it_is():
    source = installed(jax_flash_attention=FLASH)
    with autotune.collect() as workload:
        workload.trace(flash.flash_attention, Q, Q, Q)
    assert source.asked == []
    assert [problem.kernel for problem in workload.workload.problems] == ["jax_flash_attention"]


def test_a_config_is_a_mapping_of_its_axes():
    assert flash.BlockSizes(**make_config(FLASH)).block_k_major == 512


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"source": 5}, "give the URL of a service"),
        ({"accept_claimed": "yes"}, "give True or False"),
        ({"strict": 1}, "give True or False"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(given, remedy):
    with pytest.raises(InvalidInputError, match=remedy):
        autotune.configure(**given)


def test_a_strict_source_says_what_is_wrong_with_it():
    installed(jax_flash_attention=FLASH)
    client = autotune.Client("http://localhost:9", strict=True)
    autotune.configure(source=client, chip="v5e")
    with pytest.raises(ServiceError):
        grids(flash.flash_attention, Q, Q, Q)
