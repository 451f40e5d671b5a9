"""Two estimates beside each other, a kernel beside plain XLA, and what changes of a config did to
its time."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.evidence import Timed
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.domain.problem import SEMANTICS, VMEM_LIMIT, AxisValue, Config, parts_of
from autotune.domain.record import Evidence, Trial

LEAST, MOST = 0.74, 4.3
"""What measured XLA times were of XLA's own ``estimated_cycles``, which records of older versions
hold (dense and ragged products on a real v5e)."""


class XlaVerdict(StrEnum):
    """Of plain XLA."""

    UNKNOWN = "unknown"
    SLOWER = "slower"
    LIKELY_SLOWER = "likely slower"
    MAYBE_FASTER = "maybe faster"
    LIKELY_FASTER = "likely faster"
    MEASURED_SLOWER = "measured slower"
    MEASURED_FASTER = "measured faster"
    MEASURED_TIE = "measured tie"


def by_estimate(estimate: Estimate, baseline: Evidence) -> XlaVerdict:
    """From a lower bound of XLA's time and an estimate of it."""
    if baseline.time_us is None:
        return XlaVerdict.UNKNOWN
    slow, fast = estimate.time_us * (1 + estimate.doubt), estimate.time_us * (1 - estimate.doubt)
    least, most = expected_range(baseline)
    if baseline.expected_error is None:
        most = baseline.expected_us or 0.0  # of its own cycles the range is too wide to say more
    if slow < baseline.time_us:
        return XlaVerdict.SLOWER
    if slow < least:
        return XlaVerdict.LIKELY_SLOWER
    return XlaVerdict.LIKELY_FASTER if most and fast > most else XlaVerdict.MAYBE_FASTER


def expected_range(evidence: Evidence) -> tuple[float, float]:
    """Microseconds between which a time is likely that was only expected: plain XLA's, or that of a
    default that is predicted, and not below its bound; 0.0 where nothing is known."""
    middle_us, error = evidence.expected_us or 0.0, evidence.expected_error
    bound_us = (evidence.time_us or 0.0) if middle_us else 0.0
    low, high = (LEAST, MOST) if error is None else (1 - error, 1 + error)
    return max(bound_us, low * middle_us), max(bound_us, high * middle_us)


def by_measurement(xla: Timed) -> XlaVerdict:
    """Plain XLA in the race of the kernel's configs."""
    if xla.slower:
        return XlaVerdict.MEASURED_SLOWER
    faster = xla.high is not None and xla.high < 1
    return XlaVerdict.MEASURED_FASTER if faster else XlaVerdict.MEASURED_TIE


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
class PartChange:
    """Of one part of a config alone, to ``value``: then the time is ``ratio`` times as long, which
    can be wrong by the share ``margin``."""

    value: AxisValue
    ratio: float
    margin: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.ratio * (1 - self.margin), self.ratio * (1 + self.margin)

    @property
    def is_told_apart(self) -> bool:
        return max(self.ratio, 1 / self.ratio) > 1 + self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEffect:
    """``changes`` to each other value of one part of a config, the slowest first; empty where no
    trial with a time changes it alone."""

    part: str
    changes: tuple[PartChange, ...]

    @property
    def largest(self) -> PartChange | None:
        """The slowest, or else the fastest; None where neither can be told from no change."""
        ends = self.changes[:1] + self.changes[-1:]
        return next((change for change in ends if change.is_told_apart), None)

    @property
    def factor(self) -> float:
        """How many times as slow, or as fast, the largest change makes it; 1.0 without one."""
        return max(self.largest.ratio, 1 / self.largest.ratio) if self.largest else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterTrial:
    """A trial that saves ``saved_us``. ``changed``: the parts of its config that differ."""

    trial: Trial
    changed: Mapping[str, AxisValue]
    saved_us: float


def margin(first: Estimate, other: Estimate, *, alike: bool = True) -> float:
    """The share by which two times must differ to be told apart.

    ``alike``: same source, chip and toolchain. Then the errors that both share cancel, and the
    larger resolution is enough; else, or where one is not known, it is the larger error bar.
    """
    resolutions = (first.resolution, other.resolution)
    if alike and all(resolutions):
        return max(resolutions)
    return max(first.doubt, other.doubt)


