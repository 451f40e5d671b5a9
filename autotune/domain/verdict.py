"""The answer of the gate, as it crosses from the child."""

from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.limits import Text, Word
from autotune.domain.outcome import Failure


class FailedCheck(StrEnum):
    """Which check of the gate a result did not pass; the empty one is false."""

    NONE = ""
    VALUES = "values"
    """An element is too far off."""
    PRECISION = "precision"
    """All elements together are."""
    UNINITIALISED = "uninitialised memory"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a right result proves. ``standard``: what it was compared with. ``ran``: what was run,
    in the words of the gate, or why nothing could be; older versions kept none. ``lacks``: why it
    was not run in the level before. ``jax``: of the interpreter that it was run with, empty for
    that of the record's own toolchain."""

    level: OmitDefault[ProofLevel] = ProofLevel.FULL
    lacks: OmitDefault[Text] = ""
    jax: OmitDefault[Word] = ""
    standard: OmitDefault[Standard] = Standard.REFERENCE
    ran: OmitDefault[Text] = ""


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
