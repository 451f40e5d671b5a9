"""What a tuning machine found for a key, and what became of it when it was pushed."""

from dataclasses import dataclass
from typing import Annotated

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.job import MOST_TRIALS
from autotune.domain.limits import Limit, Word
from autotune.domain.record import Record, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResult:
    """All that a tuning machine knows of a key: its record and its trials. ``refusals``: what older
    clients send of its space; nothing of it is kept."""

    record: Record
    trials: Annotated[tuple[Trial, ...], Limit(longest=MOST_TRIALS)] = ()
    refusals: OmitNone[dict[Word, object] | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of a push: how many records and trials were new, how many records lost against
    the published one of their key, and the snapshot in force after it. ``checks``: how many of
    those that were sent are in force, None where none were. ``candidates``: how many
    wait until a worker of the service has checked them."""

    records: int
    trials: int
    lost: int
    snapshot: int
    checks: OmitNone[int | None] = None
    candidates: OmitDefault[int] = 0
