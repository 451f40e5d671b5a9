"""How long does the gate take, and what does it say of kernels that are right?

    python -m benchmarks verification [NAME ...] [--limit 300]

Kernels with long loops, many steps and whole rows in a block, and our own, each with one config;
all of them are right. One at a time, in a compiler process that has started. Exit code 1 when one
is not verified, or the median is above 15 s of processor time, which others on a machine do not
change much.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import DescribeToolchain, ListChoices, ReadProblem, VerifyConfig
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import AxisValue, Config, Problem, make_config
from autotune.wording.publication import verification as words

_CHIP = Chip.V6E
_MOST_MEDIAN_S = 15.0
_LONG = Path(__file__).parent / "kernels" / "long_loops.py"


class Case(NamedTuple):
    """``args``: of a decorated function in ``long_loops.py``, or the shape of a kernel of ours."""

    kernel: str
    args: str
    axes: dict[str, AxisValue]


CASES = (
    Case("recurrence", "a=f32[8192,2048], x=f32[8192,2048]", {"block": 512}),
    Case("triangular_solve", "m=f32[1024,1024], b=f32[1024,128]", {"block": 64}),
    Case("running_maximum", "x=f32[4096,512]", {"block": 256}),
    Case("two_pass_softmax", "x=f32[1024,4096]", {"rows": 32, "columns": 256}),
    Case("whole_row_product", "a=f32[8192,8192], b=f32[8192,8192]", {}),
    Case("matmul", "8192x8192x8192 float32", {"block_m": 128, "block_k": 8192, "block_n": 128}),
    Case("matmul", "4096x4096x4096", {"block_m": 512, "block_k": 1024, "block_n": 1024}),
    Case("flash_attention", "1x8x8x2048x2048x128", {}),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of kernels; all by default")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.names or case.kernel in options.names]
    with CompilerPool(1, limit_s=options.limit) as pool:
        print(pool.ask(DescribeToolchain()), flush=True)
        verified = [_print(pool, case) for case in cases]
    middle = median(seconds for _, seconds in verified)
    print(f"median {middle:.1f} s of processor time (at most {_MOST_MEDIAN_S:.0f})")
    return 0 if all(ok for ok, _ in verified) and middle <= _MOST_MEDIAN_S else 1


def _print(pool: CompilerPool, case: Case) -> tuple[bool, float]:
    ref, problem, config = _asked(pool, case)
    started, spent = time.monotonic(), _processor_s()
    verdict = pool.ask(VerifyConfig(ref=ref, problem=problem, config=config, chip=_CHIP))
    seconds, spent = time.monotonic() - started, _processor_s() - spent
    times = f"{spent:6.1f} s of processor time, {seconds:6.1f} s"
    print(f"{times}  {case.kernel} {problem} {config}: {words(verdict)}", flush=True)
    return bool(verdict.ok), spent


def _processor_s() -> float:
    """Of the compiler processes so far."""
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return float(sum(each.user + each.system for each in times))


def _asked(pool: CompilerPool, case: Case) -> tuple[KernelRef, Problem, Config]:
    if case.kernel in ("matmul", "flash_attention"):
        ref = find_kernel(case.kernel)
        shape, _, dtype = case.args.partition(" ")
        words = ProblemWords(shape=shape, dtype=dtype.strip())
    else:
        ref = KernelRef(path=str(_LONG), attribute=case.kernel, call=case.args)
        words = ProblemWords(call=case.args)
    problem = pool.ask(ReadProblem(ref=ref, words=words)).problem
    choices = pool.ask(ListChoices(ref=ref, problem=problem, chip=_CHIP))
    return ref, problem, make_config({**choices.default, **case.axes}, grid_order=choices.grid)
