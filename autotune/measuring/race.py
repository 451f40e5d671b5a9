"""Which candidate is the fastest, with as few samples as that takes: a race in interleaved rounds.

Everybody is timed twice, then the leader, the default and who is still open, then the leader and
the strongest challengers, in ever more rounds between two looks, until the leader is within
:data:`RESOLUTION` of the best or the budget is spent. What is *declared* is held to more than what
ends the race: an interval that holds over all looks and all candidates together.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf

from autotune.domain.evidence import NotMeasured
from autotune.measuring.fit import Fit, beliefs, fit

RESOLUTION = 0.01
"""A difference in time that is worth no more samples."""
ALPHA = 0.05
"""How often a difference may be declared that there is not, over all looks at a run."""

_UNSURE = 0.008  # the race ends when the leader misses the best by more only with this chance
_FIRST = 2  # rounds of everybody; the noise cannot be known from one
_CHALLENGERS = 3  # in a round with the leader, who is in every comparison: he is timed most often
_LOOKS = 4  # as many looks, and there is one more round between two of them
_DRIFT = 0.05  # by how much the default may be another one at the end
_PATIENCE = 100  # samples that a device may remain in a slower state
# Samples of the winner and of another that it takes to call that slower. Two interruptions are
# hardly of the same length: where two samples differ, one of them is not used.
_DECLARED = 3, 2

SETTLED, SPENT, LOST = "settled", "budget spent", "device lost"

Sampler = Callable[[Sequence[str]], Sequence[float | NotMeasured]]
"""Times each named candidate, one after the other in that order: microseconds, or why not. Raises
``DeviceLostError``."""


class DeviceLostError(Exception):
    """The device answers no more; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCandidate:
    """A candidate at the end of a run. ``ratio``: its time over the winner's, ``low`` to ``high``
    the interval of that. ``slower``: surely slower than the winner."""

    name: str
    ratio: float
    low: float
    high: float
    slower: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceDecision:
    """``ranking``: the winner first, then by time. ``void``: why nothing is decided, else empty.

    ``samples``: microseconds, all of them, in the order in which they were taken; ``refused``: the
    reason by candidate. ``drift``: by which share the default was slower at the end. ``set_aside``:
    rounds in another state of the device than most.
    """

    ranking: tuple[RankedCandidate, ...]
    stopped_by: str
    void: str
    drift: float
    set_aside: int
    looks: int
    samples: dict[str, list[float]]
    refused: dict[str, str]

    @property
    def count(self) -> int:
        return sum(len(times) for times in self.samples.values())


def decide(
    names: Sequence[str],
    sample: Sampler,
    *,
    default: str | None = None,
    cannot_win: Sequence[str] = (),
    seed: int = 0,
    most_samples: int = 600,
    out_of_time: Callable[[], bool] = lambda: False,
) -> RaceDecision:
    """Race the candidates. ``cannot_win``: timed beside the others, such as plain XLA."""
    race = _Race(
        list(names),
        sample,
        default,
        tuple(cannot_win),
        random.Random(seed),  # noqa: S311 (no secret)
        most_samples,
        out_of_time,
    )
    return race.run()


