"""The same kernel, problem and chip under every toolchain: time, VMEM, what no longer compiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.browsing import NumberedTrial, SameConfig, SearchedKey
from autotune.domain.config import Config
from autotune.domain.record import Record
from autotune.wording.units import error_bar, mebibytes, micros
from autotune_db.browse import SqlBrowse
from autotune_service.pages.candidates import ESTIMATED, GROUPS, LEAST_US, escaped, group_of
from autotune_service.pages.overview import newest_first
from autotune_service.pages.plots import Figure, time_axis
from autotune_service.pages.speed import speed
from autotune_service.snapshot_cache import IndexedSnapshot

FASTEST = 8  # of each toolchain, and as many of those that failed
_MOST_CONFIGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainColumn:
    """One toolchain. ``changed``: another source of the kernel than that of the key asked for."""

    searched: SearchedKey
    record: Record | None
    changed: bool

    @property
    def measured_us(self) -> float | None:
        """Of what is published."""
        return speed(self.record).measured_us if self.record else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainCell:
    """``group`` is empty where the config was not tried."""

    id: int | None = None
    group: str = ""
    colour: str = ""
    text: str = "not tried"
    vmem: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """A config under each toolchain. ``broke``: it has a time under one and failed under
    another."""

    config: Config
    cells: tuple[ToolchainCell, ...]
    broke: bool


def columns(
    browse: SqlBrowse, searched: SearchedKey, snapshot: IndexedSnapshot
) -> list[ToolchainColumn]:
    """The newest toolchain first."""
    found = browse.other_toolchains(searched.key)
    order = newest_first({one.key.toolchain for one in found})
    own = searched.key.fingerprint
    return [
        ToolchainColumn(
            searched=one, record=snapshot.index.exact(one.key), changed=one.key.fingerprint != own
        )
        for one in sorted(found, key=lambda one: (order.index(one.key.toolchain), -one.id))
    ]


def lines(found: Sequence[SameConfig], shown: Sequence[ToolchainColumn]) -> list[ConfigRow]:
    """Those that broke first, then the fastest."""
    made = [_line(one, shown) for one in found]
    fastest = {id(line): _fastest(one) for line, one in zip(made, found, strict=True)}
    made.sort(key=lambda line: (not line.broke, fastest[id(line)]))
    return made[:_MOST_CONFIGS]


def _fastest(one: SameConfig) -> float:
    times = [n.trial.estimate.time_us for n in one.trials.values() if n.trial.estimate]
    return min(times, default=float("inf"))


def _line(one: SameConfig, shown: Sequence[ToolchainColumn]) -> ConfigRow:
    cells = tuple(_cell(one.trials.get(column.searched.id)) for column in shown)
    groups = {cell.group for cell in cells if cell.group}
    return ConfigRow(config=one.config, cells=cells, broke=ESTIMATED in groups and len(groups) > 1)


def _cell(one: NumberedTrial | None) -> ToolchainCell:
    if one is None:
        return ToolchainCell()
    outcome = one.trial.outcome
    group = group_of(outcome.kind)
    colour = GROUPS[group][0].removeprefix("@")
    e = one.trial.estimate
    if e is None:
        return ToolchainCell(
            id=one.id, group=group, colour=colour, text=outcome.kind, why=outcome.reason
        )
    return ToolchainCell(
        id=one.id,
        group=group,
        colour=colour,
        text=f"{micros(e.time_us)} {error_bar(e.error)}",
        vmem=f"{mebibytes(e.vmem_used_bytes)} VMEM",
    )


def times(shown: Sequence[ToolchainColumn]) -> Figure | None:
    """The fastest and the default under each toolchain, the oldest first."""
    old_first = [column.searched for column in reversed(shown)]
    sources = {one.key.fingerprint for one in old_first}
    names = [
        f"jax {escaped(s.key.toolchain.jax)}<br>libtpu {escaped(s.key.toolchain.libtpu)}"
        + (f"<br>kernel {escaped(s.key.fingerprint[:6])}" if len(sources) > 1 else "")
        for s in old_first
    ]
    known = [us for s in old_first for us in (s.best_us, s.default_us) if us and us >= LEAST_US]
    if len(shown) < 2 or not known:
        return None
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": names,
            "y": values,
            "line": {"color": colour},
            "marker": {"color": colour, "symbol": sign, "size": 12},
            "text": [micros(us) for us in values],
            "hovertemplate": name + ": %{text}, estimated<extra></extra>",
        }
        for name, colour, sign, values in (
            ("fastest", "@best", "star", [s.best_us for s in old_first]),
            ("default", "@default", "square", [s.default_us for s in old_first]),
        )
    ]
    layout = {
        "xaxis": {"type": "category"},
        "yaxis": time_axis("estimated time (µs)", known),
        "height": 340,
    }
    return {"data": data, "layout": layout}
