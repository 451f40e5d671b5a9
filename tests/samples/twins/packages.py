"""Kernels of JAX, tokamax and tpu-inference, declared in ``autotune_kernels``, from a source with
one small fault. Where a package is not installed, its cases have no source.

``packages.json`` lists edits that do harm, by kernel, fault and text: the whole problem, run as it
is, is wrong with them. It is made by

    python -m tests.samples.twins.packages [CASE...]

which takes edits of every fault in turn, in an order drawn once, and keeps the first that do harm.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from math import inf
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from autotune.compiling.child.chips import told_of
from autotune.compiling.child.verify import gate
from autotune.compiling.child.verify.interpreter import LATE, NotRunError, WrongRunError
from autotune.compiling.child.verify.work import WorkMeter
from autotune.declaring.kernel import Kernel
from autotune.domain.evidence import ProofLevel
from autotune.domain.key import Chip
from autotune.domain.problem import AxisValue, Config, Problem, make_config
from tests.samples.twins.mutator import Mutation, mutations

FILE = Path(__file__).with_suffix(".json")
_EACH = 8  # twins of a case that are kept
_TRIED = 24
CHIP = Chip.V5E


class Case(NamedTuple):
    """As ``cases.json`` has it. ``module``: whose source is broken, in ``functions``;
    ``declaration``: ``module:NAME``, in ``autotune_kernels``."""

    module: str
    functions: Sequence[str]
    declaration: str
    shape: str
    config: dict[str, AxisValue]
    options: Sequence[str] = ()
    dtype: str = "float32"

    @property
    def source(self) -> str:
        """Empty where the package is not installed."""
        try:
            spec = importlib.util.find_spec(self.module)
        except ModuleNotFoundError:
            return ""
        return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""

    def mutations(self) -> list[Mutation]:
        return mutations(self.source, frozenset(self.functions))


def _cases() -> dict[str, Case]:
    file = FILE.with_name("cases.json")
    return {name: Case(**parts) for name, parts in json.loads(file.read_text()).items()}


CASES = _cases()


class Edit(NamedTuple):
    """As the file has it. ``line`` tells edits of the same text apart."""

    case: str
    fault: str
    line: int
    old: str
    new: str

    def mutation(self) -> Mutation | None:
        """Where it is in the installed JAX; None where that has another source."""
        same = (m for m in CASES[self.case].mutations() if m[:4] == self[1:])
        return next(same, None)

    def __str__(self) -> str:
        return f"{self.case}-{self.fault.replace(' ', '_')}-{self.line}-{self.new[:20]}"


def edits() -> list[Edit]:
    return [Edit(*row) for row in json.loads(FILE.read_text(encoding="utf-8"))]


@contextmanager
def declared(case: Case, source: str) -> Iterator[tuple[Kernel, Problem, Config]]:
    """The declaration over a module of this source, its problem and its config."""
    name = case.module
    original = importlib.import_module(name)
    broken = ModuleType(name)
    broken.__package__, broken.__file__ = original.__package__, original.__file__
    sys.modules[name] = broken
    try:
        exec(compile(source, f"<{case.module}>", "exec"), vars(broken))
        module, attribute = case.declaration.split(":")
        kernel = getattr(_fresh(f"autotune_kernels.{module}"), attribute)
        problem = kernel.problem_spec.parse(case.shape, case.dtype, case.options)
        with told_of(CHIP, {}):
            axes = {**kernel.default_axes(problem, CHIP.value), **case.config}
        yield kernel, problem, make_config(axes)
    finally:
        sys.modules[name] = original


def _fresh(name: str) -> ModuleType:
    """A module executed once more."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def harm(case: Case, source: str) -> str:
    """Of one run of the whole problem: what is wrong in it, or nothing; *?* where it cannot be
    run."""
    with declared(case, source) as (kernel, problem, config):
        try:
            subject = gate._Subject(kernel, problem, config, CHIP)
            difference = subject.compared(
                subject.run(0, LATE, ProofLevel.FULL), WorkMeter(inf, lambda _: None)
            )
        except WrongRunError as error:
            return error.check.value
        except NotRunError:
            return "?"
    return difference.check.value


def drawn(case: Case) -> list[Mutation]:
    """Edits of every fault in turn."""
    by_fault: dict[str, list[Mutation]] = {}
    for mutation in Random(0).sample(found := case.mutations(), len(found)):
        by_fault.setdefault(mutation.fault, []).append(mutation)
    rounds = zip_longest(*by_fault.values())
    return [mutation for each in rounds for mutation in each if mutation is not None]


def main(names: list[str]) -> None:
    for name in names or CASES:
        case, harmful = CASES[name], list[Edit]()
        kept = [edit for edit in (edits() if FILE.exists() else ()) if edit.case != name]
        assert not harm(case, case.source), name
        for mutation in drawn(case)[:_TRIED]:
            told = harm(case, mutation.apply(case.source))
            print(
                f"{name}: {mutation.fault}, line {mutation.line}: {told or 'harmless'}", flush=True
            )
            if told not in ("", "?"):
                harmful.append(Edit(name, *mutation[:4]))
            FILE.write_text(json.dumps(sorted(kept + harmful), indent=1) + "\n", encoding="utf-8")
            if len(harmful) == _EACH:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
