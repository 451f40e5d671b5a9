"""What stands between the profile and the parent: sentences, order, the check of the device."""

import pytest
from profilesamples import profile, tpu

from autotune.catalogue import KernelRef
from autotune.chip import Chip
from autotune.measuring.child import CannotMeasureError, Device, Work
from autotune.measuring.device import read, why_not
from autotune.measuring.refused import Refused
from autotune.measuring.session import _check
from autotune.problem import ProblemSpec


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("ABORTED: The TPU is already in use by process with pid 77.\nmore", "is busy"),
        ("Unable to initialize backend 'tpu': Device or resource busy", "is busy"),
        ("ABORTED: Internal error when accessing libtpu multi-process lockfile.", "is busy"),
        ("Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: No TPU found",
         "no accelerator can be opened here"),
        ("something else", "the accelerator cannot be opened: something else"),
        ("", "nothing was said"),
    ],
)  # fmt: skip
def test_a_device_that_cannot_be_opened_is_one_sentence(message: str, says: str) -> None:
    told = why_not(message)
    assert says in told and "\n" not in told


def test_times_go_to_the_runs_that_they_are_of() -> None:
    """Two programs, shuffled: each run gets its own time."""
    modules, ops = [], []
    for place, (name, ps) in enumerate([("a", 500), ("b", 700), ("b", 710), ("a", 520)]):
        start = place * 10_000
        modules.append((f"jit_measured_{name}(1)", start, 2000))
        ops.append((f"kernel.{name}", start + 10, ps))
    assert read(["a", "b", "b", "a"], profile(tpu(0, modules, ops))) == [500, 700, 710, 520]


def test_a_program_that_is_not_in_the_profile_costs_only_itself() -> None:
    modules, ops = [("jit_measured_a(1)", 0, 2000)], [("kernel", 10, 500)]
    times = read(["b", "a"], profile(tpu(0, modules, ops)))
    assert times[1] == 500 and isinstance(times[0], Refused) and "no run of" in times[0].reason
    nothing = Refused("the profiler wrote no profile")
    assert read(["a", "a"], nothing) == [nothing, nothing]


def _device(kind: str, cores: int = 1) -> Device:
    return Device(platform="tpu", kind=kind, id=0, cores=cores, count=4, method="device time")


def test_another_chip_or_core_mode_than_what_was_compiled_for_is_refused() -> None:
    work = Work(
        ref=KernelRef(path="k.py", attribute="K"), chip=Chip.V5P,
        problem=ProblemSpec(dims=("n",), dtypes=("float32",)).parse("8"),
    )  # fmt: skip
    _check(_device("TPU v5p", 2), work)
    for device, says in (
        (_device("TPU v6 lite"), "is a v6e, not a v5p"),
        (_device("TPU v5p", 1), "shows 1 cores as one device"),
        (_device("NVIDIA H200"), "is no TPU that is known"),
    ):
        with pytest.raises(CannotMeasureError, match=says):
            _check(device, work)
