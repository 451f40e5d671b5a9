"""What other problems of a kernel have taught: times of candidates that nobody has compiled.

With the same blocks, dtypes and chip another problem compiles to the same body; bounds and strides
differ. So the cost of a step is learned from all trials of the kernel, by what decides it, and a
candidate's own grid and transfers make a time of it (``cost_model.prediction``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from autotune.domain.compiler_options import parsed
from autotune.domain.explanation import StepCost
from autotune.domain.key import ChipInfo, Key
from autotune.domain.outcome import Estimated, Outcome
from autotune.domain.problem import Config
from autotune.domain.record import Trial
from autotune.estimating.cost_model.prediction import (
    Pipeline,
    StepFacts,
    pipeline,
    predicted_us,
    step_facts,
)
from autotune.estimating.simulator import MODEL
from autotune.estimating.simulator.constants import CHIPS
from autotune.estimating.space import Candidate, Space
from autotune.searching.surrogate import (
    Array,
    Posterior,
    axis_features,
    likeliest,
    matern,
    whitening,
)

MOST_TRIALS = 150  # of others, and of its own, that teach: a fit takes a third of a second
FEWEST_TRIALS = 3  # of other problems, before they are believed more than the roofline
# trials of the problem itself teach as much as others do; half of them may be of another chip
ENOUGH_OWN = 10
WORTH = 0.02  # of the best time, what one more compile must save: two estimates tell no less
WORTH_ALONE = 0.003  # where nothing but its own few trials has taught how wrong they are
FEWEST_CONFIRMED = 5  # predictions, before a default is believed that is not compiled
FEWEST_DEFAULTS = 3  # among them

_LENGTHS = (1.0, 2.0, 4.0, 8.0)  # in doublings of one fact, about
_TRENDS = (0.0, 1.0)  # how much of it is a trend: larger blocks than were ever compiled
_NOISES = (1e-4, 1e-3, 1e-2)
_NUMBER_SPREAD, _FLAG_SPREAD = 1.5, 2.0
_LEAST_SCALE = 0.1  # of a logarithm of the cost
_AGAIN = 3  # predictions that are right after one that was not
_OTHER_BODY = 0.35  # of a time: of the same body the worst prediction was off by 0.31
_REPLAY_ERROR = 0.03  # of a replay with the true cost of a step: the median was 0.2 % to 2.8 %
_REPLAY_APART = 0.015  # of two candidates of a problem: most of it is the same for all
_TWINS_APART = 0.001


def lessons_of(key: Key, chip: ChipInfo, space: Space) -> "Lessons | None":
    """None where nothing can be predicted: a function of several calls, a grid without a step, a
    chip that is not simulated."""
    one_call = not any(c.trace.more or not c.trace.steps for c in space.candidates)
    return Lessons(key, chip) if one_call and chip.chip.value in CHIPS else None


_Known = tuple[Key, Config, StepCost, Estimated]


class CallForecast(NamedTuple):
    """What others say of a call: how long one step of it takes, and the whole where XLA puts these
    operands in VMEM."""

    step_us: float
    call_us: float
    in_vmem: tuple[int, ...]


class Lessons:
    """Predicts the candidates of one problem from its own trials and those of others. A candidate
    may be added later. ``are_sure``: enough of them were compiled to the same bodies, so that a
    search may end by them, half of them for another chip or compiler; other costs of theirs, or of
    another version of the kernel, only say what to try first. ``worth``: the share of the best time
    that a compile must be expected to save. ``error``: the share that nine of ten of their
    predictions were within once they were compiled; infinite where too few were."""

    def __init__(self, key: Key, chip: ChipInfo) -> None:
        self._key, self._chip = key, chip
        self._asked = _Asked.nothing()
        self._calls: list[Pipeline] = []  # of what is asked
        self._in_vmem: tuple[int, ...] = ()  # of these
        self._core_and_call_us: tuple[Array, Array] | None = None
        self.are_sure = self._forecasts = False
        self.worth = WORTH
        self.error = inf

    def predict(
        self,
        candidates: Sequence[Candidate],
        others: Sequence[tuple[Key, Trial]],
        trials: Sequence[tuple[Key, Trial]],
    ) -> Posterior | None:
        """Of the logarithm of each candidate's time; None where too little is known to say."""
        known = list(_teaching((*others, *trials)))
        self.error = self._confirmed_error(others)
        if not self._judge(known):
            return None
        rows = [_facts(key, config, step.facts) for key, config, step, _ in known]
        self._ask(tuple(candidates))
        costs = [log(step.core_us / dict(step.facts)["core_us"]) for _, _, step, _ in known]
        fitted = _fitted(_table(rows), costs, self._asked.table)
        timed = {config: outcome for key, config, _, outcome in known if key == self._key}
        core_us = self._asked.base_us * np.exp(fitted.mean)
        alike = list(timed.values()) or self._alike(known)
        times = self._times(core_us, fitted.deviation, list(timed.values()), alike)
        return _without_twins(times, self._asked, timed)

    def _judge(self, known: Sequence[_Known]) -> bool:
        """Whether enough is known to predict anything; and how far that is to be believed."""
        others = [key for key, *_ in known if key != self._key]
        elsewhere = sum(_asked_for(key) == _asked_for(self._key) for key in others)
        of_problem, of_others = len(known) - len(others), list(map(_body, others))
        is_own_enough = of_problem + min(of_problem, elsewhere) >= ENOUGH_OWN
        alike = [(step, outcome) for key, _, step, outcome in known if key == self._key]
        surprises = [o.surprise for _, o in alike if o.surprise is not None]
        is_other = max(surprises[-_AGAIN:], default=0.0) > _OTHER_BODY
        # XLA puts arrays in VMEM by what the blocks leave of it.
        is_alike = len({step.in_vmem for step, _ in alike}) <= 1
        is_taught = of_others.count(_body(self._key)) >= FEWEST_TRIALS
        self._forecasts = is_alike and (is_own_enough or is_taught)
        is_taught = is_taught and not is_other
        self.are_sure = is_alike and (is_own_enough or is_taught)
        self.worth = WORTH if is_taught else WORTH_ALONE
        return len(of_others) >= FEWEST_TRIALS or is_own_enough

    def _confirmed_error(self, others: Sequence[tuple[Key, Trial]]) -> float:
        """Of all that was predicted with these options and of the defaults among it, whichever is
        larger."""
        surprises = [
            (trial.number, surprise)
            for key, trial in others
            if (_body(key), key.problem.options) == (_body(self._key), self._key.problem.options)
            and isinstance(outcome := trial.outcome, Estimated)
            and outcome.estimate.model == MODEL
            and (surprise := outcome.surprise) is not None
        ]
        return max(
            _nine_of_ten([surprise for _, surprise in surprises], FEWEST_CONFIRMED),
            _nine_of_ten(
                [surprise for number, surprise in surprises if number == 0], FEWEST_DEFAULTS
            ),
        )

    def forecast(self, config: Config) -> CallForecast | None:
        """None where they say nothing of this body. One that has surprised is forecast
        again: it is believed once that is right."""
        place = self._asked.places.get(config)
        if not self._forecasts or self._core_and_call_us is None or place is None:
            return None
        step_us, call_us = self._core_and_call_us
        return CallForecast(float(step_us[place]), float(call_us[place]), self._in_vmem)

    def confirmed(
        self, candidate: Candidate, forecast: CallForecast | None, outcome: Outcome
    ) -> Outcome:
        """What became of a candidate, with what others had said of its time, beside what XLA
        does for all candidates of the problem."""
        if not isinstance(outcome, Estimated) or outcome.step is None or forecast is None:
            return outcome
        step, call_us = outcome.step, forecast.call_us
        if step.in_vmem != forecast.in_vmem:
            call = pipeline(candidate.trace, self._chip, step.in_vmem)
            (call_us,) = self._predicted_us([call], np.array([forecast.step_us]))
        step = replace(step, predicted_us=float(call_us + outcome.estimate.xla_us))
        return replace(outcome, step=step)

    def _alike(self, known: Sequence[_Known]) -> list[Estimated]:
        """Of the problem that is most like this one: what XLA puts in VMEM goes by whole lanes and
        by sizes."""
        sizes, facts = dict(self._key.problem.dims), self._asked.facts[0]

        def far(lesson: _Known) -> float:
            return sum(abs(log(n / sizes[name])) for name, n in lesson[0].problem.dims)

        same = [
            lesson
            for lesson in known
            if _body(lesson[0]) == _body(self._key) and _lanes(lesson[2].facts) == _lanes(facts)
        ]
        return [min(same, key=far)[3]] if same else []

    def _ask(self, candidates: tuple[Candidate, ...]) -> None:
        """What of them does not depend on what others teach is found out once."""
        before = self._asked
        if candidates == before.candidates:
            return
        if candidates[: len(before.candidates)] != before.candidates:
            before, self._calls = _Asked.nothing(), []
        new = candidates[len(before.candidates) :]
        facts = [*before.facts, *(step_facts(candidate.trace, self._chip) for candidate in new)]
        pairs = list(zip(candidates, facts, strict=True))
        rows = [
            _facts(self._key, candidate.config, of) for candidate, of in pairs[len(before.rows) :]
        ]
        kinds = [(candidate.config.axes, candidate.trace.steps, of) for candidate, of in pairs]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        self._asked = _Asked(
            candidates=candidates,
            places={candidate.config: place for place, candidate in enumerate(candidates)},
            facts=facts,
            rows=[*before.rows, *rows],
            table=_table([*before.rows, *rows]),
            base_us=np.array([dict(of)["core_us"] for of in facts]),
            steps=np.array([c.trace.steps / c.roofline.cores for c in candidates]),
            twins=np.array([numbers[kind] for kind in kinds]),
        )

    def _times(
        self,
        core_us: Array,
        deviation: Array,
        outcomes: Sequence[Estimated],
        alike: Sequence[Estimated],
    ) -> Posterior:
        """From costs of steps to times; what XLA does around the call, and what it puts in VMEM, is
        the same for all candidates of a problem, and known from the first; ahead of it the
        latter is as for what is ``alike``."""
        in_vmem = alike[0].step.in_vmem if alike and alike[0].step else ()
        around_us = min((outcome.estimate.xla_us for outcome in outcomes), default=0.0)
        if in_vmem != self._in_vmem:
            self._calls, self._in_vmem = [], in_vmem
        new = self._asked.candidates[len(self._calls) :]
        self._calls += [pipeline(candidate.trace, self._chip, in_vmem) for candidate in new]
        times_us = self._predicted_us(self._calls, core_us)
        self._core_and_call_us = core_us, times_us
        share = np.minimum(1.0, core_us * self._asked.steps / times_us)
        replay = _REPLAY_APART if outcomes else _REPLAY_ERROR
        return Posterior(
            mean=np.log(times_us + around_us), deviation=np.hypot(deviation * share, replay)
        )

    def _predicted_us(self, calls: Sequence[Pipeline], core_us: Array) -> Array:
        return predicted_us(calls, core_us, self._chip.chip, self._key.toolchain.libtpu)


