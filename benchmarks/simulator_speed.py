"""How long do parsing and simulating take, against compiling?

    python -m benchmarks simulator_speed

Three figures: seconds to simulate over seconds to compile, for the default and one more config of
every problem of ``harness/points.py``; seconds for a listing of 5 MB; and what libtpu's static
profile adds to compiling a kernel of 4,096 steps over what the simulator needs for it.
"""

import argparse
import os
import sys
import time
from random import Random
from statistics import median
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.compiling.process import ChildDiedError, ChildTimedOutError, CompilerProcess
from autotune.domain.compilers import CompileConfig, DescribeToolchain
from autotune.domain.key import Chip
from autotune.domain.problem import Config, make_config
from autotune.estimating.simulator import NotSimulated, simulate
from benchmarks.calibration.corpus import PROFILE_WORKER
from benchmarks.calibration.samples import find
from benchmarks.harness.points import KernelProblem, subjects

_CHIPS = (Chip.V5E, Chip.V6E)
_LARGEST = 512  # of the sizes of the second config: all of it fits
_MEGABYTES = 5.0
_LARGE = "flash 1x2x4096x128 bfloat16 causal @2048x1024"
_MANY_STEPS = "matmul 2048x2048x2048 bfloat16 @128x128x128"
_LIMIT_S = 300.0
_REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    _against_compiling(Random(seed))
    _large_listing()
    _against_the_static_profile()


def _against_compiling(rng: Random) -> None:
    with CompilerPool(1) as pool:
        print(pool.ask(DescribeToolchain()))
        ratios: dict[str, list[float]] = {}
        for subject in subjects(pool):
            for config in _configs(subject, rng):
                for chip in _CHIPS:
                    answer = pool.ask(
                        CompileConfig(
                            ref=subject.ref, problem=subject.problem, config=config, chip=chip
                        )
                    ).answer
                    if isinstance(answer, tuple):
                        compiled = answer[1]
                        of_kernel = ratios.setdefault(subject.kernel, [])
                        of_kernel.append(compiled.simulate_s / compiled.seconds)
    print(f"\n{'simulate / compile':<24}{'points':>8}{'median':>9}{'worst':>9}")
    for kernel, of_kernel in ratios.items():
        print(f"{kernel:<24}{len(of_kernel):>8}{median(of_kernel):>9.1%}{max(of_kernel):>9.1%}")
    every = [ratio for of_kernel in ratios.values() for ratio in of_kernel]
    print(f"{'all':<24}{len(every):>8}{median(every):>9.1%}{max(every):>9.1%}")


def _configs(subject: KernelProblem, rng: Random) -> list[Config]:
    """The default, and declared sizes at random."""
    grid = tuple(subject.choices.grid)
    small = {
        name: rng.choice([v for v in values if not isinstance(v, int) or v <= _LARGEST] or values)
        for name, values in subject.choices.axes.items()
    }
    return [make_config(axes, grid_order=grid) for axes in (subject.choices.default, small)]


def _large_listing() -> None:
    """The listing as it is, its time scaled to 5 MB."""
    listing = _compile(_LARGE, profile=False)["listing"]
    seconds, megabytes = _simulate_s(listing), len(listing) / 1e6
    print(
        f"\na listing of {megabytes:.1f} MB: {seconds:.2f} s, "
        f"{seconds / megabytes * _MEGABYTES:.2f} s for {_MEGABYTES:g} MB"
    )


def _against_the_static_profile() -> None:
    plain, profiled = _compile(_MANY_STEPS, profile=False), _compile(_MANY_STEPS, profile=True)
    added, ours = profiled["seconds"] - plain["seconds"], _simulate_s(plain["listing"])
    print(
        f"4,096 steps: libtpu's static profile {added:.2f} s, the simulator {ours:.3f} s, "
        f"{added / ours:.0f} times as fast"
    )


def _simulate_s(listing: str) -> float:
    """The median of some runs. ``SystemExit`` where the listing is refused."""
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        result = simulate(listing, chip=Chip.V5E.value)
        times.append(time.perf_counter() - started)
        if isinstance(result, NotSimulated):
            sys.exit(f"refused: {result.reason}")
    return median(times)


def _compile(name: str, *, profile: bool) -> dict[str, Any]:
    """Listing and seconds of a sample on v5e; the second of two, when all is warm."""
    find(name)
    os.environ["AUTOTUNE_STATIC_PROFILE"] = "1" if profile else ""
    child = CompilerProcess(worker=PROFILE_WORKER)
    try:
        for _ in range(2):
            answer = child.ask({"chip": Chip.V5E.value, "sample": name}, _LIMIT_S)
    except (ChildDiedError, ChildTimedOutError) as error:
        sys.exit(f"{name}: {error}")
    finally:
        child.close()
    if "error" in answer:
        sys.exit(f"{name}: {answer['error']}")
    return answer
