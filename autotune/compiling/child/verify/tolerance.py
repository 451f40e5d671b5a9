"""How far a right result may be from the reference, by dtype and reduction length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod, sqrt
from typing import Any, NamedTuple

from autotune.compiling.child.trace.calls import inner_jaxprs, walked
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import bits

# A bfloat16 kernel rounds its result, its reference too, and attention its weights in between;
# over a million elements the largest of three such errors is below five roundings.
_ROUNDINGS = 5.0

# Sums of n products in another order differ by about sqrt(n) roundings of the accumulator, relative
# to the size of the sum (a random walk: Higham, Accuracy and Stability, section 2.8); an online
# softmax rescales its sums a few times more.
_ACCUMULATOR_ROUNDINGS = 16.0
_ACCUMULATOR = 2.0**-24  # float32

# A rounding is off by 0.4 units in the mean. A kernel that sums in bfloat16 rounds at every block:
# 0.7 units with three. Attention that rounds its weights, as most do, is off by 0.6: that is known
# where there is a baseline in the same dtypes to compare with.
_MEAN_ROUNDINGS = 0.5
_MEAN_ROUNDINGS_UNKNOWN = 1.0
_NATURAL = 2.0
_BOTH = 2.0  # a default config that is the standard rounds as much as what is compared with it
# An error of one element of the baseline is allowed everywhere: where that is this large, it must
# not hide an element that was never written, which is off by about half.
MOST_NATURAL = 0.1
_MOST_TIMES = 4.0  # what is allowed without

# What is scaled by the largest number of a block and rounded to a few bits is off by up to half a
# step; that number is about four times the usual one. Two ways to cut blocks differ by less than
# 1.5 such roundings in the mean, and eight of one element.
_FEW_BITS = 8
_LARGEST = 4.0
_QUANTISED, _QUANTISED_MEAN = 8.0, 1.5
_MIXING = ("dot_general", "exp", "exp2", "logistic", "tanh", "erf", "sin", "cos", "reduce_sum")


class Errors(NamedTuple):
    """Of an output, found or allowed. ``share``: largest error of an element over (|reference| +
    root mean square of its row or of the whole, whichever is larger). ``mean_share``: of all
    elements together, root mean square over root mean square. Both are 0.0 where integers are
    allowed: they are exact."""

    share: float
    mean_share: float


NO_ERRORS = Errors(share=0.0, mean_share=0.0)


def allowed_errors(
    dtypes: Iterable[Any],
    length: int,
    natural: Errors | None,
    *others: Errors,
    has_reference: bool = True,
) -> Errors:
    """``dtypes`` of inputs and output: the coarsest floating one decides. ``length``: of the
    longest reduction. ``natural``: by what plain XLA in the same dtypes is off, None where that is
    not known. Differences of nearly equal numbers (the gradient of attention in the first rows of a
    causal mask) are further off than roundings say, in plain XLA too. ``others`` are allowed.
    Without a reference two configs of the kernel are compared: each may be off so far in the mean.
    """
    unit = unit_roundoff(dtypes)
    if not unit:
        return NO_ERRORS
    walk = _ACCUMULATOR_ROUNDINGS * _ACCUMULATOR * sqrt(length)
    rounded = (_MEAN_ROUNDINGS_UNKNOWN if natural is None else _MEAN_ROUNDINGS) * unit + walk
    rounded *= 1.0 if has_reference else _BOTH
    usual = natural or NO_ERRORS
    least = _ROUNDINGS * unit + walk
    allowed = Errors(
        share=max(least, min(_NATURAL * usual.share, _MOST_TIMES * least, MOST_NATURAL)),
        mean_share=max(rounded, _NATURAL * usual.mean_share),
    )
    return Errors(*map(max, zip(allowed, *others, strict=True)))


def unit_roundoff(dtypes: Iterable[Any]) -> float:
    """Half the spacing of numbers from 1 on, of the coarsest floating dtype; 0.0 without one."""
    import jax.numpy as jnp

    floating = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)]
    return max((float(jnp.finfo(d).eps) / 2 for d in floating), default=0.0)


def quantised_errors(jaxpr: Any) -> tuple[Errors, bool]:
    """By what results may differ where a function scales blocks and rounds them to a few bits; and
    whether ones and minus ones are not rounded: nothing has mixed them before."""
    unit, is_mixed, keeps_signs = 0.0, False, True
    for eqn in walked(jaxpr):
        quantum = _quantum(eqn)
        unit, keeps_signs = max(unit, quantum), keeps_signs and not (quantum and is_mixed)
        is_mixed = is_mixed or eqn.primitive.name in _MIXING
    return Errors(share=_QUANTISED * unit, mean_share=_QUANTISED_MEAN * unit), keeps_signs


def _quantum(eqn: Any) -> float:
    import jax.numpy as jnp

    if eqn.primitive.name != "convert_element_type":
        return 0.0
    wide, few = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    if not jnp.issubdtype(wide, jnp.floating) or not bits(str(few)) <= _FEW_BITS < bits(str(wide)):
        return 0.0
    if jnp.issubdtype(few, jnp.integer):
        return _LARGEST / (2.0 * float(jnp.iinfo(few).max))
    return unit_roundoff([few])


def reduction_length(function: Callable[..., Any], given: Sequence[Any]) -> int:
    """Elements of the longest sum in a plain JAX function; at least 1."""
    import jax

    return max(_lengths(jax.make_jaxpr(function)(*given)), default=1)


def _lengths(jaxpr: Any) -> Iterator[int]:
    for eqn in open_jaxpr(jaxpr).eqns:
        shape = getattr(eqn.invars[0].aval, "shape", ()) if eqn.invars else ()
        numbers = eqn.params.get("dimension_numbers")
        if eqn.primitive.name == "dot_general":
            yield prod(shape[d] for d in numbers[0][0])
        elif eqn.primitive.name in ("ragged_dot_general", "ragged_dot"):
            yield max(shape)
        elif eqn.primitive.name.startswith("reduce_") and "axes" in eqn.params:
            yield prod(shape[d] for d in eqn.params["axes"])
        elif eqn.primitive.name in ("scatter-add", "scatter_add"):  # of `jax.ops.segment_sum`
            yield prod(eqn.invars[1].aval.shape[:-1])
        elif eqn.primitive.name.startswith("cum"):
            yield shape[eqn.params["axis"]]
        for inner, turns in inner_jaxprs(eqn, [None]):
            yield from ((turns or 1) * length for length in _lengths(inner))