def _without_twins(
    posterior: Posterior, asked: "_Asked", timed: Mapping[Config, Estimated]
) -> Posterior:
    """The same blocks in another grid order, which moves as much in as many steps, take as long as
    the one that was compiled."""
    places = {asked.places[config]: timed[config] for config in timed if config in asked.places}
    mean, deviation = posterior.mean.copy(), posterior.deviation.copy()
    for place in sorted(places):
        alike = asked.twins == asked.twins[place]
        mean[alike], deviation[alike] = log(places[place].estimate.time_us), _TWINS_APART
    return Posterior(mean=mean, deviation=deviation)


def _nine_of_ten(surprises: Sequence[float], fewest: int) -> float:
    """What the next one is not above, in nine of ten cases; the largest of less than nine."""
    place = min(len(surprises), ceil(0.9 * (len(surprises) + 1)))
    return sorted(surprises)[place - 1] if len(surprises) >= fewest else inf


def _lanes(facts: StepFacts) -> set[str]:
    return {name for name, _ in facts if " lanes=" in name}


def _asked_for(key: Key) -> tuple[object, ...]:
    """What is tuned, on whatever chip and with whatever libtpu."""
    return key.problem, key.fingerprint, key.toolchain.options


def _body(key: Key) -> tuple[str, ...]:
    """What decides, beside blocks and options, which program a step is compiled to."""
    toolchain = key.toolchain.libtpu, key.toolchain.options
    return key.fingerprint, key.chip.value, *toolchain, key.problem.dtype


