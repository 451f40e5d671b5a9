"""Profiles of known times: the reader gives them to the picosecond, or refuses with a sentence."""

import re

import pytest
from jax.profiler import ProfileData

from autotune.compiling.child.measure.profile import call_times_ps
from autotune.compiling.child.measure.xspace import UnreadableProfileError, planes
from autotune.domain.evidence import NotMeasured
from tests.samples.profiles import calls, profile, serialized, text, tpu


def refusal(*texts, count=3):
    found = call_times_ps(profile(*texts), "jit_k", count)
    assert isinstance(found, NotMeasured), found
    return found.reason


def test_each_call_has_its_own_time_to_the_picosecond():
    modules = [("jit_k(9)", 0, 9000), ("jit_k(9)", 20_000, 9000), ("jit_k(9)", 40_000, 9000)]
    ops = [("kernel", 100, 5001), ("kernel", 20_100, 5002), ("kernel", 40_100, 7777)]
    assert call_times_ps(profile(tpu(0, modules, ops)), "jit_k", 3) == (5001, 5002, 7777)


def test_the_slowest_of_several_devices_counts_and_idle_ones_do_not():
    first, second = calls(2), calls(2, ps=5_000_500)
    found = profile(tpu(0, *first), tpu(1, *second), tpu(2, [], []))
    assert call_times_ps(found, "jit_k", 2) == (5_000_500, 5_000_500)


def test_nested_scopes_and_halves_of_asynchronous_copies_count_once():
    ops = [
        ("while", 0, 6000),
        ("fusion.in.while", 1000, 2000),
        ("fusion.in.while", 3500, 2000),
        ("copy-start", 6000, 10),
        ("kernel", 6010, 1000),
        ("copy-done", 7500, 500),
    ]
    lines = {
        "XLA Modules": [("jit_k", 0, 8000)],
        "XLA Ops": ops,
        "Async XLA Ops": [("copy-start", 6000, 2000)],
    }
    # the wait of copy-done counts, the flight of the copy does not
    assert call_times_ps(profile(text("/device:TPU:0", lines)), "jit_k", 1) == (7510,)


def test_planes_that_only_resemble_a_device_are_passed_over():
    other = text("/device:TPU:0 SparseCore 0", {"XLA Modules": [("jit_k", 0, 5)], "XLA Ops": []})
    assert "no plane of a device" in refusal(other)
    assert call_times_ps(profile(other, tpu(0, *calls(3))), "jit_k", 3) == (5_000_123,) * 3


def test_a_profile_without_devices_or_runs_yields_nothing():
    host = text("/host:CPU", {"python": [("jit_k", 0, 5)]})
    assert refusal(host) == "the profile has no plane of a device"
    assert refusal(host, tpu(0, [], [])) == "the profile shows no run of jit_k, 3 were made"


MODULES, OPS = calls(3)
WRAPPED = ("jit_k(77)", MODULES[2][1], -MODULES[2][1])


@pytest.mark.parametrize(
    ("modules", "ops", "count", "says"),
    [
        (MODULES[2:], OPS, 3, "^/device:TPU:0 shows 2 runs of jit_k, 3 were made$"),
        ([*MODULES, MODULES[0]], OPS, 3, "shows 4 runs of jit_k, 3 were made"),
        ([*MODULES, MODULES[0]], OPS, 4, "an event is doubled"),
        (MODULES, OPS[1:], 3, "kernel.1|no operation within"),
        (MODULES, OPS[:2] + OPS[3:], 3, "kernel.1|no operation within"),
        (
            MODULES,
            [*OPS, ("kernel.1", OPS[2][1] + 100, 50)],
            3,
            "kernel.1 1 times in run 0 of jit_k and 2 times in run 1",
        ),
        (MODULES, [("kernel.1", OPS[0][1], 5_300_000), *OPS[1:]], 3, "outlasts its run"),
        ([*MODULES[:2], WRAPPED, *MODULES[3:]], OPS, 3, "clock wrapped"),
        (
            MODULES,
            [*OPS[:4], *((name, start - 25_000_000, size) for name, start, size in OPS[4:])],
            3,
            "in run",
        ),
    ],
)
def test_what_is_lost_doubled_too_long_or_out_of_time_voids_it(modules, ops, count, says):
    assert re.search(says, refusal(tpu(0, modules, ops), count=count))


def test_a_gpus_kernels_are_taken_by_module_and_call():
    streams = {
        "Stream #13(Compute)": [("gemm", 0, 500), ("gemm", 2000, 510)],
        "Stream #14(Compute)": [("add", 400, 300), ("add", 2400, 200)],
        "XLA Ops": [("dot", 0, 10**6)],
    }
    found = profile(text("/device:GPU:0", streams, module="jit_k"))
    assert call_times_ps(found, "jit_k", 2) == (700, 600)
    assert isinstance(call_times_ps(found, "jit_else", 2), NotMeasured)
    assert isinstance(call_times_ps(found, "jit_k", 3), NotMeasured)


def test_a_gpus_copies_and_graphs_count_where_the_program_started_them():
    """A stream's line is named by all kinds of its events. What the runtime copies by itself names
    no module. No line says when a program ran: its kernels are counted off by calls."""
    streams = {
        "Stream #7(Compute,MemcpyD2D,CudaGraph)": [
            ("MemcpyD2D", 0, 100),
            ("CudaGraph", 200, 500),
            ("MemcpyD2D", 5000, 100),
            ("CudaGraph", 5200, 600),
        ]
    }
    copies = {"Stream #8(MemcpyH2D)": [("MemcpyH2D", 4000, 900)]}
    both = profile(text("/device:GPU:0", streams, module="jit_k"), text("/device:GPU:0", copies))
    assert call_times_ps(both, "jit_k", 2) == (600, 700)


def test_a_gpus_lost_or_doubled_kernel_voids_it():
    gemms = [("gemm", 2000 * n, 500) for n in range(3)]
    adds = [("add", 2000 * n + 600, 100) for n in range(3)]
    for kernels, says in (
        ([*gemms, *adds[:2]], "kernels of jit_k, which 3 calls cannot"),
        ([*gemms, *adds, adds[0]], "kernels of jit_k, which 3 calls cannot"),
        ([*gemms, *adds[:2], ("mul", 4600, 100)], "times in run"),
    ):
        lost = text("/device:GPU:0", {"Stream #1(Compute)": kernels}, module="jit_k")
        assert says in refusal(lost)


def test_the_bytes_are_read_as_jax_reads_them():
    """Same names and, to the nanosecond that it keeps, the same times."""
    data = serialized(tpu(3, *calls(2), origin_ns=1000))
    ours, theirs = planes(data), list(ProfileData.from_serialized_xspace(data).planes)
    assert [p.name for p in ours] == [p.name for p in theirs]
    for line, other in zip(ours[0].lines, theirs[0].lines, strict=True):
        assert line.name == other.name
        for event, its in zip(line.events, other.events, strict=True):
            assert event.name == its.name
            assert event.duration_ps // 1000 == its.duration_ns
            assert event.start_ps // 1000 == its.start_ns


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_truncated_profile_is_no_profile(cut):
    with pytest.raises(UnreadableProfileError, match="cannot be read"):
        planes(serialized(tpu(0, *calls(3)))[:-cut])
