"""VMEM bytes: padding and buffers against a count by hand, and what no compiler can avoid."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.estimating.vmem import (
    VmemUse,
    first_rung,
    limit_bytes,
    limit_rungs,
    lowest_rung,
    operand_bytes,
    padded_bytes,
    vmem_use,
)
from tests.samples.traces import MIB, V4, V5E, V7X, operand, scratch, trace

JAX_0_6 = replace(V5E, single_buffer_fallback=True)

# As libtpu's own tables of allocations have them (jax 0.10.2, v5e).
MEASURED = [
    ((128, 128), "bfloat16", 32_768),
    ((1, 512), "bfloat16", 2_048),
    ((1, 1), "float32", 512),
    ((4096,), "bfloat16", 8_192),
    ((128, 1111), "bfloat16", 294_912),
    ((1, 1, 1024, 128), "bfloat16", 262_144),
    ((256, 256), "float32", 262_144),
    ((2048, 128), "bool", 1_048_576),  # as for int32, v7x
]


@pytest.mark.parametrize(("shape", "dtype", "expected"), MEASURED)
def test_padding_is_what_the_compiler_allocates(shape, dtype, expected):
    assert padded_bytes(shape, dtype, V5E) == expected


SHAPES = st.lists(st.integers(1, 300), min_size=1, max_size=4).map(tuple)
DTYPES = st.sampled_from(("float32", "bfloat16", "int8", "int4"))


@given(SHAPES, DTYPES)
def test_padding_never_shrinks_and_whole_tiles_need_none(shape, dtype):
    bits = {"float32": 32, "bfloat16": 16, "int8": 8, "int4": 4}[dtype]
    elements = 1
    for size in shape:
        elements *= size
    assert padded_bytes(shape, dtype, V5E) * 8 >= elements * bits
    tiled = (*shape[:-2], 32, 256) if len(shape) > 1 else (4096,)
    whole = 1
    for size in tiled:
        whole *= size
    assert padded_bytes(tiled, dtype, V5E) * 8 == whole * bits


# --- expected bytes


def test_blocks_that_change_are_buffered_twice_and_those_that_stay_once():
    moving = operand((4096, 4096), (256, 256), fetches=16)
    staying = operand((256, 256), (256, 256), fetches=1)
    one = 256 * 256 * 2
    assert operand_bytes(moving, V5E) == 2 * one
    assert operand_bytes(staying, V5E) == one
    assert vmem_use(trace(moving, staying), V5E).expected_bytes == 3 * one


def test_a_kernel_may_ask_for_its_number_of_buffers():
    assert operand_bytes(operand((4096, 128), (256, 128), buffers=3), V5E) == 3 * 256 * 128 * 2


def test_scratch_counts_only_in_vmem_and_operands_only_where_they_are_pipelined():
    scratches = (scratch((256, 256)), scratch((8, 128), "int32", space="smem"))
    by_hand = operand((1 << 20, 1024), (1 << 20, 1024), space="any")
    found = vmem_use(trace(by_hand, scratch=scratches), V5E)
    assert found.expected_bytes == found.certain_bytes == 256 * 256 * 4


# --- certain bytes


def square(name="x", block=1024, size=8192, **fields):
    """8192x8192 bfloat16: 128 MiB; a block of 1024x1024 twice: 4 MiB."""
    return operand((size, size), (block, block), name=name, **fields)


def test_what_stays_in_hbm_is_certain_with_its_buffers():
    made = trace(square(), square(is_output=True), scratch=(scratch((1024, 1024)),))
    assert vmem_use(made, V5E).certain_bytes == vmem_use(made, V5E).expected_bytes == 12 * MIB


def test_scratch_that_is_not_carried_may_stay_in_registers():
    made = trace(square(), scratch=(scratch((1024, 1024), carried=False),))
    found = vmem_use(made, V5E)
    assert (found.expected_bytes, found.certain_bytes) == (8 * MIB, 4 * MIB)


def test_one_buffer_is_certain_where_the_compiler_gives_up_the_second():
    assert vmem_use(trace(square()), JAX_0_6).certain_bytes == 2 * MIB


@pytest.mark.parametrize(("fetches", "certain"), [(1, 2), (2, 2), (3, 4)])
def test_on_a_megacore_a_block_may_change_with_the_core_only(fetches, certain):
    made = trace(operand((65536, 2048), (1024, 1024), fetches=fetches))
    assert vmem_use(made, V4).certain_bytes == certain * MIB


def test_a_kept_product_beyond_the_registers_is_expected_whole_and_certain_in_part():
    few = vmem_use(trace(kept_bytes=64 * 4096), V5E)
    many = vmem_use(trace(kept_bytes=8 * MIB), V5E)
    assert (few.expected_bytes, few.certain_bytes) == (0, 0)
    assert many.expected_bytes == 8 * MIB - 64 * 4096
    assert many.expected_bytes / 2 < many.certain_bytes < many.expected_bytes


def test_an_array_that_xla_computes_may_lie_in_vmem_and_then_needs_no_block():
    computed = square(size=2048, at_boundary=False)
    assert vmem_use(trace(computed), V5E).certain_bytes == 0
    assert vmem_use(trace(square(size=2048)), V5E).certain_bytes == 4 * MIB


def test_an_array_larger_than_vmem_cannot_lie_there():
    assert vmem_use(trace(square(size=16384, at_boundary=False)), V5E).certain_bytes == 4 * MIB


def test_arrays_that_lie_in_vmem_share_it_with_the_rest():
    """Of two arrays of 32 MiB one fits into 64 MiB beside 16 MiB of scratch, none beside 36."""
    arrays = [square(name, size=4096, at_boundary=False) for name in "ab"]
    small = trace(*arrays, scratch=(scratch((1024, 4096)),))  # 16 MiB
    large = trace(*arrays, scratch=(scratch((1024, 9216)),))  # 36 MiB
    assert vmem_use(small, V7X).certain_bytes == (16 + 4) * MIB  # one placed, one in blocks
    assert vmem_use(large, V7X).certain_bytes == (36 + 8) * MIB  # none placed


def test_a_chip_that_places_operands_does_so_with_inputs_at_the_boundary():
    x, out = square(size=2048), square(size=2048, is_output=True)
    assert vmem_use(trace(x, out), V7X).certain_bytes == 4 * MIB
    assert vmem_use(trace(x, out), V5E).certain_bytes == 8 * MIB


@pytest.mark.parametrize(
    ("shape", "moves"),
    [
        ((1000, 1111), True),  # XLA makes the rows minor: 1024 x 1112 is less than 1000 x 1152
        ((1000, 1024), False),
        ((1111, 1000), False),
        ((8, 500, 500), True),  # 8 x 500 x 512 with the 8 among the tiles is less than 504 x 512
        ((8, 512, 512), False),
        ((100_001,), False),
    ],
)
def test_an_array_whose_natural_layout_is_another_is_copied_and_may_lie_in_vmem(shape, moves):
    made = trace(operand(shape, shape))
    assert (vmem_use(made, V5E).certain_bytes == 0) == moves


# --- limits


def test_rungs_double_from_the_compilers_own_limit_to_the_capacity():
    assert limit_rungs(V5E) == (None, 32 * MIB, 64 * MIB, 128 * MIB)
    assert limit_rungs(V7X) == (None, 64 * MIB)
    assert limit_rungs(V4) == (None,)


@given(st.integers(0, 200 * MIB), st.sampled_from((V4, V5E, V7X)))
def test_the_lowest_rung_holds_what_the_one_below_does_not(needed, chip):
    found = lowest_rung(needed, chip)
    if found is None:
        assert needed > chip.vmem_capacity_bytes
        return
    assert limit_bytes(found[0], chip) >= needed
    below = [r for r in limit_rungs(chip) if limit_bytes(r, chip) < limit_bytes(found[0], chip)]
    assert all(limit_bytes(rung, chip) < needed for rung in below)


@pytest.mark.parametrize(
    ("certain", "expected", "limit"),
    [
        (1, 16, None),  # the compiler's own limit holds it
        (1, 17, 32 * MIB),  # it may do with less, and is asked under a limit that holds it
        (17, 17, 32 * MIB),
        (100, 500, 128 * MIB),  # more than the capacity is expected, less is certain
    ],
)
def test_a_candidate_starts_on_the_limit_that_is_expected_to_hold_it(certain, expected, limit):
    use = VmemUse(expected_bytes=expected * MIB, certain_bytes=certain * MIB)
    assert first_rung(use, V5E) == (limit,)
