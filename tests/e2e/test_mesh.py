"""Kernels under ``shard_map`` through the real compiler: the program of one device."""

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    TraceConfig,
    VerifyConfig,
)
from autotune.domain.key import Chip
from autotune.domain.outcome import CompileFailed, Estimated, NotEstimated
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.estimate import estimate
from tests.samples import meshed

CONFIG = make_config({"block": 128})


def outcome(
    pool: CompilerPool, shape: str, chip: Chip, sends: str = "false", kernel: str = "KERNEL"
) -> object:
    ref = find_kernel(f"{meshed.__file__}:{kernel}")
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(shape, None, [f"sends={sends}"])
    answer = pool.ask(CompileConfig(ref=ref, problem=problem, config=CONFIG, chip=chip)).answer
    return (
        estimate(*answer, pool.ask(DescribeChip(chip=chip)))
        if isinstance(answer, tuple)
        else answer
    )


@pytest.mark.parametrize(("chip", "devices"), [(Chip.V6E, 2), (Chip.V7X, 8)])
def test_the_time_is_that_of_the_rows_of_one_device(
    pool: CompilerPool, chip: Chip, devices: int
) -> None:
    alone = outcome(pool, "rows=4096,devices=1", chip)
    divided = outcome(pool, f"rows={4096 * devices},devices={devices}", chip)
    assert isinstance(alone, Estimated), alone
    assert isinstance(divided, Estimated), divided
    assert divided.estimate.time_us == pytest.approx(alone.estimate.time_us)
    assert divided.estimate.hbm_bytes == alone.estimate.hbm_bytes


def test_what_sends_to_other_devices_is_compiled_and_not_estimated(pool: CompilerPool) -> None:
    found = outcome(pool, "rows=512,devices=4", Chip.V5E, "true")
    assert isinstance(found, NotEstimated), found
    assert found.reason.startswith("it sends to other devices")


@pytest.mark.parametrize(
    ("kernel", "sends"), [("KERNEL", "false"), ("KERNEL", "true"), ("BUILT_OVER", "false")]
)
def test_it_is_verified_on_as_many_devices(pool: CompilerPool, kernel: str, sends: str) -> None:
    ref = find_kernel(f"{meshed.__file__}:{kernel}")
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(
        "rows=1024,devices=4", None, [f"sends={sends}"]
    )
    verdict = pool.ask(
        VerifyConfig(ref=ref, problem=problem, config=make_config({"block": 64}), chip=Chip.V6E)
    )
    assert verdict.ok, verdict.reason


def test_a_mesh_may_be_asked_for_while_the_function_is_built(pool: CompilerPool) -> None:
    found = [
        outcome(pool, "rows=512,devices=4", Chip.V6E, kernel=k) for k in ("KERNEL", "BUILT_OVER")
    ]
    assert isinstance(found[1], Estimated), found[1]
    assert found[0] == found[1]


def test_without_a_mesh_it_is_said_how_to_give_one(pool: CompilerPool) -> None:
    ref = find_kernel(f"{meshed.__file__}:WITHOUT")
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse("rows=1024,devices=4", None, [])
    found = pool.ask(TraceConfig(ref=ref, problem=problem, config=CONFIG, chip=Chip.V6E))
    assert isinstance(found, CompileFailed), found
    assert "mesh=lambda problem: {'x': 4}" in found.reason


def test_a_number_of_devices_that_no_slice_has_is_said(pool: CompilerPool) -> None:
    found = outcome(pool, "rows=768,devices=3", Chip.V6E)
    assert isinstance(found, CompileFailed), found
    assert "power of two" in found.reason