@dataclass(slots=True)
class _Race:
    names: list[str]
    sample: Sampler
    default: str | None
    cannot_win: tuple[str, ...]
    shuffler: random.Random
    most_samples: int
    out_of_time: Callable[[], bool]
    rounds: list[dict[str, float]] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    again: int = -1  # the round in which the default was looked at once more

    def run(self) -> RaceDecision:
        looks, lost, stopped_by = 0, "", SPENT
        try:
            self._rounds(self.names, _FIRST)
            while self._can_decide():
                looks += 1
                names, count = self._next(looks)
                if not names:
                    stopped_by = SETTLED
                    break
                if not self._rounds(names, count):
                    break
        except DeviceLostError as error:
            lost, stopped_by = str(error), LOST
        return self._decision(max(1, looks), stopped_by, lost)

    def _rounds(self, names: Sequence[str], count: int) -> bool:
        """Whether there was room for them in the budget."""
        left = [name for name in names if name not in self.refused]
        taken = sum(map(len, self.samples.values()))
        if not left or taken + len(left) * count > self.most_samples or self.out_of_time():
            return False
        orders = [self.shuffler.sample(left, len(left)) for _ in range(count)]
        times = iter(self.sample([name for order in orders for name in order]))
        for order in orders:
            times_us: dict[str, float] = {}
            for name, time in zip(order, times, strict=False):
                if isinstance(time, NotMeasured):
                    self.refused.setdefault(name, time.reason)
                elif not 0 < time < inf:
                    self.refused.setdefault(name, f"its run took {time} µs, which is no time")
                else:
                    times_us[name] = time
                    self.samples.setdefault(name, []).append(time)
            if times_us:
                self.rounds.append(times_us)
        return True

    def _can_decide(self) -> bool:
        """Whether somebody who could win was timed."""
        return bool(self.rounds) and any(name in self.samples for name in self._racers())

    def _racers(self) -> list[str]:
        return [n for n in self.names if n not in self.refused and n not in self.cannot_win]

    def _next(self, looks: int) -> tuple[list[str], int]:
        """Who is timed next, and in how many rounds; nobody when all is settled."""
        fitted = fit(self.rounds)
        racers, more = self._racers(), 1 + looks // _LOOKS
        if len(self.rounds) - 1 not in fitted.steady and len(self.rounds) > _FIRST:
            return self._probe(fitted), more
        if not all(fitted.count(n) for n in racers) or len(fitted.steady) < _FIRST:
            return [n for n in self.names if n not in self.refused], 1
        leader, *others = sorted(racers, key=lambda n: fitted.levels[n])
        believed = beliefs(fitted, racers, leader)
        better = {n: believed.chance(n, leader, by=RESOLUTION) for n in others}
        first = {leader} | {n for n in racers if n == self.default}
        if len(self.rounds) == _FIRST:  # what two samples said may have been two accidents
            return self._with_open_questions(first, better), 1
        if sum(better.values()) > _UNSURE:
            return self._with_open_questions({leader}, better), more
        duel = self._duel(fitted, leader, looks)
        return (duel, more) if duel else (self._at_the_end(fitted, first), 1)

    def _probe(self, fitted: Fit) -> list[str]:
        """In a slower state: only the default, until it is as fast as before or patience ends."""
        waited = len(self.rounds) - 1 - max(fitted.steady)
        if waited > _PATIENCE:
            return []
        usable = self.default in fitted.levels and self.default not in self.refused
        return [n for n in self.names if n == self.default] if usable else list(self.rounds[-1])

    def _with_open_questions(self, names: set[str], better: Mapping[str, float]) -> list[str]:
        """Them and whoever may still be better than the leader by more than the resolution."""
        total = sum(better.values())
        asked = [n for n in better if total > _UNSURE and better[n] > _UNSURE / 2 / len(better)]
        asked = sorted(asked, key=lambda n: -better[n])[:_CHALLENGERS]
        return [n for n in self.names if n in names or n in asked]

    def _duel(self, fitted: Fit, leader: str, looks: int) -> list[str]:
        """The leader and the default, while a gain that counts is not sure enough to declare."""
        default = self.default
        if default is None or default in self.refused or default == leader:
            return []
        half = fitted.half_width(default, leader, self._alpha(looks))
        gap = fitted.gap(default, leader)
        return [] if gap > half or gap < RESOLUTION else [leader, default]

    def _at_the_end(self, fitted: Fit, first: set[str]) -> list[str]:
        """The default once more: the device may have changed. Once again where that seems so."""
        if self.default is None or self.default in self.refused:
            return []
        if self.default in self.rounds[-1]:
            if self.again == len(self.rounds) - 1 or not _far(self._drift(fitted), fitted):
                return []
            self.again = len(self.rounds)
        return [n for n in self.names if n in first]

    def _alpha(self, looks: int) -> float:
        """The share of :data:`ALPHA` of one comparison at this look: together never more."""
        return ALPHA / (looks * (looks + 1)) / max(1, len(self.names) - 1)

    def _decision(self, looks: int, stopped_by: str, lost: str) -> RaceDecision:
        void, drift, aside = lost or "no candidate could be timed", 0.0, 0
        ranking: tuple[RankedCandidate, ...] = ()
        if self._can_decide():
            fitted = fit(self.rounds)
            drift, aside = self._drift(fitted), len(self.rounds) - len(fitted.steady)
            void = lost
            if len(self.rounds) - 1 not in fitted.steady:
                void = "the device became slower and stayed so: throttled, or used by somebody else"
            elif _far(drift, fitted):
                void = f"the default took {drift:+.1%} at the end of the run: the device changed"
            ranking = self._ranking(fitted, self._alpha(looks))
        return RaceDecision(
            ranking=ranking,
            stopped_by=stopped_by,
            void=void,
            drift=drift,
            set_aside=aside,
            looks=looks,
            samples=self.samples,
            refused=self.refused,
        )

    def _ranking(self, fitted: Fit, alpha: float) -> tuple[RankedCandidate, ...]:
        known = [n for n in self.names if fitted.count(n) and n not in self.refused]
        racers = [n for n in known if n not in self.cannot_win]
        if not racers:
            return ()
        winner = min(racers, key=lambda n: fitted.levels[n])
        rest = sorted((n for n in known if n != winner), key=lambda n: fitted.levels[n])
        first = RankedCandidate(name=winner, ratio=1.0, low=1.0, high=1.0, slower=False)
        return (first, *(_ranked(fitted, name, winner, alpha) for name in rest))

    def _drift(self, fitted: Fit) -> float:
        """The default at the end against the state that the comparison rests on; the smaller one
        of two when it was looked at again."""
        last = fitted.rounds[-2:] if self.again == len(fitted.rounds) - 1 else fitted.rounds[-1:]
        if self.default is None or self.default not in fitted.levels:
            return 0.0
        true_us = exp(fitted.levels[self.default])
        drifts = [times[self.default] / true_us - 1 for times in last if self.default in times]
        return min(drifts, key=abs, default=0.0)


def _far(drift: float, fitted: Fit) -> bool:
    return abs(drift) > max(_DRIFT, 3 * fitted.noise)


def _ranked(fitted: Fit, name: str, winner: str, alpha: float) -> RankedCandidate:
    gap, half = fitted.gap(name, winner), fitted.half_width(name, winner, alpha)
    enough = fitted.count(winner) >= _DECLARED[0] and fitted.count(name) >= _DECLARED[1]
    return RankedCandidate(
        name=name,
        ratio=exp(gap),
        low=exp(gap - half),
        high=exp(gap + half),
        slower=gap > half and enough,
    )
