"""The page of a trial: everything that is known about one."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.browsing import NumberedTrial, SearchedKey
from autotune.domain.config import AxisValue
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Estimate,
    OutOfVmem,
    TimedOut,
    WrongResult,
)
from autotune.domain.record import Record
from autotune.wording.command import reproduce
from autotune.wording.config import spelled_parts
from autotune.wording.facts import FACTS
from autotune.wording.units import mebibytes, micros
from autotune_db.browse import SqlBrowse
from autotune_service.pages import measured
from autotune_service.pages.candidates import ShownTrial, candidates
from autotune_service.pages.problem import share_text
from autotune_service.pages.speed import speed

Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """``message``: what the compiler, or the last lines of its log, said."""

    candidate: ShownTrial
    trial: NumberedTrial
    searched: SearchedKey
    record: Record | None
    config: Mapping[str, AxisValue]
    details: Rows
    measured: Rows
    facts: Rows
    parts: Rows
    message: str
    command: str
    xla: str
    before: NumberedTrial | None
    after: NumberedTrial | None


def find(browse: SqlBrowse, trial_id: int) -> tuple[SearchedKey, NumberedTrial] | None:
    key_id = browse.key_of(trial_id)
    searched = browse.searched(key_id) if key_id else None
    one = browse.trial(trial_id) if searched else None
    return (searched, one) if searched and one else None


def neighbours(
    browse: SqlBrowse, key_id: int, one: NumberedTrial
) -> tuple[NumberedTrial | None, ...]:
    number = one.trial.number
    return tuple(browse.by_number(key_id, n) for n in (number - 1, number + 1))


def view(
    searched: SearchedKey,
    one: NumberedTrial,
    record: Record | None,
    around: tuple[NumberedTrial | None, ...],
    asked: str = "",
) -> TrialView:
    shown = candidates([one], record)[0]
    e, why = shown.estimate, shown.estimate and shown.estimate.explanation
    outcome = one.trial.outcome
    message = getattr(outcome, "message", "") or getattr(outcome, "log_tail", "")
    return TrialView(
        candidate=shown,
        trial=one,
        searched=searched,
        record=record,
        message=message,
        config=spelled_parts(one.trial.config),
        details=_details(one),
        facts=_facts(e),
        measured=measured.facts(shown.measured, record, shown.time_us),
        parts=[(part, share_text(why.part_us(part), e)) for part in PARTS if why.part_us(part)]
        if e and why
        else [],
        command=reproduce(searched.key, one.trial, asked),
        xla=speed(record).xla if record and shown.role == "winner" else "",
        before=around[0],
        after=around[1],
    )


def _details(one: NumberedTrial) -> Rows:
    """What only this kind of outcome has."""
    outcome = one.trial.outcome
    rows: Rows = []
    if isinstance(outcome, OutOfVmem):
        needs, allowed = mebibytes(outcome.used_bytes), mebibytes(outcome.allowed_bytes)
        how = "by rule, before compiling" if outcome.by_rule else "by the compiler"
        rows += [("VMEM needed", f"{needs} of {allowed}"), ("found out", how)]
    if isinstance(outcome, TimedOut):
        rows.append(("limit", f"{outcome.limit_s:g} s"))
    if isinstance(outcome, CompileFailed) and outcome.unsupported:
        rows.append(("unsupported", "the compiler says that the chip or Mosaic cannot do it"))
    if isinstance(outcome, WrongResult):
        error = "" if outcome.error is None else f"{outcome.error:.3g} times what is allowed"
        rows += [("check that failed", outcome.check), ("error", error), ("where", outcome.where)]
    if isinstance(outcome, Crashed) and outcome.log_tail:
        rows.append(("the last lines of its log", "below"))
    program = getattr(outcome, "program", "")
    rows.append(("hash of the program", program))
    return [(name, value) for name, value in rows if value]


def _facts(e: Estimate | None) -> Rows:
    if e is None:
        return []
    if e.explanation is None:
        return [
            ("time", f"{micros(e.time_us)}, {e.model}"),
            ("limited by", e.limiting_part),
            ("notes", "; ".join(e.notes) or "none"),
        ]
    return [(name, text) for name, cell in FACTS if (text := cell(e, e.explanation))]
