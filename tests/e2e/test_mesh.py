"""Kernels under ``shard_map`` through the real compiler: the program of one device."""

import pytest

from autotune.domain.key import Chip
from autotune.domain.outcome import CompileFailed, Estimated, Regime
from autotune.domain.problem import make_config
from autotune.estimating.simulator.constants import link_bytes_per_us
from tests.samples import meshed
from tests.samples.questions import case_of

CONFIG = make_config({"block": 128})


def case(pool, shape, kernel="KERNEL", sends="false"):
    options = () if kernel == "WITHOUT" else (f"sends={sends}",)
    return case_of(pool, f"{meshed.__file__}:{kernel}", shape, None, options)


@pytest.mark.parametrize(("chip", "devices"), [(Chip.V6E, 2), (Chip.V7X, 8)])
def test_the_time_is_that_of_the_rows_of_one_device(pool, chip, devices):
    alone = case(pool, "rows=4096,devices=1").estimated(CONFIG, chip)
    shape = f"rows={4096 * devices},devices={devices}"
    divided = case(pool, shape).estimated(CONFIG, chip)
    assert isinstance(alone, Estimated), alone
    assert isinstance(divided, Estimated), divided
    assert divided.estimate.time_us == pytest.approx(alone.estimate.time_us)
    assert divided.estimate.hbm_bytes == alone.estimate.hbm_bytes


def test_what_sends_takes_as_long_as_its_link(pool):
    found = case(pool, "rows=4096,devices=4", sends="true").estimated(CONFIG, Chip.V5E)
    assert isinstance(found, Estimated), found
    link_us = 4096 / 4 * meshed.WIDTH * 4 / link_bytes_per_us("v5e")
    assert link_us < found.estimate.time_us < 1.2 * link_us
    assert found.estimate.limited_by == Regime.LINKS
    assert found.estimate.error == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("kernel", "sends"), [("KERNEL", "false"), ("KERNEL", "true"), ("BUILT_OVER", "false")]
)
def test_it_is_verified_on_as_many_devices(pool, kernel, sends):
    verdict = case(pool, "rows=1024,devices=4", kernel, sends).verify(make_config({"block": 64}))
    assert verdict.ok, verdict.reason


def test_without_a_mesh_it_is_said_how_to_give_one(pool):
    found = case(pool, "rows=1024,devices=4", "WITHOUT").trace(CONFIG, Chip.V6E)
    assert isinstance(found, CompileFailed), found
    assert "mesh=lambda problem: {'x': 4}" in found.reason
