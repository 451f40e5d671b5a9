"""Two estimates beside each other, and what changes of a config did to its time."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autotune.domain.outcome import Estimate
from autotune.domain.problem import VMEM_LIMIT, AxisValue, Config, parts_of
from autotune.domain.record import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEstimate:
    """An estimate and what to call its candidate."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``times_as_fast`` is at least 1. ``margin``: the share by which the times must differ to be
    told apart; else it is a ``tie``. ``gained_us``: by part, the slower's time less the faster's;
    () where the parts are not known.
    """

    faster: NamedEstimate
    slower: NamedEstimate
    times_as_fast: float
    margin: float
    tie: bool
    gained_us: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEffect:
    """``ratios``: the time with each other value of one part of the config, over the time of the
    config that was changed, the slowest first; empty where no trial changes this part alone.
    ``resolution``: the share by which times must differ to be told apart."""

    part: str
    ratios: tuple[tuple[AxisValue, float], ...]
    resolution: float

    @property
    def largest(self) -> float:
        """The largest factor between two values; 1.0 where none can be told."""
        times = [1.0, *(ratio for _, ratio in self.ratios)]
        factor = max(times) / min(times)
        return factor if factor > 1 + self.resolution else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterTrial:
    """A trial that saves ``saved_us``. ``changed``: the parts of its config that differ."""

    trial: Trial
    changed: Mapping[str, AxisValue]
    saved_us: float


def part_effects(base: Trial, trials: Iterable[Trial]) -> list[PartEffect]:
    """Of each part of the config that some trial changes, the largest first. Only trials that
    differ from ``base`` in a single part count: where two parts change, neither is the cause."""
    if base.estimate is None:
        return []
    ratios: dict[str, dict[AxisValue, float]] = {}
    for trial in trials:
        changed = _changed(base.config, trial.config)
        for part in changed:
            ratios.setdefault(part, {})
        if trial.estimate is not None and len(changed) == 1:
            ((part, value),) = changed.items()
            ratios[part][value] = trial.estimate.time_us / base.estimate.time_us
    effects = [
        PartEffect(
            part=part,
            ratios=tuple(sorted(each.items(), key=lambda pair: -pair[1])),
            resolution=base.estimate.resolution or base.estimate.doubt,
        )
        for part, each in ratios.items()
    ]
    return sorted(effects, key=lambda effect: (not effect.ratios, -effect.largest))


def faster_trial(base: Trial, trials: Iterable[Trial]) -> FasterTrial | None:
    """The trial that saves most; of two that cannot be told apart, the one that changes less.
    None where none is faster by more than can be told."""
    if base.estimate is None:
        return None
    base_us = base.estimate.time_us
    resolution = base.estimate.resolution or base.estimate.doubt
    faster = [
        FasterTrial(
            trial=trial,
            changed=_changed(base.config, trial.config),
            saved_us=base_us - trial.estimate.time_us,
        )
        for trial in trials
        if trial.estimate is not None and trial.estimate.time_us < base_us * (1 - resolution)
    ]
    if not faster:
        return None
    best_us = base_us - max(each.saved_us for each in faster)
    alike = [each for each in faster if base_us - each.saved_us <= best_us * (1 + resolution)]
    return min(alike, key=lambda each: (len(each.changed), -each.saved_us))


def larger_blocks(
    config: Config, others: Iterable[Config], failed: Collection[Config] = ()
) -> dict[str, int]:
    """The largest value of each whole-numbered axis among ``others`` that did not fail, where the
    config has a smaller one."""
    values = dict(config.axes)
    largest: dict[str, int] = {}
    for other in (other for other in others if other not in failed):
        for name, value in other.axes:
            before = largest.get(name, values.get(name))
            if type(value) is int and type(before) is int and value > before:
                largest[name] = value
    return largest


def _changed(base: Config, other: Config) -> dict[str, AxisValue]:
    """The VMEM limit only where nothing else differs: it goes with the blocks that need it."""
    before = parts_of(base)
    changed = {part: value for part, value in parts_of(other).items() if before.get(part) != value}
    return {
        part: value for part, value in changed.items() if part != VMEM_LIMIT or len(changed) == 1
    }
