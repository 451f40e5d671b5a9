"""Kernels as people write them pass the gate; copies of them with one small fault do not.

Nothing names the dimensions that their blocks cut. ``harmless.json`` lists the edits that change no
result: with each of the other edits the whole problem, run as it is, is wrong.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from autotune.compiling.child.loading import Loader
from autotune.compiling.child.verify import gate
from autotune.domain.arguments import ProblemWords
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import AxisValue, make_config
from tests.samples.twins.mutator import Mutation, mutations

FOLDER = Path(__file__).parents[3] / "samples" / "twins"
STYLES = FOLDER / "styles.py"

pytestmark = pytest.mark.slow


class Style(NamedTuple):
    """A kernel of ``styles.py``: its body, a call of it, and a config that cuts it into blocks."""

    kernel: str
    body: str
    args: str
    config: dict[str, AxisValue]


KERNELS = {
    name: Style(name, **parts)
    for name, parts in json.loads((FOLDER / "styles.json").read_text()).items()
}


class Twin(NamedTuple):
    style: Style
    mutation: Mutation

    def __str__(self):
        where = f"{self.mutation.line}.{self.mutation.start % 1000}"
        return f"{self.style.kernel}-{self.mutation.fault.replace(' ', '_')}-{where}"


@cache
def twins():
    """Every copy with a fault that does harm."""
    source = STYLES.read_text()
    harmless = {tuple(entry) for entry in json.loads((FOLDER / "harmless.json").read_text())}
    return tuple(
        Twin(style, mutation)
        for style in KERNELS.values()
        for mutation in mutations(source, frozenset((style.kernel, style.body)))
        if (style.kernel, *mutation[:4]) not in harmless
    )


def verdict_on(style, path):
    ref, loader = KernelRef(path=str(path), attribute=style.kernel, call=style.args), Loader()
    kernel, problem = loader.kernel(ref), loader.problem(ref, ProblemWords(call=ref.call)).problem
    axes = {**kernel.default_axes(problem, None), **style.config}
    return gate.check(kernel, problem, make_config(axes), Chip.V5E)


def verdict_on_twin(twin, folder):
    file = folder / f"{twin.style.kernel}.py"
    file.write_text(twin.mutation.apply(STYLES.read_text()))
    return verdict_on(twin.style, file)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_is_right_passes(kernel):
    verdict = verdict_on(KERNELS[kernel], STYLES)
    assert verdict.ok is True, verdict


@pytest.mark.parametrize("twin", twins(), ids=str)
def test_a_copy_with_a_fault_does_not(twin, tmp_path):
    """Refused; or it cannot be run, which is not verified either."""
    verdict = verdict_on_twin(twin, tmp_path)
    assert verdict.ok is not True, verdict


BETWEEN_BLOCKS = ("cleared in every step", "block of the neighbour", "first block always")


@pytest.mark.parametrize("fault", BETWEEN_BLOCKS)
def test_what_only_several_blocks_show_is_seen_in_a_long_scan(fault, tmp_path):
    """The whole problem is too much work, and a dimension of two rows has one block."""
    style = KERNELS["prefix_sum"]._replace(args="x=f32[4096,64,128]", config={"block": 64})
    twin = next(t for t in twins() if t.style.kernel == "prefix_sum" and t.mutation.fault == fault)
    assert verdict_on_twin(twin._replace(style=style), tmp_path).ok is False


def test_the_corpus_is_what_it_says():
    assert len(twins()) >= 140
    assert len({twin.mutation.fault for twin in twins()}) >= 15
