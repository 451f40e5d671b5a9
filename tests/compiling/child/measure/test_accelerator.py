"""What stands between the profile and the parent: sentences, order, the check of the device."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from autotune.compiling.child.measure import accelerator
from autotune.compiling.child.measure.accelerator import read, why_not
from autotune.compiling.protocol import Device
from autotune.declaring.kernel import Array
from autotune.domain.evidence import NotMeasured
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import ProblemSpec
from autotune.measuring.session import CannotMeasureError, MeasuringTask, _check
from tests.samples.profiles import profile, tpu


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("ABORTED: The TPU is already in use by process with pid 77.\nmore", "is busy"),
        ("Unable to initialize backend 'tpu': Device or resource busy", "is busy"),
        ("ABORTED: Internal error when accessing libtpu multi-process lockfile.", "is busy"),
        (
            "Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: No TPU found",
            "no accelerator can be opened here",
        ),
        ("something else", "the accelerator cannot be opened: something else"),
        ("", "nothing was said"),
    ],
)
def test_a_device_that_cannot_be_opened_is_one_sentence(message, says):
    told = why_not(message)
    assert says in told and "\n" not in told


def test_times_go_to_the_runs_that_they_are_of():
    """Two programs, shuffled: each run gets its own time."""
    modules, ops = [], []
    for place, (name, ps) in enumerate([("a", 500), ("b", 700), ("b", 710), ("a", 520)]):
        start = place * 10_000
        modules.append((f"jit_measured_{name}(1)", start, 2000))
        ops.append((f"kernel.{name}", start + 10, ps))
    assert read(["a", "b", "b", "a"], profile(tpu(0, modules, ops))) == [500, 700, 710, 520]


def test_a_program_that_is_not_in_the_profile_costs_only_itself():
    modules, ops = [("jit_measured_a(1)", 0, 2000)], [("kernel", 10, 500)]
    times = read(["b", "a"], profile(tpu(0, modules, ops)))
    assert times[1] == 500 and isinstance(times[0], NotMeasured) and "no run of" in times[0].reason
    nothing = NotMeasured("the profiler wrote no profile")
    assert read(["a", "a"], nothing) == [nothing, nothing]


def _device(kind, cores=1):
    return Device(platform="tpu", kind=kind, id=0, cores=cores, count=4, method="device time")


def test_another_chip_or_core_mode_than_what_was_compiled_for_is_refused():
    work = MeasuringTask(
        ref=KernelRef(path="k.py", attribute="K"),
        chip=Chip.V5P,
        problem=ProblemSpec(dims=("n",), dtypes=("float32",)).parse("8"),
    )
    _check(_device("TPU v5p", 2), work)
    for attached, says in (
        (_device("TPU v6 lite"), "is a v6e, not a v5p"),
        (_device("TPU v5p", 1), "shows 1 cores as one device"),
        (_device("NVIDIA H200"), "is no TPU that is known"),
    ):
        with pytest.raises(CannotMeasureError, match=says):
            _check(attached, work)


KERNEL = SimpleNamespace(
    inputs=lambda _: [
        Array(name="x", shape=(8, 8), dtype="float32"),
        Array(name="y", shape=(8,), dtype="bfloat16"),
    ]
)


def test_inputs_are_sets_of_different_random_numbers_from_the_seed(monkeypatch):
    """As many sets as are more than a cache holds, two at least and eight at most."""
    cpu, problem = jax.devices("cpu")[0], ProblemSpec(dims=("n",), dtypes=("float32",)).parse("8")

    def sets(seed, cache_bytes):
        monkeypatch.setattr(accelerator, "_ROTATED_BYTES", cache_bytes)
        found = accelerator.rotated_inputs(KERNEL, problem, seed, cpu)
        assert all(str(y.dtype) == "bfloat16" and y.devices() == {cpu} for _, y in found)
        return [[np.asarray(one).tobytes() for one in given] for given in found]

    size = 8 * 8 * 4 + 8 * 2
    assert [len(sets(0, size * n)) for n in (1, 3, 100)] == [2, 3, 8]
    first = sets(0, size * 8)
    assert len({given[0] for given in first}) == 8  # none is another's
    assert sets(0, size * 8) == first and sets(1, size * 8) != first


def test_no_two_runs_in_a_row_get_the_same_inputs():
    """Also over several groups of runs, whoever's turn it is."""
    seen = []
    programs = {name: lambda x: seen.append(x) or x for name in "ab"}
    cpu = SimpleNamespace(platform="cpu")
    for start, order in ((0, "abba"), (4, "ba")):
        times = accelerator.timed(list(order), programs, [[1], [2], [3]], start, cpu)
        assert len(times) == len(order) and all(isinstance(t, int) and t > 0 for t in times)
    assert seen == [1, 2, 3, 1, 2, 3]
