"""The trials of a search as a picture for notebooks."""

from collections.abc import Sequence
from math import log10

from autotune.domain.record import Trial
from autotune.wording.units import micros

_WIDTH, _HEIGHT, _MARGIN = 560, 160, 12


def trials_svg(trials: Sequence[Trial], winner: Trial | None) -> str:
    """Estimated time by number on a logarithmic scale, the best so far as a line; empty where no
    trial has a time."""
    timed = [(t.number, t.estimate.time_us, t) for t in trials if t.estimate]
    if not timed:
        return ""
    low, high = (log10(pick(us for _, us, _ in timed)) for pick in (min, max))
    last = max(number for number, _, _ in timed)

    def x(number: int) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * number / max(last, 1)

    def y(time_us: float) -> float:
        share = (log10(time_us) - low) / (high - low or 1.0)
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * share

    points, best, line = [], float("inf"), []
    for number, time_us, trial in sorted(timed, key=lambda row: row[0]):
        best = min(best, time_us)
        line.append(f"{x(number):.1f},{y(best):.1f}")
        colour = "#d62728" if trial is winner else "#1f77b4"
        points.append(
            f'<circle cx="{x(number):.1f}" cy="{y(time_us):.1f}" r="3" fill="{colour}">'
            f"<title>trial {number}: {micros(time_us)}</title></circle>"
        )
    return (
        f'<svg role="img" aria-label="estimated time by trial, from {micros(10**low)} to '
        f'{micros(10**high)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'xmlns="http://www.w3.org/2000/svg"><polyline points="{" ".join(line)}" fill="none" '
        f'stroke="#999"/>{"".join(points)}</svg>'
    )
