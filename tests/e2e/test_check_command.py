"""The story that began it: tuned under one JAX, checked against another, mended, served."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.answering.matching import DEFAULT, Index
from autotune.compiling.environments.environment import FOLDER_VARIABLE
from autotune.compiling.pool import CompilerPool
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data
from autotune.domain.key import Chip, KernelRef, Key, Toolchain
from autotune.domain.outcome import Estimated
from autotune.domain.problem import make_config
from autotune.searching.one_config import evaluate
from autotune.searching.subject import describe_subject
from autotune_db import open_store
from tests.servers.commands import autotune
from tests.servers.environments import folder_with

OLD = "0.6.2"  # it falls back to one buffer where two do not fit; newer ones refuse
KERNEL = str(Path(__file__).parents[1] / "samples" / "fused_matmul.py")
SHAPE = "8192x8192x8192"
MEASURED_US = 26_156.0  # on a v5e, of the kernel and config that the first report of this was about
NEEDED_BYTES = 2 * 4 * (256 * 8192 + 8192 * 128 + 256 * 128)
"""Two buffers of each block of the config that wins under the old JAX, in float32."""


@pytest.fixture(scope="module")
def environments():
    """The old JAX beside ours."""
    return folder_with(OLD)


@pytest.fixture(scope="module")
def tuned(environments, tmp_path_factory):
    """Both kernels searched under the old JAX."""
    folder = tmp_path_factory.mktemp("check")
    for name in ("OWN_LIMIT", "PASSES_LIMIT"):
        command = ["search", f"{KERNEL}:{name}", "--shape", SHAPE, "--chip", "v5e"]
        limits = ["--trials", "6", "--jax", OLD, "--allow-unverified"]
        done = autotune(*command, *limits, cwd=folder, env=_place(environments))
        assert done.returncode == 0, done.stderr
    return folder


def _place(environments):
    return {FOLDER_VARIABLE: str(environments)}


def _check(folder, *options):
    names = [f"{KERNEL}:OWN_LIMIT", f"{KERNEL}:PASSES_LIMIT"]
    done = autotune("check", *names, "--json", *options, cwd=folder)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def checked(tuned):
    """What is said of both under the new JAX."""
    return _check(tuned)


def test_an_upgrade_is_judged_before_it_is_made(checked):
    code, checks = checked
    own = next(check for check in checks if check["key"]["kernel"] == "fused_own_limit")
    assert code == 1
    assert own["verdict"] == "needs limit"
    assert own["least_limit_bytes"] == NEEDED_BYTES
    assert own["action"] == f"pass vmem_limit_bytes >= {NEEDED_BYTES:_} to pallas_call"
    assert "needs 24.25 MiB of VMEM, 16.00 MiB are allowed" in own["finding"]


def test_what_holds_is_verified_and_exact_afterwards(tuned):
    _, checks = _check(tuned, "--verify")
    passing = next(check for check in checks if check["key"]["kernel"] == "fused_passes_limit")
    assert passing["verified"], passing
    name, problem = f"{KERNEL}:PASSES_LIMIT", ["--shape", SHAPE, "--chip", "v5e"]
    done = autotune("lookup", name, *problem, "--json", cwd=tuned)
    assert json.loads(done.stdout)["match"] == "exact", done.stdout


def test_a_search_that_finds_nothing_leaves_the_record_alone(tuned):
    """No block of this kernel fits the default limit under the new JAX, and it passes none on."""
    code, checks = _check(tuned, "--retune", "--trials", "4")
    assert (code, len(checks)) == (1, 2)
    history = json.loads(autotune("history", "--json", cwd=tuned).stdout)
    own = [entry for entry in history if entry["key"]["kernel"] == "fused_own_limit"]
    assert [entry["has_record"] for entry in own] == [False, True]


def test_what_needs_a_limit_is_not_answered_there(tuned, checked):
    _, checks = checked
    own = next(check for check in checks if check["key"]["kernel"] == "fused_own_limit")
    with open_store(str(tuned / "test.db"), create=False) as store:
        asked = replace(
            from_data(Key, own["key"]), toolchain=from_data(Toolchain, own["toolchain"])
        )
        found = Index(store.records(), store.kernels()).match(asked)
    assert found.kind == DEFAULT
    assert found.passed_over is not None and found.passed_over.check(asked.toolchain) is not None


def test_the_config_that_was_measured_is_estimated_within_the_stated_error():
    ref = KernelRef(path=KERNEL, attribute="PASSES_LIMIT")
    config = make_config({"block_m": 128, "block_n": 128}, vmem_limit_bytes=20_000_000)
    with CompilerPool(1) as pool:
        subject = describe_subject(pool, ref, Chip.V5E, ProblemWords(shape=SHAPE))
        found = evaluate(pool, subject, config)
    assert isinstance(found, Estimated) and found.estimate.error is not None
    assert abs(found.estimate.time_us / MEASURED_US - 1) <= found.estimate.error
