"""Running a candidate against its reference on small problems, in the child."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import count, cycle, islice
from math import inf, prod
from typing import Any

import numpy as np

from autotune.compiling.child.changes.rewriting import original_build
from autotune.compiling.child.chips import told_of
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.calls import walked
from autotune.compiling.child.trace.pallas_call import Call
from autotune.compiling.child.verify import interpreter, tolerance
from autotune.compiling.child.verify.compare import Difference, compare, errors_of, overflow
from autotune.compiling.child.verify.coverage import Borders, Coverage, borders
from autotune.compiling.child.verify.grids import in_float32, without_maximum
from autotune.compiling.child.verify.interpreter import EAGER, LATE, NotRunError, Run, WrongRunError
from autotune.compiling.child.verify.numbers import Change, integer_ranges, special, values
from autotune.compiling.child.verify.reduced import keeps_lengths, reduced_problems
from autotune.compiling.child.verify.tolerance import NO_ERRORS, Errors
from autotune.compiling.child.verify.work import OverBudgetError, WorkMeter, work_of
from autotune.declaring.kernel import Kernel
from autotune.domain.evidence import FailedCheck, Proof, ProofLevel, Standard, Verdict
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem, make_config

_RUNS = 3
_FEWEST_RUNS = 2  # of both small problems, or of the only one with DMAs late and early
_MOST_WORK = 50_000.0  # of all runs, by ``work_of``: more is run less often, or short only
_SPECIAL = 2  # the run with numbers that random ones never are
_OWN = 1.5  # times what the reference rounds itself
_LARGE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # times the usual numbers: exp(89) is infinite
_MOST_BLOCKS = 4  # of a default config that is the reference, on an axis


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
    coverage = Coverage(lambda small: _borders(kernel, small, config, chip), problem)

    def small_ones(**how: bool) -> list[_Subject]:
        problems = reduced_problems(kernel, problem, config, coverage, **how)
        return [_Subject(kernel, small, config, chip) for small in problems]

    def is_alike(subjects: list[_Subject]) -> bool:
        return all(keeps_lengths(subject.problem, problem) for subject in subjects)

    short, whole = small_ones(shorten=True), small_ones()
    alike = short if is_alike(short) else small_ones(together=True)
    if _work(alike, _RUNS) <= _MOST_WORK:
        short, whole = alike, whole if is_alike(whole) else alike
    if any(eqn.primitive.name.startswith("prng_") for eqn in walked(short[0].jaxpr)):
        return Verdict(
            ok=None,
            reason="it draws random numbers inside the kernel (pltpu.prng_*): its results cannot "
            "be compared with those of another program",
        )
    is_same = [run.problem for run in short] == [run.problem for run in whole]
    both = _work(short, _RUNS) + _work(whole, _RUNS)
    stages = [short, whole] if not is_same and both <= _MOST_WORK else [short]
    remedy = "give the declaration a `reduced` that makes it smaller, or smaller blocks"
    try:
        runs = (run.work for stage in stages for run in _runs(stage))
        meter.plan(_work(short, _FEWEST_RUNS), runs)
        verdict = _verdict(short, meter)
        if verdict.check is FailedCheck.BOUNDS and not is_same:
            # A constant of the kernel, a page of 16, may be longer than what was shortened.
            short, stages = whole, [whole]
            verdict = _verdict(whole, meter)
        elif verdict.ok and len(stages) > 1:
            short, verdict = whole, _verdict(whole, meter)
        if not verdict.ok and not is_alike(short):  # which may be no problem at all
            short, stages = alike, [alike]
            remedy = "say with `dims` which of its dimensions are one, or use smaller blocks"
            meter.plan(_work(alike, _FEWEST_RUNS), (run.work for run in _runs(alike)))
            verdict = _verdict(alike, meter)
        if not verdict.ok:
            return verdict
    except OverBudgetError:
        smallest = " and ".join(str(subject.problem) for subject in short)
        reason = f"the smallest problem with all its borders, {smallest}, takes more than "
        reason += f"{meter.budget_s:.0f} s"
        return Verdict(ok=None, reason=f"{reason}: {remedy}")
    covered = coverage.covered(subject.problem for stage in stages for subject in stage)
    if covered is None:
        return verdict
    small = [subject.arrays for stage in stages for subject in stage]
    covered = replace(covered, integers=integer_ranges(kernel.inputs(problem), small))
    proof = replace(verdict.proof, covered=covered)
    return replace(verdict, ok=True if covered.is_enough else None, proof=proof)


def _work(subjects: Sequence["_Subject"], runs: int) -> float:
    return sum(subject.work for subject in islice(cycle(subjects), runs))


def _runs(subjects: Sequence["_Subject"]) -> Iterable["_Subject"]:
    """What is run in turn."""
    is_much = _MOST_WORK < _work(subjects, _RUNS) < inf
    return islice(cycle(subjects), _FEWEST_RUNS if is_much else _RUNS)


def _verdict(subjects: Sequence["_Subject"], meter: WorkMeter) -> Verdict:
    lacks: list[str] = []
    for level in ProofLevel:
        verdict = _run_in(level, subjects, "; ".join(lacks), meter)
        if not verdict.not_run:
            return verdict
        if verdict.reason not in lacks:
            lacks.append(verdict.reason)
    return replace(verdict, reason=f"interpret mode cannot run it: {lacks[0]}")


def _run_in(
    level: ProofLevel, subjects: Sequence["_Subject"], lacks: str, meter: WorkMeter
) -> Verdict:
    """The verdict of one level. What only the plain interpreter calls wrong is not known to be: it
    is not what runs on a TPU."""
    proof, worst, runs = Proof(level=level, lacks=lacks), 0.0, 0
    problems = [subject.problem for subject in subjects]
    # The first problem has its DMAs late and early, the second early.
    in_turn = cycle([LATE, EAGER] if len(problems) == 1 else [LATE, EAGER, EAGER])
    for seed, subject, dmas in zip(count(), _runs(subjects), in_turn, strict=False):
        run = subject.run(seed, dmas, level)
        what = f"{run}, {subject.problem}"
        try:
            difference = subject.compared(run, meter)
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
                reason=f"{difference.reason}{subject.remedy(difference)} ({what})",
                check=difference.check,
                error=difference.error,
                where=difference.where,
                runs=runs,
                proof=proof,
            )
        meter.end_run(subject.work)
        runs += 1
    lost = subjects[0].overflow(level, meter)
    if lost.check:
        return Verdict(ok=False, reason=lost.reason, check=lost.check, where=lost.where, runs=runs)
    tested = " and ".join(str(small) for small in problems)
    said = f"{runs} run{'s' * (runs > 1)} of {tested}"
    if (few := subjects[0].quantised[0].mean_share) > 0.0:
        said += f"; what it rounds to few bits may be off by {few:.1%} in the mean"
    return Verdict(ok=True, reason=said, error=worst, runs=runs, proof=proof)


def _borders(kernel: Kernel, problem: Problem, config: Config, chip: Chip | None) -> Borders | None:
    """What the kernel walks for the problem; None where it, or its reference, cannot be traced for
    it, or its integers cannot be made (a slot for each token, where there are fewer); what they say
    of another one is not asked here. A ``pallas_call`` takes lengths that do not fit, a reference
    does not."""
    import jax

    with told_of(chip, kernel.mesh_axes(problem)):
        try:
            inputs = kernel.inputs(problem)
            for array in inputs:
                if array.values is not None and array.dtype.startswith("int"):
                    array.values()
            arrays = reader.abstract(inputs)
            plain = kernel.reference and jax.make_jaxpr(kernel.reference(problem))(*arrays)
            traced = jax.make_jaxpr(kernel.build(problem, config))(*arrays)
            return borders(traced, inputs, plain)
        except Exception:
            return None


class _Subject:
    """A config on one small problem; what does not depend on the numbers is made once."""

    def __init__(self, kernel: Kernel, problem: Problem, config: Config, chip: Chip | None) -> None:
        import jax

        self.kernel, self.problem, self.config, self.chip = kernel, problem, config, chip
        self.arrays, self.axes = kernel.inputs(problem), kernel.mesh_axes(problem)
        self.reference: Any = kernel.reference and jax.jit(kernel.reference(problem))
        self.wider: Any = kernel.reference and jax.jit(in_float32(kernel.reference(problem)))
        self.baseline = kernel.baseline and jax.jit(kernel.baseline(problem))

    @cached_property
    def jaxpr(self) -> Any:
        """Empty where it cannot be traced: the run reports that."""
        import jax

        with suppress(Exception), told_of(self.chip, self.axes):
            return jax.make_jaxpr(self._build())(*reader.abstract(self.arrays))
        return jax.make_jaxpr(lambda: ())()

    @cached_property
    def _calls(self) -> list[Call]:
        """None where the kernel cannot be looked into."""
        with suppress(Exception):
            return reader.calls(self.jaxpr, self.arrays)
        return []

    @cached_property
    def quantised(self) -> tuple[Errors, bool]:
        return tolerance.quantised_errors(self.jaxpr)

    def run(self, seed: int, dmas: str, level: ProofLevel) -> Run:
        """As the kernel says: outputs that nobody reads, and whether it does without checks."""
        unread = self._calls[0].unread_buffers() if len(self._calls) == 1 else ()
        unchecked = any(call.is_unchecked for call in self._calls)
        return Run(seed=seed, dmas=dmas, unread=unread, level=level, unchecked=unchecked)

    @property
    def work(self) -> float:
        """Of one run; each device of a mesh does its own."""
        return prod(self.axes.values()) * work_of(self._calls)

    def compared(self, run: Run, meter: WorkMeter) -> Difference:
        """With the numbers of the run's seed. Raises as ``interpreter.outputs`` does."""
        few, keeps_signs = self.quantised
        signs = few.share > 0.0 and keeps_signs and run.seed % 2 == 1
        is_special = run.seed == _SPECIAL and not few.share and not self._hang_together
        change = special(self._primitives) if is_special else np.sign if signs else np.positive
        given = self._given(run.seed, change)
        expected = self._expected(given, run.level, meter)
        if is_special and not all(np.isfinite(a.astype(np.float64)).all() for a in expected):
            is_special, given = False, self._given(run.seed)
            expected = self._expected(given, run.level, meter)
        results = interpreter.outputs(self._build, given, run, self.chip, self.axes, meter)
        inputs = [array.dtype for array in given]
        natural = self._natural_errors(given, expected)
        others = self._own_errors(given, expected), [NO_ERRORS if signs else few] * len(expected)
        allowed = [
            tolerance.allowed_errors([*inputs, want.dtype], self._length, usual, *more)
            for want, usual, *more in zip(expected, natural, *others, strict=True)
        ]
        if is_special:  # equal numbers are rounded alike: the mean is of random ones
            allowed = [each._replace(mean_share=0.0) for each in allowed]
        difference = compare(results, expected, allowed)
        is_hit = is_special and difference.check
        return replace(difference, check=FailedCheck.SPECIAL) if is_hit else difference

    def _given(self, seed: int, change: Change = np.positive) -> list[Any]:
        rngs = (np.random.default_rng([seed, n]) for n in count())
        return [values(array, rng, change) for array, rng in zip(self.arrays, rngs, strict=False)]

    @property
    def _hang_together(self) -> bool:
        """Whether the declaration gives numbers."""
        return any(a.values is not None and "float" in a.dtype for a in self.arrays)

    @cached_property
    def _primitives(self) -> set[str]:
        """Of the reference, or of the kernel."""
        import jax

        plain = self.jaxpr
        if self.reference is not None:
            plain = jax.make_jaxpr(self.reference)(*reader.abstract(self.arrays))
        return {eqn.primitive.name for eqn in walked(plain)}

    def overflow(self, level: ProofLevel, meter: WorkMeter) -> Difference:
        """Of numbers that the reference bears by the maximum that it takes, and only by that."""
        given = self._large_numbers()
        for easiest in (ProofLevel.PLAIN, level) if given and self.reference else ():
            run = self.run(0, EAGER, easiest)
            with suppress(NotRunError, WrongRunError, OverBudgetError):
                results = interpreter.outputs(self._build, given, run, self.chip, self.axes, meter)
                return overflow(results, _outputs(self.reference, given))
        return Difference()

    def _large_numbers(self) -> list[Any]:
        """The least that a softmax without its maximum does not bear; none where the reference
        takes no maximum, or the declaration gives numbers that hang together."""
        takes_maximum = "reduce_max" in self._primitives
        if self.kernel.reference is None or not takes_maximum or self._hang_together:
            return []
        with suppress(Exception):
            for times in _LARGE:
                given = self._given(0, partial(np.multiply, times))
                naive = _outputs(without_maximum(self.kernel.reference(self.problem)), given)
                if overflow(naive, _outputs(self.reference, given)).check:
                    return given
        return []

    def remedy(self, difference: Difference) -> str:
        """For who knows that what is declared rounds as much, or that such numbers do not occur."""
        if difference.check is FailedCheck.SPECIAL:
            return " for numbers of which many are equal, or zero; `values` can say which there are"
        if difference.check is not FailedCheck.PRECISION or self.baseline is not None:
            return ""
        return "; a `baseline` in its own dtypes says how far off plain XLA is"

    def _expected(self, given: Sequence[Any], level: ProofLevel, meter: WorkMeter) -> list[Any]:
        """Of the reference, or of the default config where there is none. Raises ``NotRunError``
        where that cannot be had."""
        if self.reference is not None:
            return _outputs(self.reference, given)
        config = fitting_default(self.kernel, self.problem, self.chip)
        build = original_build(self.kernel)
        plain = self.run(0, EAGER, level)
        try:
            return interpreter.outputs(
                lambda: build(self.problem, config),
                given,
                plain,
                self.chip,
                self.axes,
                meter,
            )
        except (NotRunError, WrongRunError) as error:
            raise NotRunError(
                f"the default config, {config}, to compare with (declare a `reference`): {error}"
            ) from error

    def _build(self) -> Callable[..., Any]:
        return self.kernel.build(self.problem, self.config)

    @cached_property
    def _length(self) -> int:
        if self.kernel.reference is None:
            return max(size for array in self.arrays for size in (1, *array.shape))
        return tolerance.reduction_length(
            self.kernel.reference(self.problem), reader.abstract(self.arrays)
        )

    def _natural_errors(self, given: Sequence[Any], expected: Sequence[Any]) -> list[Errors | None]:
        """By how much plain XLA in the problem's own dtypes is off, by output; None where the
        declaration has no baseline."""
        if self.baseline is None:
            return [None] * len(expected)
        results = _outputs(self.baseline, given)
        return [errors_of(got, want) for got, want in zip(results, expected, strict=True)]

    def _own_errors(self, given: Sequence[Any], expected: Sequence[Any]) -> list[Errors]:
        """What the reference rounds to half the bits, and does not where it has all of them."""
        with suppress(Exception):
            pairs = zip(expected, _outputs(self.wider, given), strict=True)
            return [errors_of(want, exact.astype(want.dtype), _OWN) for want, exact in pairs]
        return [NO_ERRORS] * len(expected)


def fitting_default(kernel: Kernel, problem: Problem, chip: Chip | None) -> Config:
    """The default config; a block that does not divide a small dimension, or cuts it into many, is
    as long as that: interpret mode takes milliseconds for each."""
    axes = kernel.default_axes(problem, None if chip is None else chip.value)
    for axis in kernel.axes:
        size = axes.get(axis.name)
        extent = 0 if axis.dim is None else problem[axis.dim]
        if type(size) is int and size > 0 and (extent % size or extent > _MOST_BLOCKS * size):
            axes[axis.name] = extent
    return make_config(axes, grid_order=kernel.grid)


def _outputs(function: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
    import jax

    return [np.asarray(array) for array in jax.tree_util.tree_leaves(function(*given))]
