"""Cycles, against libtpu's own static estimate and against bounds by hand."""

import pytest

from autotune.estimating.simulator.constants import start_us
from tests.samples import recordings

# `estimated_cycles` of the custom call, compiled with --xla_jf_dump_static_llo_profile_to: jax
# 0.10.2, v7x 0.12.0.1. Agreement with another model, not with hardware.
ESTIMATES = {
    "v5e-0.10.2-mm_1024_1024_1024_128_128_128": 382780,
    "v5e-0.10.2-mm_1024_2048_512_256_512_256": 41142,
    "v5e-0.10.2-mm_1024_1024_1024_256_256_256_float32": 72470,
    "v5e-0.10.2-mm_1024_1024_1024_256_256_256_int8": 54720,
    "v5e-0.10.2-add_2048_1024_256_512": 23314,
    "v5e-0.10.2-softmax_2048_1024_128": 25052,
    "v5e-0.10.2-flash_1_2_1024_128_256_256": 38093,
    "v5e-0.10.2-loop_1024_512_128": 9484,
    "v5e-0.10.2-transpose_1024_1024_256": 18958,
    "v5p-0.10.2-mm_1024_1024_1024_128_128_128": 133361,
    "v5p-0.10.2-add_768_1024_256_1024": 3765,
    "v5p-0.10.2-flash_1_4_1024_64_128_128": 94046,
    "v5p-0.10.2-rms_4096_2048_128": 16423,
    "v6e-0.10.2-mm_1024_1024_1024_256_256_256": 38455,
    "v6e-0.10.2-mm_1024_1024_1024_256_256_256_int8": 36008,
    "v6e-0.10.2-softmax_2048_1024_128": 17282,
    "v6e-0.10.2-flash_1_4_1024_64_128_128": 175011,
    "v7x-0.12.0.1-mm_4096_4096_4096_512_512_512": 510959,
    "v7x-0.12.0.1-mm_4096_2048_4096_256_1024_512": 300372,
    "v7x-0.12.0.1-add_4096_4096_256_512": 90793,
    "v7x-0.12.0.1-flash_1_8_4096_128_256_256": 1865935,
    "v7x-0.12.0.1-softmax_16384_2048_128": 137860,
    "v7x-0.12.0.1-transpose_4096_4096_256": 164786,
    "v7x-0.12.0.1-loop_16384_1024_128": 91578,
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_near_libtpu(name):
    assert recordings.libtpu_cycles(name) == pytest.approx(ESTIMATES[name], rel=0.025)


def test_nearer_to_libtpu_at_the_median():
    errors = sorted(
        abs(recordings.libtpu_cycles(name) / estimate - 1) for name, estimate in ESTIMATES.items()
    )
    assert errors[len(errors) // 2] < 0.0075


@pytest.mark.parametrize("name", [n for n in recordings.names() if "-mm_" in n])
def test_a_matmul_keeps_the_mxus_as_busy_as_its_flops_need(name):
    """m*k*n over width**2 rows: 16 rows in 16 cycles (v5e), 8 (256 wide); int8 takes 32 rows."""
    *numbers, dtype = [*name.split("-mm_")[1].split("_"), ""][:7]
    m, k, n = map(int, numbers[:3])
    width, mxus, cycles = (256, 2, 8) if name.startswith(("v6", "v7")) else (128, 4, 16)
    rows = {"": 16, "int8": 32, "float32": 8}[dtype]
    cycles = cycles / 2 if dtype == "float32" else cycles
    cores = 2 if name.startswith(("v4", "v5p")) else 1
    bound = m * k * n / width**2 / rows * cycles / mxus / cores
    result = recordings.run(name)
    waste = 2 if "_128_128_128" in name and width == 256 else 1  # it fills half of an MXU
    assert result.mxu_busy_cycles == pytest.approx(bound * waste, rel=0.13)
    assert result.cycles_shared > result.mxu_busy_cycles


@pytest.mark.parametrize("name", [n for n in recordings.names() if "-add_" in n])
def test_shared_time_is_at_least_what_the_bytes_need(name):
    result = recordings.run(name)
    moved = result.hbm_bytes_read + result.hbm_bytes_written
    gigabytes_per_second = moved / result.us_shared / 1e3
    peak = {"v4": 615, "v5e": 820, "v5p": 1382, "v6e": 1640, "v7x": 3700}[recordings.chip(name)]
    assert 0.44 * peak < gigabytes_per_second < 0.92 * peak  # blocks of 512 KiB wait for latency


def test_real_v5e_latency_is_shorter_than_libtpus():
    """The published 128-block matmuls give about 525 cycles a step at 8192**3."""
    name = "v5e-0.10.2-mm_8192_8192_8192_128_128_128"
    result = recordings.run(name)
    assert result.cycles_shared / result.steps == pytest.approx(525, rel=0.05)
    assert recordings.libtpu_cycles(name) / result.steps == pytest.approx(745, rel=0.02)


@pytest.mark.parametrize(("size", "measured_us"), [(128, 1.62), (256, 1.83)])
def test_a_small_product_of_xla_takes_what_a_real_v7x_took(size, measured_us):
    """Microbenchmarks of tpu-recipes. Half of it is the latency of a read, not libtpu's 0.4 us."""
    result = recordings.run(f"v7x-0.12.0.1-product_{size}_{size}_{size}")
    assert result.us_shared + start_us() == pytest.approx(measured_us, rel=0.07)
