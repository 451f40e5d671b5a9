"""A config on one small problem: what is run, with which numbers, and how far off it may be."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.changes.rewriting import original_build
from autotune.compiling.child.chips import told_of
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.blocks import memory_space
from autotune.compiling.child.trace.calls import walked
from autotune.compiling.child.trace.pallas_call import Call
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.compiling.child.verify import interpreter, tolerance
from autotune.compiling.child.verify.compare import Difference, compare, errors_of, overflow
from autotune.compiling.child.verify.grids import in_float32, without_maximum
from autotune.compiling.child.verify.interpreter import EAGER, NotRunError, Run, WrongRunError
from autotune.compiling.child.verify.numbers import Change, special, values
from autotune.compiling.child.verify.tolerance import MOST_NATURAL, NO_ERRORS, Errors
from autotune.compiling.child.verify.work import OverBudgetError, WorkMeter, work_of
from autotune.declaring.kernel import Kernel
from autotune.domain.evidence import FailedCheck, ProofLevel
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem, make_config

_SPECIAL = 2  # the run with numbers that random ones never are
_OWN = 1.5  # times what the reference rounds itself
_LARGE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # times the usual numbers: exp(89) is infinite
_MOST_NAN = 0.5  # share of an output: what is NaN on both sides agrees
_MOST_BLOCKS = 4  # of a default config that is the reference, on an axis


class ReducedCase:
    """A config on one small problem; what does not depend on the numbers is made once."""

    def __init__(self, kernel: Kernel, problem: Problem, config: Config, chip: Chip | None) -> None:
        import jax

        self.kernel, self.problem, self.config, self.chip = kernel, problem, config, chip
        self.arrays, self.axes = kernel.inputs(problem), kernel.mesh_axes(problem)
        self._interpreted = partial(interpreter.outputs, chip=chip, axes=self.axes)
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

    @property
    def operations(self) -> list[str]:
        """The names of all in the kernel, in the order of the program."""
        return [eqn.primitive.name for eqn in walked(self.jaxpr)]

    @cached_property
    def _calls(self) -> list[Call]:
        """None where the kernel cannot be looked into."""
        with suppress(Exception):
            return reader.calls(self.jaxpr, self.arrays)
        return []

    @property
    def buffers(self) -> list[int]:
        """Elements of what the calls have in VMEM, blocks among it."""
        bodies = (open_jaxpr(call.eqn.params["jaxpr"]) for call in self._calls)
        refs = [var.aval for body in bodies for var in body.invars]
        return [prod(ref.shape) for ref in refs if memory_space(ref) in ("vmem", "default")]

    @cached_property
    def quantised(self) -> tuple[Errors, bool]:
        return tolerance.quantised_errors(self.jaxpr)

    def run(
        self, seed: int, dmas: str, level: ProofLevel, remains: dict[Any, Any] | None = None
    ) -> Run:
        """As the kernel says: outputs that nobody reads, and whether it does without checks."""
        unread = self._calls[0].unread_buffers() if len(self._calls) == 1 else ()
        unchecked = any(call.is_unchecked for call in self._calls)
        return Run(seed, dmas, unread, level, unchecked, {} if remains is None else remains)

    @property
    def work(self) -> float:
        """Of one run; each device of a mesh does its own."""
        return prod(self.axes.values()) * work_of(self._calls)

    @property
    def compared_work(self) -> float:
        """With that of the default config, where there is no reference."""
        return self.work * (1 if self.reference is not None else 2)

    @property
    def can_overflow(self) -> bool:
        """Whether the reference takes a maximum, and the declaration gives no numbers that hang
        together."""
        return bool(self.reference) and "reduce_max" in self.primitives and not self._hang_together

    def compared(self, run: Run, meter: WorkMeter) -> Difference:
        """With the numbers of the run's seed. Raises as ``interpreter.outputs`` does."""
        few, keeps_signs = self.quantised
        signs = few.share > 0.0 and keeps_signs and run.seed % 2 == 1
        is_special = run.seed == _SPECIAL and not few.share and not self._hang_together
        change = special(self.primitives) if is_special else np.sign if signs else np.positive
        given = self._given(run.seed, change)
        expected = self._expected(given, run, meter)
        if is_special and not all(np.isfinite(a.astype(np.float64)).all() for a in expected):
            is_special, given = False, self._given(run.seed)
            expected = self._expected(given, run, meter)
        results = self._interpreted(self._build, given, run, meter=meter)
        natural = self._natural_errors(given, expected)
        others = self._own_errors(given, expected), [NO_ERRORS if signs else few] * len(expected)
        allowed_errors = partial(tolerance.allowed_errors, has_reference=self.reference is not None)
        allowed = [
            allowed_errors([a.dtype for a in (*given, want)], self._length, usual, *more)
            for want, usual, *more in zip(expected, natural, *others, strict=True)
        ]
        if is_special:
            allowed = self._of_equal_numbers(allowed, given, expected)
        difference = compare(results, expected, allowed)
        nan_shares = [np.isnan(a.astype(np.float64)).mean() for a in expected if a.size]
        if not difference.check and max(nan_shares, default=0.0) > _MOST_NAN:
            raise NotRunError(
                "most of a result is NaN for random numbers, as it should be: `values`, or a step "
                "in the function such as jax.nn.sigmoid, brings arguments into their range"
            )
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
    def primitives(self) -> set[str]:
        """Of the reference, or of the kernel where it has none."""
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
                results = self._interpreted(self._build, given, run, meter=meter)
                return overflow(results, _outputs(self.reference, given))
        return Difference()

    def _large_numbers(self) -> list[Any]:
        """The least that a softmax without its maximum does not bear; none where there is none."""
        reference = self.kernel.reference
        if reference is None or not self.can_overflow:
            return []
        with suppress(Exception):
            for times in _LARGE:
                given = self._given(0, partial(np.multiply, times))
                naive = _outputs(without_maximum(reference(self.problem)), given)
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

    def _expected(self, given: Sequence[Any], run: Run, meter: WorkMeter) -> list[Any]:
        """Of the reference, or of the default config where there is none. Raises ``NotRunError``
        where that cannot be had, or what is wrong with the run itself."""
        if self.reference is not None:
            return _outputs(self.reference, given)
        config = fitting_default(self.kernel, self.problem, self.chip)
        plain = self.run(0, EAGER, run.level)
        try:
            default = partial(original_build(self.kernel), self.problem, config)
            return self._interpreted(default, given, plain, meter=meter)
        except (NotRunError, WrongRunError) as error:
            self._interpreted(self._build, given, run, meter=meter)  # its own faults first
            reason = f"the default config {config} to compare with (declare a `reference`): {error}"
            raise NotRunError(reason) from error

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

    def _own_errors(
        self, given: Sequence[Any], expected: Sequence[Any], times: float = _OWN
    ) -> list[Errors]:
        """What the reference rounds to half the bits, and does not where it has all of them."""
        with suppress(Exception):
            pairs = zip(expected, _outputs(self.wider, given), strict=True)
            return [errors_of(want, exact.astype(want.dtype), times) for want, exact in pairs]
        return [NO_ERRORS] * len(expected)

    def _of_equal_numbers(
        self, allowed: Sequence[Errors], given: Sequence[Any], expected: Sequence[Any]
    ) -> list[Errors]:
        """They are rounded alike: the mean is of random ones. A kernel may scale arguments first,
        as queries by log2(e): an element may be off as far as if all were a rounding larger."""
        units = [1.0 + tolerance.unit_roundoff([x.dtype]) for x in given]
        wide = [x.astype("f4") * by if by > 1.0 else x for x, by in zip(given, units, strict=True)]
        pairs = zip(allowed, self._own_errors(wide, expected, 1.0), strict=True)
        return [Errors(max(each.share, min(off.share, MOST_NATURAL)), 0.0) for each, off in pairs]


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
