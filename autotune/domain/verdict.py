"""The answer of the gate, as it crosses from the child."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, NamedTuple

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.limits import Choice, Count, Limit, Text, Word
from autotune.domain.outcome import Failure


class FailedCheck(StrEnum):
    """Which check of the gate a result did not pass; the empty one is false."""

    NONE = ""
    VALUES = "values"
    """An element is too far off."""
    PRECISION = "precision"
    """All elements together are."""
    UNINITIALISED = "uninitialised memory"
    OVERFLOW = "overflow"
    """No number for large ones, where the reference takes a maximum ahead of an exponential."""
    BOUNDS = "out of bounds"
    RACE = "race"
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

    small: Count | None
    real: Count | None

    @property
    def is_all(self) -> bool:
        return self.small == self.real

    @property
    def is_few(self) -> bool:
        """Whether what passes from block to block may not have been seen."""
        return self.real is not None and (self.small or 0) < min(ENOUGH_BLOCKS, self.real)


class IntegerRange(NamedTuple):
    """The least and the largest of an operand's integers, in the small problems and the real."""

    operand: Word
    low: Choice
    high: Choice
    real_low: Choice
    real_high: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What the small problems have of the real one. ``blocks``: steps of each grid axis, call by
    call. ``ragged``: dimensions that end in a part of a block. ``ways``: results, true or false, of
    all comparisons that do not depend on data; ``by_data``: how many do. ``integers``: contents
    that steer the kernel."""

    blocks: Annotated[tuple[Walked, ...], Limit(longest=_MOST_AXES)]
    ragged: Walked
    ways: Walked
    by_data: Count = 0
    integers: Annotated[tuple[IntegerRange, ...], Limit(longest=_MOST_AXES)] = ()

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
    lacks: OmitDefault[Text] = ""
    jax: OmitDefault[Word] = ""
    standard: OmitDefault[Standard] = Standard.REFERENCE
    ran: OmitDefault[Text] = ""
    covered: OmitNone[Covered | None] = None


FULL_PROOF = Proof()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``ok`` is None when the check could not be made; ``reason`` says why, or what was run, in the
    words of the gate, ``failure`` how its process ended instead of an answer; ``not_run``: that
    this JAX cannot do it, another may.

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
