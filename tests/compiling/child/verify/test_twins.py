"""Kernels as people write them pass the gate; copies of them with one small fault do not.

``kernels.json`` has a call of each, and a config that is not the default. ``faults.json`` has texts
that each stand once in the file of the kernel, and what somebody writes in their place: with each,
the whole problem is wrong.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import ListChoices, ReadProblem, VerifyConfig
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import AxisValue, make_config

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[3] / "samples" / "twins"
SOURCE = FOLDER / "kernels.py"


class Twin(NamedTuple):
    source: Path
    call: str
    config: dict[str, AxisValue]


KERNELS = {
    name: Twin(SOURCE, *rest)
    for name, rest in json.loads((FOLDER / "kernels.json").read_text()).items()
}
FAULTS = json.loads((FOLDER / "faults.json").read_text())


def verdict_on(pool, name, twin):
    ref = KernelRef(path=str(twin.source), attribute=name, call=twin.call)
    problem = pool.ask(ReadProblem(ref=ref, words=ProblemWords(call=twin.call))).problem
    choices = pool.ask(ListChoices(ref=ref, problem=problem, chip=Chip.V5E))
    axes = make_config({**choices.default, **twin.config})
    return pool.ask(VerifyConfig(ref=ref, problem=problem, config=axes, chip=Chip.V5E))


def verdict_on_copy(pool, name, twin, folder, old, new):
    source, broken = twin.source.read_text(), folder / f"{name}.py"
    assert source.count(old) == 1
    broken.write_text(source.replace(old, new))
    return verdict_on(pool, name, twin._replace(source=broken))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_is_right_passes(pool, name):
    verdict = verdict_on(pool, name, KERNELS[name])
    assert verdict.ok is True, verdict


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [pytest.param(name, *edit, id=f"{name}-{fault}") for name, fault, *edit in FAULTS],
)
def test_a_copy_with_a_fault_does_not(pool, tmp_path, name, old, new):
    """Refused; or it cannot be run, which is not verified either."""
    verdict = verdict_on_copy(pool, name, KERNELS[name], tmp_path, old, new)
    assert verdict.ok is not True, verdict


@pytest.mark.parametrize(
    "fault", ["cleared in every step", "block of the neighbour", "first block always"]
)
def test_what_only_several_blocks_show_is_seen_in_a_long_scan(pool, fault, tmp_path):
    """The whole problem is too much work, and a dimension of two rows has one block."""
    long = KERNELS["prefix_sum"]._replace(call="x=f32[4096,64,128]", config={"block": 64})
    edit = next(edit for name, of, *edit in FAULTS if (name, of) == ("prefix_sum", fault))
    assert verdict_on_copy(pool, "prefix_sum", long, tmp_path, *edit).ok is False
