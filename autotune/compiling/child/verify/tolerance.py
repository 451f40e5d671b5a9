"""How far a right result may be from the reference, by dtype and reduction length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

from autotune.compiling.child.trace.calls import inner_jaxprs
from autotune.compiling.child.trace.scalars import open_jaxpr

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
# An error of one element of the baseline is allowed everywhere: where that is this large, it must
# not hide an element that was never written, which is off by about half.
_MOST_NATURAL = 0.1
_MOST_TIMES = 4.0  # what is allowed without


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of an output, found or allowed. ``share``: largest error of an element over (|reference| +
    root mean square of its row or of the whole, whichever is larger). ``mean_share``: of all
    elements together, root mean square over root mean square. Both are 0.0 where integers are
    allowed: they are exact."""

    share: float
    mean_share: float


def allowed_errors(dtypes: Iterable[Any], length: int, natural: Errors | None) -> Errors:
    """``dtypes`` of inputs and output: the coarsest floating one decides. ``length``: of the
    longest reduction. ``natural``: by what plain XLA in the same dtypes is off, None where that is
    not known. Differences of nearly equal numbers (the gradient of attention in the first rows of a
    causal mask) are further off than roundings say, in plain XLA too."""
    unit = unit_roundoff(dtypes)
    if not unit:
        return Errors(share=0.0, mean_share=0.0)
    walk = _ACCUMULATOR_ROUNDINGS * _ACCUMULATOR * sqrt(length)
    rounded = (_MEAN_ROUNDINGS_UNKNOWN if natural is None else _MEAN_ROUNDINGS) * unit + walk
    usual = Errors(share=0.0, mean_share=0.0) if natural is None else natural
    least = _ROUNDINGS * unit + walk
    return Errors(
        share=max(least, min(_NATURAL * usual.share, _MOST_TIMES * least, _MOST_NATURAL)),
        mean_share=max(rounded, _NATURAL * usual.mean_share),
    )


def unit_roundoff(dtypes: Iterable[Any]) -> float:
    """Half the spacing of numbers from 1 on, of the coarsest floating dtype; 0.0 without one."""
    import jax.numpy as jnp

    floating = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)]
    return max((float(jnp.finfo(d).eps) / 2 for d in floating), default=0.0)


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
        elif eqn.primitive.name.startswith("cum"):
            yield shape[eqn.params["axis"]]
        for inner, turns in inner_jaxprs(eqn, [None]):
            yield from ((turns or 1) * length for length in _lengths(inner))
