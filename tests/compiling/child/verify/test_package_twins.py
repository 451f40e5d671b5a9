"""The kernels of JAX, tokamax and tpu-inference pass the gate; copies with one small fault do not.

The environment of the repository has JAX's alone. ``/venv/bin/python -m pytest`` of one that has
the others, with this repository on its path, runs theirs.
"""

import pytest

from autotune.compiling.child.verify import gate
from tests.samples.twins.packages import CASES, CHIP, declared, edits

pytestmark = pytest.mark.slow
TWINS = edits()
USED = tuple(dict.fromkeys(edit.case for edit in TWINS))


def verdict_on(case, source):
    with declared(case, source) as (kernel, problem, config):
        return gate.check(kernel, problem, config, CHIP)


@pytest.mark.parametrize("name", USED)
def test_a_kernel_of_a_package_passes(name):
    if not CASES[name].source:
        pytest.skip(f"{CASES[name].module} is not installed here")
    verdict = verdict_on(CASES[name], CASES[name].source)
    assert verdict.ok is True, verdict


@pytest.mark.parametrize("edit", TWINS, ids=str)
def test_a_copy_with_a_fault_does_not(edit):
    """Refused; or it cannot be run, which is not verified either."""
    mutation = edit.mutation()
    if mutation is None:
        pytest.skip(f"{CASES[edit.case].module} is not installed here, or is of another version")
    verdict = verdict_on(CASES[edit.case], mutation.apply(CASES[edit.case].source))
    assert verdict.ok is not True, verdict


def test_the_corpus_is_what_it_says():
    assert len(TWINS) >= 40
    assert len({edit.fault for edit in TWINS}) >= 10