def _compared(rows: Array, others: Array) -> tuple[Array, Array]:
    """Of each two rows, the square of their distance, and how far they go the same way: near ones
    are alike, and there may be a trend."""
    return cdist(rows, others, "sqeuclidean"), rows @ others.T / max(1, rows.shape[1])


class _FactTable(NamedTuple):
    """Rows of facts: a column for each name, in their order."""

    names: list[str]
    values: Array

    def with_columns(self, names: Sequence[str]) -> Array:
        """What a row does not speak of is 0."""
        wide = np.zeros((len(self.values), len(names)))
        wide[:, np.searchsorted(names, self.names)] = self.values
        return wide


class _Asked(NamedTuple):
    """Candidates with their places, and what decides how long they take. ``rows`` are those of
    ``table``; ``base_us``: of a step, by its arithmetic; ``steps``: of one core; ``twins``: equal
    numbers for the same blocks that move as much."""

    candidates: tuple[Candidate, ...]
    places: Mapping[Config, int]
    facts: Sequence[StepFacts]
    rows: Sequence[Mapping[str, float]]
    table: _FactTable
    base_us: Array
    steps: Array
    twins: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> "_Asked":
        none = np.zeros(0)
        return cls((), {}, (), (), _table(()), none, none, none.astype(np.int64))


