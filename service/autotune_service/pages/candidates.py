"""Trials as plots and tables show them: one config each, what became of it, and its role."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from autotune.domain.browsing import NumberedTrial
from autotune.domain.evidence import MeasuredConfig
from autotune.domain.outcome import Estimate, NotEstimated, Outcome, OutcomeKind, OutOfVmem
from autotune.domain.problem import parts_of
from autotune.domain.record import GateState, Record, Trial, gate_state, measured_config
from autotune.wording.measurement import measured_line
from autotune.wording.outcome import reason_of
from autotune.wording.units import error_bar, mebibytes, micros

ESTIMATED, UNTIMED = "estimated", "no time"
VMEM, ILLEGAL, FAILED, WRONG = "out of VMEM", "illegal", "failed", "wrong result"
GROUPS: Mapping[str, tuple[str, str]] = {
    ESTIMATED: ("@good", "circle"),
    VMEM: ("@vmem", "triangle-up"),
    ILLEGAL: ("@illegal", "square"),
    FAILED: ("@failed", "x"),
    WRONG: ("@wrong", "star"),
    UNTIMED: ("@untimed", "diamond-open"),
}
"""What people must tell apart on a plot: a colour and a sign."""
_GROUP_OF: dict[str, str] = {  # any other has failed
    OutcomeKind.ESTIMATED: ESTIMATED,
    OutcomeKind.NOT_ESTIMATED: UNTIMED,
    OutcomeKind.ILLEGAL: ILLEGAL,
    OutcomeKind.OUT_OF_VMEM: VMEM,
    OutcomeKind.WRONG_RESULT: WRONG,
}
WINNER, DEFAULT = "winner", "default"
LEAST_US = 1e-4
"""Less than a cycle of any chip: such a time was pushed by somebody, and is not drawn."""

_MOST_HOVER = 220  # characters
_LINE = re.compile(r"\S(?:.{0,58}\S)?(?!\S)|\S+")  # of words: at most 60 characters, or one word


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrial:
    """``values``: its config as (name, value), with what every Pallas kernel has. ``time_us`` is
    an estimate, also that of a wrong result; only ``estimate`` can win. ``measured``: what the run
    behind the record says of it, if it was in it."""

    id: int
    trial: Trial
    group: str
    estimate: Estimate | None
    role: str
    state: GateState
    used_bytes: int | None
    allowed_bytes: int | None
    values: Mapping[str, str | int | bool]
    measured: MeasuredConfig | None = None

    @property
    def kind(self) -> str:
        return self.trial.outcome.kind

    @property
    def reason(self) -> str:
        return reason_of(self.trial.outcome)

    @property
    def link(self) -> str:
        return f"/trials/{self.id}"

    @property
    def measured_us(self) -> float | None:
        return self.measured.timed.median_us if self.measured else None

    @property
    def time_us(self) -> float | None:
        return self.estimate.time_us if self.estimate else None

    @property
    def hover(self) -> str:
        """For a plot, in the little HTML that plotly.js knows; what comes from outside is
        escaped."""
        who = f"<b>trial {self.id}</b>" + (f", the {self.role}" if self.role else "")
        lines = [who, *wrapped(str(self.trial.config)), *wrapped(outcome_line(self))]
        if self.measured_us is not None:
            lines += wrapped(f"measured {measured_line(self.measured, self.time_us)}")
        if self.used_bytes is not None and self.allowed_bytes:
            used, allowed = mebibytes(self.used_bytes), mebibytes(self.allowed_bytes)
            lines.append(f"VMEM {used} of {allowed}")
        return "<br>".join(lines)


def outcome_line(c: ShownTrial) -> str:
    """What became of it, in words."""
    if c.estimate is not None and c.group == ESTIMATED:
        e = c.estimate
        state = f", {c.state}" * (c.state is not GateState.VERIFIED)
        limit = f"limited by {e.limiting_part}{state}"
        return f"estimated {micros(e.time_us)} {error_bar(e.error)}, {limit}"
    return f"{c.kind}: {c.reason}"


def wrapped(text: str) -> list[str]:
    """Lines of a hover text, which would not be broken else; the first ones of a long text."""
    words = " ".join(text[:_MOST_HOVER].split())
    return list(map(escaped, _LINE.findall(words)))  # textwrap took half of the page's time


def escaped(text: str) -> str:
    """plotly.js takes a few HTML elements in texts: none may come from outside."""
    return escape(text, quote=False).replace("\n", " ")


def candidates(trials: Sequence[NumberedTrial], record: Record | None) -> list[ShownTrial]:
    """``record``: what is published for their key."""
    return [candidate(trial, record) for trial in trials]


def candidate(numbered: NumberedTrial, record: Record | None) -> ShownTrial:
    trial = numbered.trial
    used, allowed = _vmem(trial.outcome)
    is_winner = record is not None and trial.config == record.config
    estimate = getattr(trial.outcome, "estimate", None)
    group = _GROUP_OF.get(trial.outcome.kind, FAILED)
    if estimate is not None and estimate.time_us < LEAST_US:
        estimate, group = None, UNTIMED
    return ShownTrial(
        id=numbered.id,
        trial=trial,
        group=group,
        estimate=estimate,
        role=WINNER if is_winner else DEFAULT if trial.number == 0 else "",
        state=gate_state(trial, record),
        used_bytes=used,
        allowed_bytes=allowed,
        values=parts_of(trial.config),
        measured=measured_config(record, trial.config),
    )


def fastest(shown: Iterable[ShownTrial]) -> list[ShownTrial]:
    """Those that can win, the fastest first."""
    timed = (c for c in shown if c.estimate and c.group == ESTIMATED)
    return sorted(timed, key=lambda c: c.time_us or 0.0)


def _vmem(outcome: Outcome) -> tuple[int | None, int | None]:
    """What it uses, and what is allowed."""
    estimate = getattr(outcome, "estimate", None)
    if isinstance(estimate, Estimate):
        return estimate.vmem_used_bytes, estimate.vmem_allowed_bytes
    if isinstance(outcome, OutOfVmem):
        return outcome.used_bytes, outcome.allowed_bytes
    return (outcome.vmem_used_bytes, None) if isinstance(outcome, NotEstimated) else (None, None)
