"""Why a compiled kernel uses the VMEM that it uses: the compiler's own table of allocations.

Run as a child under the compiling interpreter: one JSON request a line on stdin, one answer a line.
The table is in the compiler's text before its first and after its last pass.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiling import libtpu
from autotune.declaring.discovery import find_kernel
from autotune.domain.codec import from_data, to_data
from autotune.domain.problem import Config, Problem
from benchmarks.harness.points import CandidatePoint

_ROOT = Path(__file__).parents[2]
_PASSES = "(original|post-bundle-packing-post-ra)"
_ALLOCATION = re.compile(
    r"^\s*#allocation\w+ \[shape = [^\n]*?space=vmem, size = (0x[0-9a-f]+)[^\n]*?tag = '([^']*)",
    re.M,
)
_PLACED = re.compile(
    r"inlined_call_operand\.vmem [^\n]*?(input|output) window allocation for operator "
    r"(?:input|output) (\d+)"
)
_WINDOW = re.compile(r"(input|output) window allocation for operator (?:input|output) (\d+)")
_LEVELS = re.compile(r"has (\d+) buffering level")


@dataclass(frozen=True, slots=True, kw_only=True)
class VmemEvidence:
    """Bytes by kind of allocation, before the first and after the last pass of the compiler.

    ``placed``: operands that lie in VMEM before the kernel starts, as ``input 0``.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    placed: tuple[str, ...]


class EvidenceChild:
    """A compiler of our own that keeps the allocation tables."""

    def __init__(self, python: str = sys.executable) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-evidence-")
        dump = Path(self._folder.name)
        environment = libtpu.child_environment(dump, os.environ)
        flags = environment["LIBTPU_INIT_ARGS"].replace("final_bundles", _PASSES)
        self._child = subprocess.Popen(
            [python, "-m", __name__, str(dump)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "LIBTPU_INIT_ARGS": flags},
            text=True,
        )

    def ask(self, point: CandidatePoint) -> VmemEvidence:
        request = {
            "kernel": point.subject.kernel,
            "problem": to_data(point.subject.problem),
            "config": to_data(point.config),
            "chip": point.chip.chip.value,
        }
        assert self._child.stdin is not None and self._child.stdout is not None
        print(json.dumps(request), file=self._child.stdin, flush=True)
        data = json.loads(self._child.stdout.readline())
        return VmemEvidence(**{**data, "placed": tuple(data["placed"])})

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(30)
        self._folder.cleanup()


def allocations(text: str) -> Counter[str]:
    """VMEM bytes by kind: one kind per window, the rest by its tag."""
    counts: Counter[str] = Counter()
    for size, tag in _ALLOCATION.findall(text):
        window, levels = _WINDOW.search(tag), _LEVELS.search(tag)
        kind = tag.partition(".")[0]
        if window:
            kind = f"{window.group(1)} {window.group(2)}"
            if levels and levels.group(1) == "1":
                kind += " single-buffered"
        counts[kind] += int(size, 16)
    return counts


def _answer(request: Mapping[str, Any], dump: Path) -> dict[str, Any]:
    for path in dump.glob("*.txt"):
        path.unlink()
    config = from_data(Config, request["config"])
    name = _compiled(request["kernel"], request["problem"], config, request["chip"])
    texts = {p.name: p.read_text() for p in dump.glob("*.txt") if f"-{name}." in p.name}
    before = next(text for path, text in texts.items() if "-original" in path)
    after = next(text for path, text in texts.items() if "-post-bundle-packing-post-ra" in path)
    placed = sorted({f"{way} {number}" for way, number in _PLACED.findall(before)})
    return {"before": allocations(before), "after": allocations(after), "placed": placed}


def _compiled(kernel: str, problem: Mapping[str, Any], config: Config, chip: str) -> str:
    """Compile one candidate; the name under which the compiler dumps its kernel."""
    import jax

    from autotune.compiling.child.chips import compile_only_device
    from autotune.compiling.child.compile.build import specs
    from autotune.compiling.child.devices import abstract_mesh
    from autotune.compiling.child.loading import Loader
    from autotune.domain.key import Chip

    declared = Loader().kernel(find_kernel(kernel))
    parsed = from_data(Problem, problem)
    device = compile_only_device(Chip(chip))
    with abstract_mesh(device):
        arrays = specs(declared.inputs(parsed), device)
        jax.jit(declared.build(parsed, config)).trace(*arrays).lower().compile()
    return kernel


def main() -> None:
    dump = Path(sys.argv[1])
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), dump)), file=pipe, flush=True)


if __name__ == "__main__":
    main()
