"""What do changes save that ``advise`` does not make?

    python -m benchmarks by_hand [--chip v6e] [--chip v5p] [--write]

Each of benchmarks/kernels/by_hand.py is compiled as it is written and with one change by hand.
``--write`` puts the table into docs/results/findings.md. All times are estimates; no TPU was used.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.searching.one_config import config_judge, evaluate
from autotune.searching.subject import describe_subject
from benchmarks.harness.documents import markdown_table, show

_KERNELS = Path(__file__).parent / "kernels" / "by_hand.py"
_MATRICES, _ARRAYS = "x={0}[2048,2048],y={0}[2048,2048]", "q={0},k={0},v={0}"
_PAIRS = (
    ("sums_in_output", "sums_in_scratch", _MATRICES.format("bf16")),
    ("sums_in_output", "sums_in_scratch", _MATRICES.format("f32")),
    ("casts_each_step", "casts_once", _ARRAYS.format("bf16[8,2048,128]")),
    ("masks_all", "masks_diagonal", _ARRAYS.format("bf16[4,4096,128]")),
    ("masks_all", "masks_in_cond", _ARRAYS.format("bf16[4,4096,128]")),
    ("adds", "adds_in_place", _MATRICES.format("f32")),
    ("adds_to_what_dies", "adds_in_what_dies", _MATRICES.format("f32")),
    ("two_buffers", "one_buffer", _ARRAYS.format("bf16[8,2048,128]")),
    ("sums_over_lanes", "sums_by_product", _ARRAYS.format("bf16[8,2048,128]")),
)


def time_us(compilers: CompilerPool, name: str, call: str, chip: Chip) -> float:
    """Raises ``ValueError`` where it has no estimate."""
    ref = replace(find_kernel(f"{_KERNELS}:{name}"), plain=True)
    subject = describe_subject(compilers, ref, chip, ProblemWords(call=call))
    config = config_judge(compilers, subject).read("default")
    outcome = evaluate(compilers, subject, config)
    if not isinstance(outcome, Estimated):
        raise ValueError(f"{name} on {chip}: {outcome}")
    return outcome.estimate.time_us


def rows(compilers: CompilerPool, chips: Sequence[Chip]) -> Iterator[list[str]]:
    for chip in chips:
        for name, changed, call in _PAIRS:
            before, after = (time_us(compilers, each, call, chip) for each in (name, changed))
            dtype = call.partition("=")[2].partition("[")[0]
            cells = [f"{name} to {changed}".replace("_", " "), dtype, chip.value]
            yield [*cells, f"{before:.1f}", f"{after:.1f}", f"{1 - after / before:.0%}"]


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--chip", action="append", type=Chip, help="default: v6e and v5p")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with CompilerPool(1) as compilers:
        listed = list(rows(compilers, args.chip or [Chip("v6e"), Chip("v5p")]))
    text = markdown_table(["change", "dtype", "chip", "µs", "changed, µs", "saved"], *listed)
    show(text, "results/findings.md", "by_hand", write=args.write)
    return 0
