"""Is what an explanation promises at least what a tried config saves?

    python -m benchmarks reasons [--trials 7] [--seed 0] [--chip v5e ...]

Of each kernel on each chip some candidates are compiled, drawn by the seed, the default among
them. The change that is named for a trial promises a saving; the best of the others shows what was
there to save. Exit code 1 where fewer than 95 % of the promises reach nine tenths of it.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import ListChoices
from autotune.domain.outcome import Estimate, Estimated
from autotune.estimating.space import explore
from autotune.searching.one_config import evaluate
from benchmarks.catalogue import CASES, CHIPS
from benchmarks.harness.tables import SpaceCase, subject_of

_REACHED, _SHARE = 0.9, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Microseconds of one trial: its time, what its explanation promises, what another saves."""

    time_us: float
    promised_us: float
    saved_us: float

    @property
    def is_reached(self) -> bool:
        return self.promised_us >= _REACHED * self.saved_us


def promises(estimates: list[Estimate]) -> Iterator[Promise]:
    best_us = min(e.time_us for e in estimates)
    for e in estimates:
        if e.explanation is not None:
            yield Promise(
                time_us=e.time_us, promised_us=e.explanation.saving_us, saved_us=e.time_us - best_us
            )


def _estimates(pool: CompilerPool, case: SpaceCase, trials: int, seed: int) -> list[Estimate]:
    subject = subject_of(pool, case)
    choices = pool.ask(ListChoices(ref=subject.ref, problem=subject.problem))
    space = explore(pool, subject.ref, subject.problem, choices, subject.chip)
    configs = [candidate.config for candidate in space.candidates]
    drawn = random.Random(seed).sample(configs, min(trials - 1, len(configs)))
    outcomes = [
        evaluate(pool, subject, config) for config in {space.default: 0} | dict.fromkeys(drawn)
    ]
    return [outcome.estimate for outcome in outcomes if isinstance(outcome, Estimated)]


def main() -> int:
    arguments = _arguments()
    every: list[Promise] = []
    cases = {case.kernel: case for case in reversed(CASES)}
    with CompilerPool(1) as pool:
        for kernel, case in cases.items():
            for chip in arguments.chip or CHIPS:
                space = SpaceCase(kernel=kernel, shape=case.shape, chip=chip, options=case.options)
                made = list(promises(_estimates(pool, space, arguments.trials, arguments.seed)))
                every += made
                print(f"{kernel} on {chip}: {_reached(made)}", flush=True)
                for promise in (p for p in made if not p.is_reached):
                    print(
                        f"  {promise.time_us:.1f} us: promised {promise.promised_us:.1f}, "
                        f"saved {promise.saved_us:.1f}"
                    )
    print(f"together: {_reached(every)}")
    return int(sum(p.is_reached for p in every) < _SHARE * len(every))


def _reached(promises: list[Promise]) -> str:
    return f"{sum(p.is_reached for p in promises)} of {len(promises)} promises reach what was saved"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chip", action="append", choices=CHIPS)
    return parser.parse_args()
