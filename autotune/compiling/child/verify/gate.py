"""Running a candidate against its reference on small problems, in the child."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count, cycle, islice, product
from math import inf
from typing import Any

import numpy as np

from autotune.compiling.child.chips import told_of
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.calls import walked
from autotune.compiling.child.verify import interpreter, numbers
from autotune.compiling.child.verify.coverage import Borders, Coverage, borders
from autotune.compiling.child.verify.interpreter import EAGER, LATE, NotRunError, WrongRunError
from autotune.compiling.child.verify.reduced import keeps_lengths, reduced_problems
from autotune.compiling.child.verify.reduced_case import ReducedCase
from autotune.compiling.child.verify.work import OverBudgetError, WorkMeter
from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.evidence import FailedCheck, Proof, ProofLevel, Standard, Verdict
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem

_SCALES = 2.0, 0.5  # of blocks that are seen to count pages
_RUNS = 3
_FEWEST_RUNS = 2  # of both small problems, or of the only one with DMAs late and early
_MOST_WORK = 50_000.0  # of all runs, by ``work_of``: more is run less often, or short only


def check(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    chip: Chip | None = None,
    *,
    budget_s: float = 60.0,
    tell: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """Whether a config gives the reference's result in :data:`_RUNS` runs of small problems, or
    :data:`_FEWEST_RUNS` where these are more than :data:`_MOST_WORK`. Each is in another order of
    the parallel axes, with other numbers, with DMAs late and early in turn. Long dimensions that no
    axis cuts are short at first, and then as they are where that is known to be no more than
    :data:`_MOST_WORK`: what passed is not lost in a loop that depends on data.

    What is run follows from the problem and the config alone: on a machine that is busy or slow it
    proves as much, or runs into the limit of the question.

    ``ok`` is None where this JAX cannot do it, or cannot trace the kernel so, or where the fewest
    runs are more work than ``budget_s`` on two cores. Code that asks for the TPU while it is traced
    is told of ``chip``. ``tell`` hears for how many seconds it goes on.
    """
    started = time.perf_counter()
    verdict = _check(kernel, problem, config, chip, WorkMeter(budget_s, tell))
    standard = Standard.REFERENCE if kernel.reference else Standard.DEFAULT
    proof = replace(verdict.proof, standard=standard)
    return replace(verdict, seconds=time.perf_counter() - started, proof=proof)


def _check(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip | None, meter: WorkMeter
) -> Verdict:
    reason = interpreter.unsupported()
    if reason:
        return Verdict(ok=None, reason=reason, not_run=True)
    naming = numbers.operands_that_name_rows(kernel, problem)
    if reason := _refusal(kernel, problem, config, chip, naming):
        return Verdict(ok=None, reason=reason)
    coverage = Coverage(lambda small: _borders(kernel, small, config, chip, naming), problem)

    def cases(**how: bool) -> list[ReducedCase]:
        problems = reduced_problems(kernel, problem, config, coverage, **how)
        return [ReducedCase(kernel, small, config, chip) for small in problems]

    stages = _Stages(
        problem,
        cases(shorten=True),
        cases(),
        together=lambda: cases(together=True),
        real=lambda: ReducedCase(kernel, problem, config, chip),
    )
    if kernel.reference and "pallas_call" in stages.short[0].primitives:
        return Verdict(ok=None, reason="its reference is a Pallas kernel, too, and not plain JAX")
    if any(eqn.primitive.name.startswith("prng_") for eqn in walked(stages.short[0].jaxpr)):
        return Verdict(
            ok=None,
            reason="it draws random numbers inside the kernel (pltpu.prng_*), which cannot be "
            "compared with another program's: --allow-unverified publishes it, labelled so",
        )
    try:
        verdict = stages.verdict(meter)
    except OverBudgetError:
        smallest = " and ".join(str(case.problem) for case in stages.short)
        reason = f"the smallest problem with all its borders, {smallest}, takes more than "
        reason += f"{meter.budget_s:.0f} s"
        return Verdict(ok=None, reason=f"{reason}: {stages.remedy}")
    run = [case for stage in stages.run for case in stage]
    covered = coverage.covered(case.problem for case in run) if verdict.ok else None
    if covered is None:
        return verdict
    integers = numbers.integer_ranges(kernel.inputs(problem), [case.arrays for case in run])
    proof = replace(verdict.proof, covered=replace(covered, integers=integers))
    return replace(verdict, ok=True if covered.is_enough else None, proof=proof)


def _refusal(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip | None, naming: Set[str]
) -> str:
    """Why no small problem can be made that is known to be one; empty where it can."""
    dim, is_sure = _miscounted(kernel, problem, config, chip)
    if dim is not None:
        reason = f"blocks that are as long by their units take other memory with other {dim}: "
        return f"{reason}unit={dim!r} is for each axis that counts these"
    if (axis := _no_lengths(kernel, problem, naming)) is not None:
        reason = (
            f"{axis.lengths!r} says neither where sequences begin nor how long they are, at most "
        )
        return f"{reason}{axis.longest!r}, as axis {axis.name} has it"
    reason = "what their axes count cannot be seen from other sizes of the problem"
    return "" if is_sure else f"{reason}: leave lengths and longest out"


class _Stages:
    """The small problems that are run: those with short dimensions, then those with whole ones;
    ``alike``, whose lengths shrink together, where the others may be no problem at all."""

    def __init__(
        self,
        problem: Problem,
        short: list[ReducedCase],
        whole: list[ReducedCase],
        *,
        together: Callable[[], list[ReducedCase]],
        real: Callable[[], ReducedCase],
    ) -> None:
        self._problem, self._real = problem, real
        self._alike = short if self._is_alike(short) else together()
        if _work(self._alike, _RUNS) <= _MOST_WORK:
            short, whole = self._alike, whole if self._is_alike(whole) else self._alike
        self.short, self._whole = short, whole
        self._is_same = [case.problem for case in short] == [case.problem for case in whole]
        both = _work(short, _RUNS) + _work(whole, _RUNS)
        self.run = [short] if self._is_same or both > _MOST_WORK else [short, whole]
        self.remedy = "give the declaration a `reduced` that makes it smaller, or smaller blocks"

    def verdict(self, meter: WorkMeter) -> Verdict:
        """Raises ``OverBudgetError``: those of ``short`` are too much."""
        meter.plan(_work(self.short, _FEWEST_RUNS), chain.from_iterable(map(_planned, self.run)))
        verdict = _verdict(self.short, meter)
        if verdict.check is FailedCheck.BOUNDS and not self._is_same:
            # A constant of the kernel, a page of 16, may be longer than what was shortened.
            self.short, self.run = self._whole, [self._whole]
            verdict = _verdict(self._whole, meter)
        elif verdict.ok and len(self.run) > 1:
            self.short, verdict = self._whole, _verdict(self._whole, meter)
        if self._is_alike(self.short) or (
            verdict.ok and all(case.operations == self._real().operations for case in self.short)
        ):
            return verdict
        # It may be no problem at all, or another program: one that asks what is as long.
        self.short, self.run = self._alike, [self._alike]
        self.remedy = "say with `dims` which of its dimensions are one, or use smaller blocks"
        meter.plan(_work(self._alike, _FEWEST_RUNS), _planned(self._alike))
        return _verdict(self._alike, meter)

    def _is_alike(self, cases: Iterable[ReducedCase]) -> bool:
        return all(keeps_lengths(case.problem, self._problem) for case in cases)


def _no_lengths(kernel: Kernel, problem: Problem, naming: Set[str]) -> Axis | None:
    """An axis whose ``lengths`` name an argument that cannot be that: it names rows, or some are
    longer than they may be, and it does not say where each begins."""
    arrays = kernel.inputs(problem)
    for axis in kernel.axes:
        if axis.lengths is None and axis.longest is None:
            continue
        cut = None if axis.lengths is None else numbers.lengths_cut(arrays, axis.lengths)
        if cut is None or axis.lengths in naming:
            return axis
        if len(cut) == 1 and (axis.longest is None or cut[0].max() > problem[axis.longest]):
            return axis
    return None


def _miscounted(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip | None
) -> tuple[str | None, bool]:
    """The length of pages, where blocks of as many tokens, by what the axes say of their units,
    take other memory with other pages; and whether that would have been seen. Of a dimension
    that counts no tokens (heads), the given integers say nothing."""

    values = dict(config.axes)

    def buffers(other: Problem, scaled: Iterable[Axis] = (), by: float = 1) -> list[int]:
        sizes = {axis.name: int(by * int(values[axis.name])) for axis in scaled}
        changed = config.replace(axes=tuple({**values, **sizes}.items()))
        return ReducedCase(kernel, other, changed, chip).buffers if all(sizes.values()) else []

    def integers(other: Problem) -> list[Any]:
        return [array.values() for array in kernel.inputs(other) if array.values]

    if not (cutting := [axis for axis in kernel.axes if axis.lengths]):
        return None, True
    usual, given = buffers(problem), integers(problem)
    scaled = [buffers(problem, cutting, scale) for scale in _SCALES]
    of_blocks = set[int]().union(*(_differing(usual, sizes) for sizes in scaled))
    is_sure = bool(of_blocks)
    for dim, _ in problem.dims:
        counting, seen = [axis for axis in kernel.axes if axis.unit == dim], False
        counts = bool(counting)
        # Alone, or with another that has to follow it.
        for scale, follows in product(_SCALES, (dim, *dict(problem.dims))):
            if seen or (follows != dim and not counts):
                continue
            with suppress(Exception):  # there may be no such problem
                sizes = {name: int(problem[name] / scale) for name in (dim, follows)}
                other = problem.with_dims(**sizes)
                if all(map(np.array_equal, given, integers(other))):
                    continue
                counts = True
                now = buffers(other, counting, scale)
                seen = len(now) == len(usual)
                if seen and any(now[number] != usual[number] for number in of_blocks):
                    return dim, True
        is_sure = is_sure and (seen or not counts)
    return None, is_sure


def _differing(sizes: Sequence[int], others: Sequence[int]) -> set[int]:
    pairs = enumerate(zip(sizes, others, strict=False))
    return {number for number, (size, other) in pairs if size != other}


def _work(cases: Sequence[ReducedCase], runs: int) -> float:
    return sum(case.work for case in islice(cycle(cases), runs))


def _runs(cases: Sequence[ReducedCase]) -> Iterable[ReducedCase]:
    is_much = _MOST_WORK < _work(cases, _RUNS) < inf
    return islice(cycle(cases), _FEWEST_RUNS if is_much else _RUNS)


def _planned(cases: Sequence[ReducedCase]) -> Iterator[float]:
    """The work of each run."""
    yield from (case.compared_work for case in _runs(cases))
    if cases[0].can_overflow:
        yield cases[0].work


def _verdict(cases: Sequence[ReducedCase], meter: WorkMeter) -> Verdict:
    lacks: list[str] = []
    for level in ProofLevel:
        verdict = _run_in(level, cases, "; ".join(lacks), meter)
        if not verdict.not_run:
            return verdict
        if verdict.reason not in lacks:
            lacks.append(verdict.reason)
    return replace(verdict, reason=f"interpret mode cannot run it: {lacks[0]}")


def _run_in(
    level: ProofLevel, cases: Sequence[ReducedCase], lacks: str, meter: WorkMeter
) -> Verdict:
    """The verdict of one level. What only the plain interpreter calls wrong is not known to be: it
    is not what runs on a TPU."""
    proof, worst, runs = Proof(level=level, lacks=lacks), 0.0, 0
    problems, remains = [case.problem for case in cases], dict[Any, Any]()
    # The first problem has its DMAs late and early, the second early.
    in_turn = cycle([LATE, EAGER] if len(problems) == 1 else [LATE, EAGER, EAGER])
    for seed, case, dmas in zip(count(), _runs(cases), in_turn, strict=False):
        run = case.run(seed, dmas, level, remains)
        what = f"{run}, {case.problem}"
        try:
            difference = case.compared(run, meter)
        except OverBudgetError:
            if runs < _FEWEST_RUNS:
                raise
            break
        except NotRunError as error:
            return Verdict(ok=None, reason=str(error), runs=runs, not_run=True)
        except WrongRunError as error:
            return Verdict(ok=False, reason=f"{error} ({what})", check=error.check, runs=runs)
        worst = max(worst, difference.error)
        if difference.check:
            return Verdict(
                ok=None if level is ProofLevel.PLAIN else False,
                reason=f"{difference.reason}{case.remedy(difference)} ({what})",
                check=difference.check,
                error=difference.error,
                where=difference.where,
                runs=runs,
                proof=proof,
            )
        meter.end_run(case.compared_work)
        runs += 1
    lost = cases[0].overflow(level, meter)
    if lost.check:
        return Verdict(ok=False, reason=lost.reason, check=lost.check, where=lost.where, runs=runs)
    tested = " and ".join(str(small) for small in problems)
    said = f"{runs} run{'s' * (runs > 1)} of {tested}"
    if (few := cases[0].quantised[0].mean_share) > 0.0:
        said += f"; what it rounds to few bits may be off by {few:.1%} in the mean"
    return Verdict(ok=True, reason=said, error=worst, runs=runs, proof=proof)


def _borders(
    kernel: Kernel, problem: Problem, config: Config, chip: Chip | None, naming: Set[str]
) -> Borders | None:
    """What the kernel walks for the problem; None where it, or its reference, cannot be traced for
    it, or its integers cannot be made (a slot for each token, where there are fewer); what they say
    of another one is not asked here. A ``pallas_call`` takes lengths that do not fit, a reference
    does not."""
    import jax

    block_sizes = [
        (axis.lengths, axis.elements(size, problem), axis.is_within)
        for axis in kernel.axes
        if axis.dim is None and type(size := dict(config.axes).get(axis.name)) is int
        if axis.elements(size, problem) > 1
    ]
    with told_of(chip, kernel.mesh_axes(problem)):
        try:
            inputs = kernel.inputs(problem)
            for array in inputs:
                if array.values is not None and array.dtype.startswith("int"):
                    array.values()
            arrays = reader.abstract(inputs)
            plain = kernel.reference and jax.make_jaxpr(kernel.reference(problem))(*arrays)
            traced = jax.make_jaxpr(kernel.build(problem, config))(*arrays)
            return borders(traced, inputs, plain, block_sizes, naming)
        except Exception:
            return None
