"""Profiles of known times: the reader gives them to the picosecond, or refuses with a sentence."""

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


def test_a_missing_run_voids_it():
    modules, ops = calls(3)
    told = refusal(tpu(0, modules[2:], ops))
    assert told == "/device:TPU:0 shows 2 runs of jit_k, 3 were made"


def test_a_doubled_run_voids_it():
    modules, ops = calls(3)
    assert "shows 4 runs of jit_k, 3 were made" in refusal(tpu(0, [*modules, modules[0]], ops))
    assert "an event is doubled" in refusal(tpu(0, [*modules, modules[0]], ops), count=4)


@pytest.mark.parametrize(("drop", "times"), [(0, 0), (2, 1)])
def test_a_lost_operation_voids_it(drop, times):
    modules, ops = calls(3)
    told = refusal(tpu(0, modules, ops[:drop] + ops[drop + 1 :]))
    assert "kernel.1" in told or "no operation within" in told


def test_a_doubled_operation_voids_it():
    modules, ops = calls(3)
    twin = ("kernel.1", ops[2][1] + 100, 50)
    assert "kernel.1 1 times in run 0 of jit_k and 2 times in run 1" in refusal(
        tpu(0, modules, [*ops, twin])
    )


def test_an_operation_that_outlasts_its_run_voids_it():
    modules, ops = calls(3)
    long = ("kernel.1", ops[0][1], 5_300_000)
    assert "outlasts its run" in refusal(tpu(0, modules, [long, *ops[1:]]))


def test_a_wrapped_clock_voids_it():
    modules, ops = calls(3)
    wrapped = [*modules[:2], ("jit_k(77)", modules[2][1], -modules[2][1]), *modules[3:]]
    assert "clock wrapped" in refusal(tpu(0, wrapped, ops))
    late = [(name, start - 25_000_000, size) for name, start, size in ops[4:]]
    assert "in run" in refusal(tpu(0, modules, [*ops[:4], *late]))


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
    for kernels in ([*gemms, *adds[:2]], [*gemms, *adds, adds[0]]):
        found = profile(text("/device:GPU:0", {"Stream #1(Compute)": kernels}, module="jit_k"))
        assert "kernels of jit_k, which 3 calls cannot" in _reason(call_times_ps(found, "jit_k", 3))
    swapped = [*gemms, *adds[:2], ("mul", 4600, 100)]
    found = profile(text("/device:GPU:0", {"Stream #1(Compute)": swapped}, module="jit_k"))
    assert "times in run" in _reason(call_times_ps(found, "jit_k", 3))


def _reason(found):
    assert isinstance(found, NotMeasured), found
    return found.reason


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
