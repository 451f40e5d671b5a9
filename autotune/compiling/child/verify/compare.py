"""Are the outputs those of the reference?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.compiling.child.verify.tolerance import Errors
from autotune.domain.evidence import FailedCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is wrong (``check`` empty: nothing), and the largest error in units of what is
    allowed."""

    check: FailedCheck = FailedCheck.NONE
    reason: str = ""
    error: float = 0.0
    where: str = ""


def compare(
    results: Sequence[Any], expected: Sequence[Any], allowed: Sequence[Errors]
) -> Difference:
    """NumPy arrays of a kernel and of its reference, output by output."""
    if len(results) != len(expected):
        reason = f"{len(results)} outputs, the reference has {len(expected)}"
        return Difference(check=FailedCheck.OUTPUTS, reason=reason)
    worst = Difference()
    for number, (got, want, limit) in enumerate(zip(results, expected, allowed, strict=True)):
        other = _other_type(number, got, want)
        if other:
            return Difference(check=FailedCheck.OUTPUTS, reason=other)
        difference = _of_output(number, got, want, limit)
        if difference.check:
            return difference
        worst = max(worst, difference, key=lambda d: d.error)
    return worst


def overflow(results: Sequence[Any], expected: Sequence[Any]) -> Difference:
    """Where a result is no number and the reference is one."""
    for number, (got, want) in enumerate(zip(results, expected, strict=True)):
        a, b = got.astype(np.float64), want.astype(np.float64)
        lost = np.argwhere(np.isfinite(b) & ~np.isfinite(a))
        if got.shape == want.shape and len(lost):
            at = tuple(map(int, lost[0]))
            where = f"output {number} at {at}"
            reason = f"{where} is {got[at]} instead of {want[at]} for large numbers"
            return Difference(check=FailedCheck.OVERFLOW, reason=reason, where=where)
    return Difference()


def errors_of(got: Any, want: Any, times: float = 1.0) -> Errors:
    """Of what both have as finite numbers, so many times."""
    finite = np.isfinite(got.astype(np.float64)) & np.isfinite(want.astype(np.float64))
    shares = np.where(finite, _errors(got, want, 1.0), 0.0)
    mean_share = times * _mean_error(got, want)
    return Errors(share=times * float(shares.max(initial=0.0)), mean_share=mean_share)


def _mean_error(got: Any, want: Any) -> float:
    """Root mean square of the difference over that of the reference."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    size = np.sqrt(np.mean(b[known] ** 2)) if known.any() else 0.0
    return float(np.sqrt(np.mean((a[known] - b[known]) ** 2)) / size) if size else 0.0


def _other_type(number: int, got: Any, want: Any) -> str:
    if got.shape != want.shape:
        return f"output {number} has the shape {got.shape}, the reference {want.shape}"
    if got.dtype != want.dtype:
        return f"output {number} is {got.dtype}, the reference {want.dtype}"
    return ""


def _of_output(number: int, got: Any, want: Any, allowed: Errors) -> Difference:
    if not got.size:
        return Difference()
    errors = _errors(got, want, allowed.share)
    at = np.unravel_index(int(np.argmax(errors)), errors.shape)
    error = float(errors[at])
    where = f"output {number} at ({', '.join(str(int(i)) for i in at)})"
    if not error <= 1.0:
        check = (
            FailedCheck.UNINITIALISED
            if np.isnan(got[at].astype(np.float64))
            else FailedCheck.VALUES
        )
        reason = f"{where} is {got[at]} instead of {want[at]}"
        return Difference(check=check, reason=reason, error=error, where=where)
    mean = _mean_error(got, want)
    lost = mean / allowed.mean_share if allowed.mean_share else 0.0
    if lost > 1.0:
        reason = (
            f"output {number} has lost precision: its elements are off by "
            f"{mean:.2%} in the mean, {allowed.mean_share:.2%} is allowed"
        )
        return Difference(check=FailedCheck.PRECISION, reason=reason, error=lost, where=where)
    return Difference(error=max(error, lost), where=where)


def _typical_size(want: Any) -> Any:
    """Root mean square of the row that an element is in, at least that of the whole output: the
    first rows of causal attention are larger than the others, and so are their errors."""
    whole = np.sqrt(np.mean(want**2))
    if want.ndim < 2:
        return whole
    return np.maximum(whole, np.sqrt(np.mean(want**2, axis=-1, keepdims=True)))


def _errors(got: Any, want: Any, share: float) -> Any:
    """In units of what is allowed; NaN where a number is expected counts as infinite."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        size = np.abs(b) + _typical_size(np.where(np.isfinite(b), b, 0.0))
        room = np.full_like(b, 0.5) if share == 0.0 else share * size + 1e-30
        errors = np.where(a == b, 0.0, np.abs(a - b) / room)
    errors = np.where(np.isnan(a) & np.isnan(b), 0.0, errors)
    return np.where(np.isnan(errors), np.inf, errors)
