"""What was measured on an accelerator: every sample, intervals, and what may be concluded."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from autotune.domain.limits import MOST_NAMES, Count, Limit, Positive, Share, Text, Time, Word
from autotune.domain.problem import Config

DEVICE_TIME, WALL_CLOCK = "device time", "wall clock"

NOT_COMPARED = "it was not compared"  # stored as ``Timed.refused``


class TimedNote(StrEnum):
    """Stored as ``Timed.note``, which may also be what a device said of an executable."""

    SAME_PROGRAM = "it compiles to the same program as another config, measured once"
    COMPILED_HERE = "it was not compiled elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementCandidate:
    """``program``: a hash; what has the same one is measured once. Empty where it is not known."""

    config: Config
    program: str = ""

    @property
    def identity(self) -> str:
        """Equal for configs that compile to the same program; the config's own where the program
        is not known."""
        return self.program or str(self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One candidate; ``config`` is None for plain XLA.

    ``samples_us``: all of them, in the order in which they were taken. ``ratio``: its time over the
    winner's with the interval ``low`` to ``high``, which holds over all looks and candidates with
    95 %; None where it was not compared. ``slower``: it is distinguishable from the winner.
    ``refused``: why it was measured no further, else empty; ``note``: what is to be said of it.
    """

    config: Config | None
    samples_us: Annotated[tuple[Time, ...], Limit(longest=10_000)]
    ratio: Share | None = None
    low: Share | None = None
    high: Positive | None = None
    slower: bool = False
    refused: Text = ""
    note: Text = ""

    @property
    def median_us(self) -> float | None:
        from statistics import median  # a client starts without it

        return median(self.samples_us) if self.samples_us else None


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """``reason``: one sentence. It is an answer, never a number."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run on one device. Never to be mixed with an estimate, nor device time with wall clock.

    ``method``: *device time* (the profiler's) or *wall clock*. ``timed``: the fastest that may win
    first, then by time, then what was refused. ``void``: why nothing is concluded, else empty.
    ``drift``: by which share the default took longer at the end. ``set_aside``: rounds in a slower
    state of the device.
    """

    method: Annotated[str, Limit(pattern=f"^({DEVICE_TIME}|{WALL_CLOCK})$")]
    device: Word
    timed: Annotated[tuple[Timed, ...], Limit(longest=MOST_NAMES)]
    stopped_by: Word
    void: Text = ""
    drift: Annotated[float, Limit(least=-1e6, most=1e6)] = 0.0
    set_aside: Count = 0
    looks: Count = 0
    seed: Count = 0
    seconds: Share = 0.0

    @property
    def winner(self) -> Timed | None:
        """The fastest config; None where nothing is concluded."""
        first = next((t for t in self.timed if t.config is not None and not t.refused), None)
        return None if self.void else first

    @property
    def runner_up(self) -> Timed | None:
        found = [t for t in self.timed if t.config is not None and not t.refused]
        return found[1] if len(found) > 1 and not self.void else None

    @property
    def baseline(self) -> Timed | None:
        """Plain XLA."""
        return next((t for t in self.timed if t.config is None and not t.refused), None)

    @property
    def count(self) -> int:
        """All samples."""
        return sum(len(t.samples_us) for t in self.timed)

    def of(self, config: Config) -> Timed | None:
        """What was measured of a config."""
        return next((t for t in self.timed if t.config == config), None)

    def times_as_fast(self, own: Timed | None, other: Timed | None) -> float | None:
        """By how much ``own`` is faster than ``other``: by their pairs, where they were
        compared."""
        if self.void or own is None or other is None:
            return None
        if own.ratio and other.ratio:
            return other.ratio / own.ratio
        if own.median_us and other.median_us:
            return other.median_us / own.median_us
        return None


class MeasuredConfig(NamedTuple):
    """One config, and the run that it was measured in."""

    run: Measurement
    timed: Timed

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data: the run without the others, and every sample. Times in microseconds."""
        run, timed = asdict(self.run), asdict(self.timed)
        del run["timed"], timed["config"]
        return {**run, "median_us": self.timed.median_us, **timed}
