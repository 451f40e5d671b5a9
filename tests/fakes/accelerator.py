"""An accelerator that is not there: known true times, and the noise of real ones.

For the tests and ``benchmarks/deciding.py``; it stands where the session's sampler stands.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, sqrt


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """``spread``: standard deviation of the logarithm of a sample. ``outliers``: the share of
    samples that take 1.1 to 2 times as long. ``drift``: by which share all times grow or shrink
    over 200 samples. ``throttle``: by which share at most a throttled core is slower, for a while
    that starts somewhere in the first 120 samples and lasts 30 to 100; 0.0 for never. ``freedom``:
    of Student's distribution in place of the normal one, for heavy tails; 0.0 for the normal one.
    ``memory``: the correlation of a sample's noise with that of the one before."""

    name: str
    spread: float
    outliers: float = 0.0
    drift: float = 0.0
    throttle: float = 0.0
    freedom: float = 0.0
    memory: float = 0.0


NOISES = (
    Noise(name="quiet", spread=0.002),
    Noise(name="noisy", spread=0.02),
    Noise(name="outliers", spread=0.005, outliers=0.08),
    Noise(name="drift", spread=0.005, drift=0.06),
    Noise(name="throttling", spread=0.005, throttle=0.25),
)


@dataclass(slots=True)
class Accelerator:
    """``true_us``: the time of each candidate at full clock. ``busy``: the share of it that the
    core's clock decides, the rest being HBM's; a throttled clock lengthens only that."""

    true_us: Mapping[str, float]
    busy: Mapping[str, float]
    noise: Noise
    seed: int
    taken: int = 0
    _random: random.Random = field(init=False)
    _direction: float = field(init=False)
    _slow: tuple[int, int, float] = field(init=False)
    _before: float = 0.0

    def __post_init__(self):
        self._random = random.Random(self.seed)
        self._direction = self._random.choice((-1.0, 1.0))
        start = self._random.randrange(5, 120)
        share = self._random.uniform(0.4, 1.0) * self.noise.throttle
        self._slow = (start, start + self._random.randrange(30, 100), share)

    def sample(self, names):
        """Microseconds of each, in that order."""
        return [self._one(name) for name in names]

    def _one(self, name):
        start, end, share = self._slow
        slow = share * self.busy[name] if start <= self.taken < end else 0.0
        drift = self._direction * self.noise.drift * self.taken / 200
        rough = self._rough()
        far = self._random.uniform(1.1, 2.0) if self._random.random() < self.noise.outliers else 1.0
        self.taken += 1
        return self.true_us[name] * (1 + slow) * (1 + drift) * exp(rough) * far

    def _rough(self):
        """Of the spread at any time, whatever the memory."""
        noise = self.noise
        fresh = self._random.gauss(0.0, noise.spread)
        if noise.freedom:
            fresh /= sqrt(self._random.gammavariate(noise.freedom / 2, 2 / noise.freedom))
        self._before = noise.memory * self._before + sqrt(1 - noise.memory**2) * fresh
        return self._before
