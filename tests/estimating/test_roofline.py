"""What no config can be faster than."""

from dataclasses import replace

import pytest

from autotune.estimating.roofline import least_us, physical_bound_us
from tests.samples.traces import V4, V5E, operand, trace


def test_the_least_moves_each_block_once_whatever_a_config_does():
    """A block that is fetched four times counts once; what the visits leave open counts nothing."""
    again = operand((1024, 512), (256, 512), fetches=16, blocks=4, hbm_bytes=16 * 820_000)
    open_ = operand((1024, 512), (256, 512), hbm_bytes=10**9, exact=False)
    call = trace(again, open_, grid=(16,), dimension_semantics=("arbitrary",))
    assert least_us(call, V5E) == pytest.approx(4.0)
    assert physical_bound_us(call, V5E) == pytest.approx(16.0)
    assert least_us(call, V5E, in_vmem={0}) == 0.0
    by_hand = trace(open_, io_bytes=2 * 820_000)  # a config that reads it 16 times can read it once
    assert least_us(by_hand, V5E, 16 * 820_000) == pytest.approx(2.0)
    assert least_us(by_hand, V5E, 820_000) == pytest.approx(1.0)  # it may need less than all of it


def test_another_config_may_use_both_cores():
    call = trace(
        grid=(4,), dimension_semantics=("arbitrary",), mxu_dtype="bfloat16", least_mxu_flops=10**9
    )
    assert least_us(call, V4) == pytest.approx(physical_bound_us(call, V4) / 2)
    grouped = trace(scalar_operands=1, mxu_dtype="bfloat16", least_mxu_flops=10**9)
    assert least_us(grouped, V4) == 0.0  # blocks of another size may meet fewer groups
    by_hand = replace(call, operands=(operand((8,), (8,), space="smem", dtype="int32"),))
    assert least_us(by_hand, V4) == 0.0