def _table(rows: Sequence[Mapping[str, float]]) -> _FactTable:
    names = sorted({name for row in rows for name in row})
    values = [[row.get(name, 0.0) for name in names] for row in rows]
    return _FactTable(names, np.array(values).reshape(len(rows), len(names)))


def _fitted(known: _FactTable, costs: Sequence[float], asked: _FactTable) -> Posterior:
    """A Gaussian process through the costs of what is ``known``, at what is ``asked``."""
    names = sorted({*known.names, *asked.names})
    spread = np.array([_FLAG_SPREAD if "=" in name else _NUMBER_SPREAD for name in names])
    seen, new = known.with_columns(names), asked.with_columns(names)
    centre_of_seen = seen.mean(axis=0)
    seen, new = (seen - centre_of_seen) / spread, (new - centre_of_seen) / spread
    values = np.array(costs)
    centre, scale = float(np.median(values)), max(float(values.std()), _LEAST_SCALE)
    target = (values - centre) / scale
    square, line = _compared(seen, seen)
    kinds = list(product(_LENGTHS, _TRENDS))
    grams = [matern(square, length) + trend * line for length, trend in kinds]
    chosen, noise = likeliest(grams, _NOISES, target)
    (length, trend), factor = kinds[chosen], whitening(grams[chosen], noise)
    square, line = _compared(new, seen)
    across = (matern(square, length) + trend * line) @ factor.T
    alone = 1.0 + trend * (new**2).mean(axis=1)
    variance = np.clip(alone - (across**2).sum(axis=1), 0.0, None) + noise
    return Posterior(
        mean=across @ (factor @ target) * scale + centre, deviation=np.sqrt(variance) * scale
    )


def _facts(key: Key, config: Config, facts: Sequence[tuple[str, float]]) -> dict[str, float]:
    """What decides the cost of a step. Whatever else it was found for, another chip, toolchain,
    version of the kernel or problem, makes it count less."""
    problem, values = key.problem, dict(facts)
    del values["core_us"]
    flags = {
        "kernel": key.fingerprint,
        "chip": key.chip.value,
        "libtpu": key.toolchain.libtpu,
        "dtype": problem.dtype,
        "problem": str(problem),
        **dict(problem.options),
    }
    options = parsed(key.toolchain.options)  # as a search has them that tunes them
    axes = axis_features(config.replace(axes=tuple((options | dict(config.axes)).items())))
    return values | axes | {f"{name}={value}": 1.0 for name, value in flags.items()}


def _teaching(
    trials: Sequence[tuple[Key, Trial]],
) -> Iterator[tuple[Key, Config, StepCost, Estimated]]:
    """Trials that were compiled here, with a step's cost by this version's model."""
    for key, trial in trials:
        outcome = trial.outcome
        if not isinstance(outcome, Estimated) or outcome.step is None or trial.pushed_by:
            continue
        if outcome.step.can_teach and outcome.estimate.model == MODEL:
            yield key, trial.config, outcome.step, outcome
