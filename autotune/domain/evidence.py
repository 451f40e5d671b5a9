"""What stands behind a result: what the gate says of it; and what was measured on an accelerator,
every sample, with intervals and what may be concluded."""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from autotune.domain import limits
from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.outcome import Failure
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
    samples_us: Annotated[tuple[limits.Time, ...], limits.Limit(longest=10_000)]
    ratio: limits.Share | None = None
    low: limits.Share | None = None
    high: limits.Positive | None = None
    slower: bool = False
    refused: limits.Text = ""
    note: limits.Text = ""

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

    method: Annotated[str, limits.Limit(pattern=f"^({DEVICE_TIME}|{WALL_CLOCK})$")]
    device: limits.Word
    timed: Annotated[tuple[Timed, ...], limits.Limit(longest=limits.MOST_NAMES)]
    stopped_by: limits.Word
    void: limits.Text = ""
    drift: Annotated[float, limits.Limit(least=-1e6, most=1e6)] = 0.0
    set_aside: limits.Count = 0
    looks: limits.Count = 0
    seed: limits.Count = 0
    seconds: limits.Share = 0.0

    @property
    def winner(self) -> Timed | None:
        """The fastest config; None where nothing is concluded."""
        first = next((t for t in self.timed if t.config is not None and not t.refused), None)
        return None if self.void else first

    @property
    def runner_up(self) -> Timed | None:
        times = [t for t in self.timed if t.config is not None and not t.refused]
        return times[1] if len(times) > 1 and not self.void else None

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

    def times_as_fast(self, first: Timed | None, other: Timed | None) -> float | None:
        """By how much ``first`` is faster than ``other``: by their pairs, where they were
        compared."""
        if self.void or first is None or other is None:
            return None
        if first.ratio and other.ratio:
            return other.ratio / first.ratio
        if first.median_us and other.median_us:
            return other.median_us / first.median_us
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


class FailedCheck(StrEnum):
    """Which check of the gate a result did not pass; the empty one is false."""

    NONE = ""
    VALUES = "values"
    """An element is too far off."""
    PRECISION = "precision"
    """All elements together are."""
    SPECIAL = "special values"
    """An element is off for equal numbers, zeros, or all of one sign."""
    UNINITIALISED = "uninitialised memory"
    OVERFLOW = "overflow"
    """No number for large ones, where the reference takes a maximum ahead of an exponential."""
    BOUNDS = "out of bounds"
    RACE = "race"
    SEMAPHORE = "semaphore"
    """It is not zero when the kernel ends."""
    REVISITED = "output visited again"
    """After others."""
    OUTPUTS = "outputs"
    """Another shape or dtype."""
    RUN = "run"
    """It raised."""


class Standard(StrEnum):
    """What a right result agrees with."""

    REFERENCE = "reference"
    DEFAULT = "default config"
    """Less: what is wrong in the kernel itself is wrong in both."""


class ProofLevel(StrEnum):
    """In what a kernel was run, the most telling first: the next is for what JAX cannot run so."""

    FULL = ""
    """Pallas TPU interpret mode with two cores and race detection."""
    ONE_CORE = "one core"
    """The same with one core and without race detection."""
    PLAIN = "plain"
    """Pallas interpret mode: nothing of a TPU is simulated."""


ENOUGH_BLOCKS = 3
"""Of which one is neither the first nor the last."""

_MOST_AXES = 1000  # of all calls of a function


class Walked(NamedTuple):
    """So many in the small problems, of so many in the real one; None where data decides."""

    small: limits.Count | None
    real: limits.Count | None

    @property
    def is_all(self) -> bool:
        return self.small == self.real

    @property
    def is_few(self) -> bool:
        """Whether what passes from block to block may not have been seen."""
        return self.real is not None and (self.small or 0) < min(ENOUGH_BLOCKS, self.real)


class IntegerRange(NamedTuple):
    """The least and the largest of an operand's integers, in the small problems and the real."""

    operand: limits.Word
    low: limits.Choice
    high: limits.Choice
    real_low: limits.Choice
    real_high: limits.Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What the small problems have of the real one. ``blocks``: steps of each axis of the grid and
    of each pipeline in the body, call by call. ``ragged``: dimensions that end in a part of a
    block. ``ways``: results, true or false, of all comparisons that do not depend on data;
    ``by_data``: how many do. ``integers``: contents that steer the kernel."""

    blocks: Annotated[tuple[Walked, ...], limits.Limit(longest=_MOST_AXES)]
    ragged: Walked
    ways: Walked
    by_data: limits.Count = 0
    integers: Annotated[tuple[IntegerRange, ...], limits.Limit(longest=_MOST_AXES)] = ()

    @property
    def is_enough(self) -> bool:
        return self.ways.is_all and self.ragged.is_all and not any(b.is_few for b in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a right result proves. ``standard``: what it was compared with. ``ran``: what was run,
    in the words of the gate, or why nothing could be; older versions kept none. ``lacks``: why it
    was not run in the level before. ``jax``: of the interpreter that it was run with, empty for
    that of the record's own toolchain. ``covered``: what was run has
    of the problem; None in older versions, and
    where the real problem is not known."""

    level: OmitDefault[ProofLevel] = ProofLevel.FULL
    lacks: OmitDefault[limits.Text] = ""
    jax: OmitDefault[limits.Word] = ""
    standard: OmitDefault[Standard] = Standard.REFERENCE
    ran: OmitDefault[limits.Text] = ""
    covered: OmitNone[Covered | None] = None


FULL_PROOF = Proof()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made. ``reason`` says why, or what was run, in the
    words of the gate. ``failure`` says how its process ended instead of an answer, ``not_run`` that
    this JAX cannot do it, while another may.

    ``check`` is the one that failed. ``error`` is the largest error in units of what is allowed and
    ``where`` the element that has it, such as ``output 0 at (3, 5)``; ``runs`` passed; ``seconds``:
    wall clock.
    """

    ok: bool | None
    reason: str = ""
    check: FailedCheck = FailedCheck.NONE
    error: float | None = None
    where: str = ""
    runs: int = 0
    seconds: float = 0.0
    proof: OmitDefault[Proof] = FULL_PROOF
    not_run: OmitDefault[bool] = False
    failure: OmitNone[Failure | None] = None

    @property
    def said(self) -> str:
        """The reason, or how its process ended."""
        return self.reason or (
            f"{self.failure.kind}: {self.failure.reason}" if self.failure else ""
        )

    @property
    def kept_proof(self) -> Proof:
        """The proof with what was run, as a record keeps it."""
        return replace(self.proof, ran=self.said)

    @property
    def is_final(self) -> bool:
        """Whether another JAX could not say more: what only the plain interpreter calls wrong is
        not known to be."""
        is_plain = self.ok is None and self.proof.level is ProofLevel.PLAIN
        return not (self.not_run or is_plain)

    def with_jax(self, version: str) -> "Verdict":
        """The same, run with another JAX than the record is for."""
        return replace(self, proof=replace(self.proof, jax=version))
