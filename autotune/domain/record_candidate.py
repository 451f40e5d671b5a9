"""Records that somebody pushed, and what workers with the database have found of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.domain.codec import Flat
from autotune.domain.record import Check, Record, Trial
from autotune.domain.verdict import Verdict


class CandidateState(StrEnum):
    """The last two are final."""

    UNVERIFIED = "unverified"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDecision:
    """What was found out about one. ``finding``: one sentence, also of one that is unverified still
    because it could not be checked."""

    state: CandidateState
    finding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCandidate:
    """``record`` is as it was pushed: all claims of its ``pushed_by``."""

    number: int
    record: Record
    decision: Flat[CandidateDecision]
    created_at: datetime
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecked:
    """The decision on a record, the ``check`` of its config and the ``verdict`` of the gate that it
    rests on; where it is accepted, the ``record`` as it is to be published and the ``trials`` that
    say so."""

    decision: CandidateDecision
    check: Check
    verdict: Verdict | None = None
    record: Record | None = None
    trials: tuple[Trial, ...] = ()
