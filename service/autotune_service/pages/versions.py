"""The same kernel, problem and chip under every toolchain: time, VMEM, what no longer compiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain.browsing import SameConfig, SearchedKey
from autotune.domain.problem import Config
from autotune.wording.outcome import BEFORE_GATE
from autotune.wording.units import micros
from autotune_service.pages.call import PageCall
from autotune_service.pages.candidates import (
    ESTIMATED,
    LEAST_US,
    ShownTrial,
    candidate,
    escaped,
    fastest,
)
from autotune_service.pages.filters import by_order, newest_first
from autotune_service.pages.plots import Figure, axis, described, lines, time_axis
from autotune_service.pages.problems import ProblemRow
from autotune_service.pages.problems import rows as rows_of

_FASTEST = 8  # of each toolchain, and as many of those that failed
_MOST_CONFIGS = 60


_FIGURES: dict[str, Callable[[ProblemRow], float | None]] = {
    "best": lambda row: row.searched.best_us,
    "default": lambda row: row.searched.default_us,
    "served": lambda row: row.record.estimate.time_us if row.record else None,
    "trials": lambda row: row.searched.trials,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """A config and its trial under each toolchain, None where it was not tried."""

    config: Config
    cells: tuple[ShownTrial | None, ...]

    @property
    def broke(self) -> bool:
        """Whether it has a time under one and failed under another."""
        groups = {cell.group for cell in self.cells if cell}
        return ESTIMATED in groups and len(groups) > 1

    @property
    def fastest_us(self) -> float:
        return next((c.time_us or 0.0 for c in fastest(filter(None, self.cells))), float("inf"))


def show(call: PageCall) -> dict[str, Any]:
    """The same kernel, problem and chip under every toolchain that was searched with."""
    searched = call.searched()
    shown, same = columns(call, searched)
    return {
        "searched": searched,
        "columns": shown,
        "order": (order := call.query.order(_FIGURES)),
        "listed": by_order(shown, _FIGURES[order.removeprefix("-")], order) if order else shown,
        "rows": rows(same, shown),
        "plot": _times(shown),
    }


def columns(call: PageCall, searched: SearchedKey) -> tuple[list[ProblemRow], Sequence[SameConfig]]:
    """The newest toolchain first; and the configs that they have in common."""
    others = call.browse.other_toolchains(searched.key)
    order = newest_first({other.key.toolchain for other in others})
    others = sorted(others, key=lambda o: (order.index(o.key.toolchain), -o.id))
    return rows_of(call, others), call.browse.same_configs([o.id for o in others], _FASTEST)


def rows(same: Sequence[SameConfig], shown: Sequence[ProblemRow]) -> list[ConfigRow]:
    """Those that broke first, then the fastest."""
    made = []
    for config in same:
        pairs = [(config.trials.get(column.searched.id), column.record) for column in shown]
        cells = tuple(candidate(trial, record) if trial else None for trial, record in pairs)
        made.append(ConfigRow(config=config.config, cells=cells))
    made.sort(key=lambda row: (not row.broke, row.fastest_us))
    return made[:_MOST_CONFIGS]


def _times(shown: Sequence[ProblemRow]) -> Figure | None:
    """The fastest and the default under each toolchain, the oldest first."""
    old_first = [column.searched for column in reversed(shown)]
    sources = {searched.key.fingerprint for searched in old_first}
    names = [
        f"{escaped(s.key.toolchain.label)}<br>libtpu {escaped(s.key.toolchain.libtpu)}"
        + (f"<br>kernel {escaped(s.key.fingerprint[:6])}" if len(sources) > 1 else "")
        for s in old_first
    ]
    known = [us for s in old_first for us in (s.best_us, s.default_us) if us and us >= LEAST_US]
    if len(shown) < 2 or not known:
        return None
    best = _line(f"fastest, {BEFORE_GATE}", names, [s.best_us for s in old_first], "@best", "star")
    default = _line("default", names, [s.default_us for s in old_first], "@default", "square")
    layout = {"xaxis": axis("toolchain", type="category"), "yaxis": time_axis(known), "height": 340}
    return described({"data": [best, default], "layout": layout})


def _line(
    name: str, x: Sequence[str], times: Sequence[float | None], colour: str, symbol: str
) -> Figure:
    return lines(
        name,
        x,
        times,
        mode="lines+markers",
        line={"color": colour},
        marker={"color": colour, "symbol": symbol, "size": 12},
        text=[micros(us) for us in times],
        hovertemplate=name + ": %{text}, estimated<extra></extra>",
    )
