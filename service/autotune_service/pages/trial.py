"""The page of a trial: everything that is known about one."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from autotune.domain import outcome as outcomes
from autotune.domain.browsing import NumberedTrial, SearchedKey
from autotune.wording.config import spelled_parts
from autotune.wording.match import reproduce
from autotune.wording.profile import estimate_change
from autotune.wording.profile_page import fragment
from autotune.wording.publication import record_verification
from autotune.wording.units import mebibytes, micros
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall
from autotune_service.pages.candidates import WINNER, candidate
from autotune_service.pages.filters import number_of
from autotune_service.pages.speed import Facts, facts, measured_facts, parts, speed


def show(call: PageCall) -> dict[str, Any]:
    """``message``: what the compiler, or the last lines of its log, said. ``before`` and ``after``:
    the trials beside it in its search."""
    number = call.path["trial_id"]
    pair = find(call, number_of(number, "trial"))
    if pair is None:
        raise HttpError(404, "unknown_trial", f"There is no trial {number}.")
    searched, trial = pair
    record = call.record(searched.key)
    shown = candidate(trial, record)
    e, outcome = shown.estimate, trial.trial.outcome
    asked = call.store.searches.progress(searched.key).asked
    before, after = (
        call.browse.by_number(searched.id, trial.trial.number + step) for step in (-1, 1)
    )
    is_proven = record is not None and record.proves(trial.trial.config)
    proof = [("verified", record_verification(record))] if record and is_proven else []
    return {
        "candidate": shown,
        "searched": searched,
        "record": record,
        "message": getattr(outcome, "message", "") or getattr(outcome, "log_tail", ""),
        "config": spelled_parts(trial.trial.config),
        "details": _details(outcome) + proof,
        "facts": _facts(e),
        "measured": measured_facts(shown.measured, record, shown.time_us),
        "parts_of_time": [(name, share) for name, (share,) in parts([e])],
        "command": reproduce(searched.key, trial.trial, asked),
        "xla": speed(record).xla if record and shown.role == WINNER else "",
        "profile": by_line(call, [trial]),
        "before": before,
        "after": after,
    }


def by_line(call: PageCall, trials: Sequence[NumberedTrial]) -> Markup | None:
    """The profile of a trial, or what differs between two; None while not all have one."""
    profiles = call.store.profiles.find([trial.id for trial in trials])
    if len(profiles) < len(trials):
        return None
    named = [profiles[trial.id] for trial in trials]
    changes = (
        estimate_change(trial.id, getattr(trial.trial.outcome, "estimate", None), config)
        for trial, config in zip(trials, named, strict=True)
    )
    said = Markup("").join(map(Markup("<p>{}.</p>").format, filter(None, changes)))
    return Markup(fragment(named)) + said  # noqa: S704 (all text in it is escaped)


def find(call: PageCall, trial_id: int) -> tuple[SearchedKey, NumberedTrial] | None:
    key_id = call.browse.key_of(trial_id)
    searched = call.browse.searched(key_id) if key_id else None
    trial = call.browse.trial(trial_id) if searched else None
    return (searched, trial) if searched and trial else None


def _details(outcome: outcomes.Outcome) -> Facts:
    """What only this kind of outcome has."""
    rows: Facts = []
    if isinstance(outcome, outcomes.OutOfVmem):
        needs, allowed = mebibytes(outcome.used_bytes), mebibytes(outcome.allowed_bytes)
        how = "by rule, before compiling" if outcome.by_rule else "by the compiler"
        rows += [("VMEM needed", f"{needs} of {allowed}"), ("found out", how)]
    if isinstance(outcome, outcomes.TimedOut):
        rows.append(("limit", f"{outcome.limit_s:g} s"))
    if isinstance(outcome, outcomes.CompileFailed) and outcome.unsupported:
        rows.append(("unsupported", "the compiler says that the chip or Mosaic cannot do it"))
    if isinstance(outcome, outcomes.WrongResult):
        error = "" if outcome.error is None else f"{outcome.error:.3g} times what is allowed"
        rows += [("check that failed", outcome.check), ("error", error), ("where", outcome.where)]
    if isinstance(outcome, outcomes.Crashed) and outcome.log_tail:
        rows.append(("the last lines of its log", "below"))
    rows.append(("hash of the program", getattr(outcome, "program", "")))
    return [(name, value) for name, value in rows if value]


def _facts(e: outcomes.Estimate | None) -> Facts:
    if e is None:
        return []
    if e.explanation is None:
        return [
            ("time", f"{micros(e.time_us)}, {e.model}"),
            ("limited by", e.limiting_part),
            ("notes", "; ".join(e.notes) or "none"),
        ]
    return [(name, text) for name, (text,) in facts([e])]
