"""Which kernels are broken, at which problem, by which config and how it shows. Imports no JAX."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.domain.compilers import ListChoices
from autotune.domain.evidence import FailedCheck
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import AxisValue, make_config
from tests.samples.questions import case_of

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One failure. ``checks``: those of the gate that may find it; which of them comes first can
    depend on the order of two cores, and on the JAX version.

    ``right`` and ``wrong`` name the axes that differ from the kernel's default.
    """

    file: str
    kernel: str
    shape: str
    checks: tuple[str, ...]
    right: Mapping[str, AxisValue] = field(default_factory=lambda: {"how": "right"})
    wrong: Mapping[str, AxisValue] = field(default_factory=lambda: {"how": "wrong"})

    @property
    def ref(self):
        return KernelRef(path=str(_FOLDER / f"{self.file}.py"), attribute=self.kernel)

    def verify(self, compilers, axes):
        """What the gate says of the kernel's default with some axes replaced."""
        case = case_of(compilers, self.ref, self.shape)
        config = make_config({**case.ask(ListChoices).default, **axes})
        return case.verify(config, Chip.V5E)

    def __str__(self):
        return self.kernel.lower()


_RACING = (FailedCheck.RACE, FailedCheck.VALUES, FailedCheck.UNINITIALISED)


def _sums(kernel, shape, *checks):
    return Case(file="broken_sums", kernel=kernel, shape=shape, checks=checks)


def _blocks(kernel, shape, *checks):
    return Case(file="broken_blocks", kernel=kernel, shape=shape, checks=checks)


def _copies(kernel, shape, *checks):
    return Case(file="broken_copies", kernel=kernel, shape=shape, checks=checks)


CASES = (
    _sums("PARALLEL_REDUCTION", "32x256", *_RACING),
    _sums("NO_START", "32x256", FailedCheck.UNINITIALISED),
    _sums("START_ONCE", "32x256", FailedCheck.VALUES, FailedCheck.UNINITIALISED),
    _sums("OFF_BY_ONE_MAP", "32x256", FailedCheck.VALUES),
    _sums("BEYOND_THE_LAST", "32x256", FailedCheck.BOUNDS),
    _sums("PAST_THE_EDGE", "32x200", FailedCheck.UNINITIALISED),
    _sums("ROUNDED_OPERANDS", "32x256", FailedCheck.VALUES, FailedCheck.PRECISION),
    _sums("ROUNDED_TOTAL", "32x2048", FailedCheck.VALUES, FailedCheck.PRECISION),
    _sums("OUTPUT_DTYPE", "32x256", FailedCheck.OUTPUTS),
    _sums("SLOT_FOR_BLOCK", "32x640", FailedCheck.VALUES),
    Case(
        file="broken_sums",
        kernel="WRONG_TAIL",
        shape="32x384",
        checks=(FailedCheck.VALUES,),
        right={"block_k": 256},
        wrong={"block_k": 128},
    ),
    _blocks("TRANSPOSED_MAP", "256", FailedCheck.VALUES),
    _blocks("REVISITED_OUTPUT", "16x256", FailedCheck.REVISITED, FailedCheck.VALUES),
    _blocks("FLOOR_GRID", "20", FailedCheck.UNINITIALISED),
    _blocks("STALE_ALIAS", "32", FailedCheck.VALUES),
    _blocks("PADDED_MEAN", "16x200", FailedCheck.VALUES),
    _blocks("GROUPED_HEADS", "4x2x16", FailedCheck.VALUES),
    _blocks("NO_RESCALE", "16x256", FailedCheck.VALUES),
    _copies("LATE_WAIT", "32", *_RACING),
    _copies("BUFFER_IN_USE", "32", *_RACING),
    _copies("WRONG_SLOT", "32", *_RACING),
    _copies("SHARED_SEMAPHORE", "32", *_RACING),
    _copies("SAME_ROWS", "32", FailedCheck.RACE),
    _copies("OVERLAPPING_COPIES", "32", *_RACING),
)


if __name__ == "__main__":  # for benchmarks
    for case in CASES:
        names = {"case": str(case), "path": case.ref.path, "kernel": case.kernel}
        axes = {"right": dict(case.right), "wrong": dict(case.wrong)}
        print(json.dumps({**names, "shape": case.shape, **axes}))
