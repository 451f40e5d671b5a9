"""Compiler options for a function that is no kernel: by the simulated time of all that XLA runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from autotune.domain.compiler_options import over
from autotune.domain.compilers import CompileBaseline, Compilers, DescribeChip, XlaCost
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Failure
from autotune.publishing.publish import expected_us
from autotune.searching.option_axes import taken


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTrial:
    """``options``: all that it was compiled with. ``time_us``: None where it depends on data, or
    waits for other devices; ``failure``: where it does not compile."""

    options: str
    time_us: float | None
    failure: Failure | None = None


def search_options(
    compilers: Compilers,
    ref: KernelRef,
    chip: Chip,
    asked: str,
    wanted: Mapping[str, Sequence[str]],
    announce: Callable[[str], None],
    trials: int,
    seed: int,
) -> list[FunctionTrial]:
    """Each set of options once, without any first; nothing is kept. ``asked``: those that are there
    anyway. Raises ``InvalidInputError`` for what the compiler does not take."""
    from autotune.searching.study import try_options  # Optuna: for those who search

    info = compilers.ask(DescribeChip(chip=chip, options=asked))
    done: dict[str, FunctionTrial] = {}

    def judge(options: Mapping[str, str]) -> float | None:
        text = over(asked, options)
        if text not in done:
            cost = compilers.ask(CompileBaseline(ref=ref, chip=chip, options=text))
            time_us = expected_us(cost, info) if isinstance(cost, XlaCost) else None
            failure = None if isinstance(cost, XlaCost) else cost
            done[text] = FunctionTrial(options=text, time_us=time_us, failure=failure)
        return done[text].time_us

    values = {name: list(v) for name, v in taken(compilers, chip, asked, wanted, announce).items()}
    most = prod(len(tried) + 1 for tried in values.values())
    try_options(values, min(trials, most), seed, judge)
    return list(done.values())
