"""What the JAX of a record cannot run is verified under another one, and says so."""

import sys
from importlib.metadata import version

import pytest

from autotune.compiling.environments.environment import find_environment
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, VerifyConfig
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from autotune.wording.publication import verification
from tests.servers.environments import folder_with

OLD = "0.6.2"  # it has no interpret mode that can be forced


@pytest.fixture(scope="module")
def old():
    return find_environment(folder_with(OLD), OLD).python


@pytest.mark.parametrize("newer", [sys.executable, "/bin/false"])
def test_a_config_of_an_old_jax_is_verified_with_a_newer_one_that_works(old, newer):
    ref = find_kernel("vector_add")
    with CompilerPool(1, python=old, verify_with=[newer]) as pool:
        problem = pool.ask(DescribeKernel(ref=ref)).problems.parse("n=65536", "float32", ())
        config = make_config({"block_n": 4096}, grid_order=("n",))
        verdict = pool.ask(VerifyConfig(ref=ref, problem=problem, config=config, chip=Chip.V5E))
    if newer == sys.executable:
        assert verdict.ok, verdict.reason
        assert verdict.proof.jax == version("jax")
        assert verification(verdict).endswith(f"verified with jax {version('jax')}")
    else:
        assert verdict.ok is None
        assert "no way to run" in verdict.reason
