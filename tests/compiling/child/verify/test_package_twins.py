"""The kernels of JAX, tokamax and tpu-inference pass the gate; copies with one small fault do not.

``packages.json`` has their problems, and faults by the line of the package's source: with each the
whole problem is wrong. The environment of the repository has JAX alone. ``/venv/bin/python -m
pytest`` of one that has the others, with this repository on its path, runs theirs.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotune.compiling.child.chips import told_of
from autotune.compiling.child.verify import gate
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip
from autotune.domain.problem import make_config

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[3] / "samples" / "twins"
CASES: dict[str, dict[str, Any]] = json.loads((FOLDER / "packages.json").read_text())
FAULTS = [(name, *fault) for name, case in CASES.items() for fault in case["faults"]]


def source_of(name: str) -> str:
    module = CASES[name]["module"]
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        pytest.skip(f"{module} is not installed here")
    return Path(spec.origin).read_text(encoding="utf-8")


def executed(name: str, source: str | None = None) -> ModuleType:
    """A module that is executed once more, from this source where one is given."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if source is None:
        spec.loader.exec_module(module)
    else:
        sys.modules[name] = module
        exec(compile(source, f"<{name}>", "exec"), vars(module))
    return module


@contextmanager
def installed(name: str, source: str) -> Iterator[None]:
    original = importlib.import_module(name)
    try:
        executed(name, source)
        yield
    finally:
        sys.modules[name] = original


def verdict_on(name: str, source: str) -> Verdict:
    case = CASES[name]
    with installed(case["module"], source):
        module, attribute = case["declaration"].split(":")
        kernel = getattr(executed(f"autotune_kernels.{module}"), attribute)
        words = case["shape"], case.get("dtype", "float32"), case.get("options", ())
        problem = kernel.problem_spec.parse(*words)
        with told_of(Chip.V5E, {}):
            axes = {**kernel.default_axes(problem, "v5e"), **case["config"]}
        return gate.check(kernel, problem, make_config(axes), Chip.V5E)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_of_a_package_passes(name):
    verdict = verdict_on(name, source_of(name))
    assert verdict.ok is True, verdict


def edited(name: str, source: str, line: int, old: str, new: str) -> str:
    """With a text that begins in this line, and is no part of a longer name, replaced."""
    lines = source.splitlines(keepends=True)
    before, after = "".join(lines[: line - 1]), "".join(lines[line - 1 :])
    if old.splitlines()[0] not in lines[line - 1]:
        pytest.skip(f"{CASES[name]['module']} is of another version")
    start, end = after.index(old), after.index(old) + len(old)
    assert start < len(lines[line - 1]), "the text stands in a later line"
    borders = after[start - 1 : start + 1], after[end - 1 : end + 1]
    assert not any(re.match(r"\w\w", border) for border in borders), "a part of a longer name"
    return before + after[:start] + new + after[end:]


@pytest.mark.parametrize(
    ("name", "edits"),
    [pytest.param(n, rest, id=f"{n}-{fault}-{rest[0]}") for n, fault, *rest in FAULTS],
)
def test_a_copy_with_a_fault_does_not(name, edits):
    """Refused; or it cannot be run, which is not verified either. A fault that needs several edits
    has one behind the other, none of which adds a line."""
    source = source_of(name)
    for edit in zip(edits[::3], edits[1::3], edits[2::3], strict=True):
        source = edited(name, source, *edit)
    compile(source, name, "exec")
    verdict = verdict_on(name, source)
    assert verdict.ok is not True, verdict