def beats(estimate: Estimate, predicted: Evidence) -> bool:
    """Whether it is faster than what is predicted of a config that was not compiled, by more than
    the model can mistake and the prediction may be wrong by."""
    error = estimate.resolution or estimate.doubt
    return estimate.time_us < expected_range(predicted)[0] * (1 - error)


def compare(first: NamedEstimate, other: NamedEstimate, *, alike: bool = True) -> Comparison:
    """Of two that take equally long, the first counts as the faster. ``alike`` as in ``margin``."""
    faster, slower = sorted((first, other), key=lambda named: named.estimate.time_us)
    fast, slow = faster.estimate, slower.estimate
    least, whys = margin(fast, slow, alike=alike), (fast.explanation, slow.explanation)
    return Comparison(
        faster=faster,
        slower=slower,
        times_as_fast=slow.time_us / fast.time_us,
        margin=least,
        tie=fast.time_us >= slow.time_us * (1 - least),
        gained_us=tuple(
            (name, whys[1].part_us(name) - whys[0].part_us(name))
            for name in PARTS
            if whys[0] and whys[1]
        ),
    )


def part_effects(base: Trial, trials: Iterable[Trial]) -> list[PartEffect]:
    """Of each axis, and of each other part of the config that some trial changes, the largest
    first. Only trials that differ from ``base`` in a single part count: where two parts change,
    neither is the cause. Semantics that differ with the blocks alone go with them, and times of
    another model say nothing."""
    if base.estimate is None:
        return []
    model = base.estimate.model
    trials = [trial for trial in trials if not trial.estimate or trial.estimate.model == model]
    configs = {trial.config for trial in [base, *trials]}
    go_along = len({c.replace(dimension_semantics=()) for c in configs}) == len(configs)
    alone: dict[str, dict[AxisValue, Estimate]] = {name: {} for name, _ in base.config.axes}
    for trial in trials:
        changed = _changed(base.config, trial.config)
        if go_along:
            changed.pop(SEMANTICS, None)
        for part, value in changed.items():
            others = alone.setdefault(part, {})
            if len(changed) == 1 and trial.estimate is not None:
                others[value] = trial.estimate
    effects = [_effect(part, base.estimate, others) for part, others in alone.items()]
    return sorted(effects, key=lambda effect: (not effect.changes, -effect.factor))


def _effect(part: str, base: Estimate, others: Mapping[AxisValue, Estimate]) -> PartEffect:
    changes = [
        PartChange(value=value, ratio=other.time_us / base.time_us, margin=margin(base, other))
        for value, other in others.items()
    ]
    changes.sort(key=lambda change: -change.ratio)
    return PartEffect(part=part, changes=tuple(changes))


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


def other_blocks(
    config: Config, others: Iterable[Config], failed: Collection[Config] = (), sign: int = 1
) -> dict[str, int]:
    """The largest value of each whole-numbered axis, -1 the smallest, where the config has another:
    among those of ``others`` that did not fail and have no block smaller (larger) than its."""
    extreme = before = _sizes(config, sign)
    for other in (other for other in others if other not in failed):
        sizes = before | _sizes(other, sign)
        if all(sizes[name] >= size for name, size in before.items()):
            extreme = {name: max(sizes[name], size) for name, size in extreme.items()}
    return {name: sign * size for name, size in extreme.items() if size > before[name]}


def _sizes(config: Config, sign: int) -> dict[str, int]:
    return {name: sign * size for name, size in config.axes if type(size) is int}


def _changed(base: Config, other: Config) -> dict[str, AxisValue]:
    """The VMEM limit only where nothing else differs: it goes with the blocks that need it."""
    before = parts_of(base)
    changed = {part: value for part, value in parts_of(other).items() if before.get(part) != value}
    return {
        part: value for part, value in changed.items() if part != VMEM_LIMIT or len(changed) == 1
    }
