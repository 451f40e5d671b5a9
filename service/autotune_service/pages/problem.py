"""The page of a key: all that its search has found, as figures and words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec

from autotune.domain.browsing import Improvement, NumberedTrial, SearchedKey
from autotune.domain.comparison import NamedEstimate
from autotune.domain.config import Config
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.domain.record import Record
from autotune.domain.refusals import Refusals
from autotune.estimating.cost_model.comparison import compare
from autotune.wording.comparison import why
from autotune.wording.config import parts_of
from autotune.wording.facts import FACTS, part_us
from autotune.wording.publication import not_served
from autotune.wording.units import micros
from autotune_db.browse import SqlBrowse
from autotune_service.pages.axes import Axes, axes
from autotune_service.pages.candidates import (
    DEFAULT,
    ESTIMATED,
    GROUPS,
    LEAST_US,
    WINNER,
    ShownTrial,
    candidates,
    group_of,
)
from autotune_service.pages.filters import Query
from autotune_service.pages.heat import heat_map
from autotune_service.pages.measured import MeasuredRow, rows
from autotune_service.pages.parallel import parallel
from autotune_service.pages.plots import Figure, over_time, over_trials, vmem
from autotune_service.pages.ranges import PartBar, TimeLine, bars, time_lines
from autotune_service.pages.roof import roofline
from autotune_service.pages.slices import AxisSlice, slices
from autotune_service.pages.speed import Speed, speed

FASTEST, OTHERS = 300, 100  # trials drawn; a search of a hundred trials is drawn whole

Table = list[tuple[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProblem:
    """What the database knows of a key."""

    searched: SearchedKey
    refusals: Refusals | None
    drawn: Sequence[NumberedTrial]
    steps: Sequence[Improvement]
    default: NumberedTrial | None
    winner: NumberedTrial | None
    newest: int


def find(browse: SqlBrowse, key_id: int, record: Record | None) -> StoredProblem | None:
    """None: there is no such key."""
    searched = browse.searched(key_id)
    if searched is None:
        return None
    winner = browse.with_config(key_id, record.config) if record else None
    return StoredProblem(
        searched=searched,
        refusals=browse.refusals(key_id),
        drawn=browse.fastest_and_others(key_id, FASTEST, OTHERS),
        steps=browse.best_so_far(key_id),
        default=browse.by_number(key_id, 0),
        winner=winner,
        newest=browse.newest(key_id),
    )


@dataclass(slots=True, kw_only=True)
class ProblemView:
    """``why``: the winner against the default, in words. ``best``: why the fastest trial is not
    what is served; empty where it is. ``bars``: the parts of their times."""

    searched: SearchedKey
    record: Record | None
    speed: Speed | None
    measured: list[MeasuredRow]
    shown: list[ShownTrial]
    axes: Axes
    plots: dict[str, Figure | None]
    facts: Table
    bars: list[tuple[str, list[PartBar]]]
    why: str
    best: str
    ranges: Sequence[TimeLine]
    slices: Sequence[AxisSlice]
    groups: list[tuple[str, str, str, int]] = field(default_factory=list)

    @property
    def hovers(self) -> dict[str, str]:
        """What the points of the plots say, by the page that a click on them opens."""
        return {c.link: c.hover for c in self.shown}


def view(found: StoredProblem, record: Record | None, query: Query) -> ProblemView:
    everything = {one.id: one for one in found.drawn}
    for extra in (found.default, found.winner):
        if extra is not None:
            everything[extra.id] = extra
    drawn = sorted(everything.values(), key=lambda one: one.trial.number)
    shown = candidates(drawn, record)
    chosen = axes(shown, found.refusals, query)
    beside = _beside(shown, record)
    return ProblemView(
        searched=found.searched,
        record=record,
        speed=speed(record) if record else None,
        measured=rows(record, shown),
        shown=shown,
        axes=chosen,
        plots=_plots(found, shown, record, chosen),
        facts=_facts(beside),
        bars=list(zip([n for n, _ in beside], bars([e for _, e in beside]), strict=True)),
        why=_why(beside),
        best=_best(shown, record),
        ranges=time_lines(record) if record else (),
        slices=slices(shown),
        groups=outcome_groups(found.searched),
    )


def outcome_groups(searched: SearchedKey) -> list[tuple[str, str, str, int]]:
    """Kinds of outcome as (kind, colour, what it means, how many)."""
    found = []
    for kind, count in searched.outcomes:
        colour, _, meaning = GROUPS[group_of(kind)]
        found.append((kind, colour.removeprefix("@"), meaning, count))
    return found


def _plots(
    found: StoredProblem,
    shown: Sequence[ShownTrial],
    record: Record | None,
    chosen: Axes,
) -> dict[str, Figure | None]:
    if not shown:
        return {}
    xla = (
        [us or 0.0 for us in (record.baseline.time_us, record.baseline.expected_us)]
        if record
        else []
    )
    began = min(c.at for c in shown)
    return {
        "trials": over_trials(shown, found.steps, xla),
        "time": over_time(shown, found.steps, began, xla),
        "heat": _heat(found, shown, chosen),
        "parallel": parallel(shown),
        "vmem": vmem(shown),
        "roofline": roofline(shown),
    }


def _heat(found: StoredProblem, shown: Sequence[ShownTrial], chosen: Axes) -> Figure | None:
    if chosen.x is None:
        return None
    all_drawn = len(shown) >= found.searched.trials
    return heat_map(shown, chosen.x, chosen.y, found.refusals, all_drawn=all_drawn)


def _beside(shown: Sequence[ShownTrial], record: Record | None) -> list[tuple[str, Estimate]]:
    """What is served, or else the fastest, and the default; one of them where they are the same."""
    timed = [c for c in shown if c.estimate and c.group == ESTIMATED]
    default = next((c for c in timed if c.number == 0), None)
    winner = next((c for c in timed if c.role == WINNER), None)
    named: list[tuple[str, Estimate | None]] = []
    if record is not None and record.estimate.time_us >= LEAST_US:
        named.append(_served(record, winner))
    elif timed:
        winner = min(timed, key=lambda c: c.time_us or 0.0)
        named.append((f"fastest so far (trial {winner.id})", winner.estimate))
    if default is not None and default is not winner and not (record and record.is_default):
        named.append((f"default (trial {default.id})", default.estimate))
    return [(name, estimate) for name, estimate in named if estimate]


def _served(record: Record, winner: ShownTrial | None) -> tuple[str, Estimate]:
    """What is served, by name."""
    name = DEFAULT if record.is_default else WINNER
    if winner is None:
        return name, served(record, None)
    return f"{name} (trial {winner.id})", served(record, winner.estimate)


def served(record: Record, trial: Estimate | None) -> Estimate:
    """What is published, with the parts of its time that only ``trial`` knows: unless that was
    estimated again since, and says another time."""
    same = trial is not None and trial.time_us == record.estimate.time_us
    return trial if trial and same else record.estimate


def _why(beside: list[tuple[str, Estimate]]) -> str:
    if len(beside) < 2:
        return ""
    one, other = (NamedEstimate(name=name, estimate=e) for name, e in beside)
    return why(compare(one, other))


def _best(shown: Sequence[ShownTrial], record: Record | None) -> str:
    timed = [c for c in shown if c.estimate and c.group == ESTIMATED]
    best = min(timed, key=lambda c: c.time_us or 0.0, default=None)
    if record is None or best is None or best.estimate is None or best.role == WINNER:
        return ""
    if best.estimate.time_us >= record.estimate.time_us:
        return ""
    mine = next((c.estimate for c in timed if c.role == WINNER), None)
    return not_served(
        compare(
            NamedEstimate(name=f"trial {best.id}", estimate=best.estimate),
            NamedEstimate(name="what is served", estimate=served(record, mine)),
        )
    )


def importance(drawn: Sequence[NumberedTrial]) -> Sequence[tuple[str, float]] | None:
    """The share of each part of the config in what makes trials fast, the largest first; None
    where Optuna is not installed."""
    if find_spec("optuna") is None:
        return None
    timed = [one.trial for one in drawn if one.trial.estimate]
    return _importance(tuple((t.config, t.estimate.time_us) for t in timed if t.estimate))


@lru_cache(maxsize=16)  # Optuna needs a third of what the page needs
def _importance(timed: Sequence[tuple[Config, float]]) -> Sequence[tuple[str, float]]:
    from autotune.searching.importance import importances

    return importances([(parts_of(config), us) for config, us in timed])


def _facts(beside: list[tuple[str, Estimate]]) -> Table:
    """Those of ``autotune explain``."""
    known = [(name, e, e.explanation) for name, e in beside if e.explanation]
    if not known:
        return []
    table: Table = [("", [name for name, *_ in known])]
    table += [
        (
            part,
            [
                f"{part_us(why.part_us(part))}, {why.part_us(part) / e.time_us:.1%}"
                for _, e, why in known
            ],
        )
        for part in PARTS
        if any(why.part_us(part) for *_, why in known)
    ]
    table.append(("total", [micros(e.time_us) for _, e, _ in known]))
    table += [(name, [cell(e, why) for _, e, why in known]) for name, cell in FACTS]
    return [(name, cells) for name, cells in table if any(cells)]


def share_text(us: float, e: Estimate) -> str:
    """A part of a time, and its share."""
    return f"{part_us(us)}, {us / e.time_us:.1%}"
