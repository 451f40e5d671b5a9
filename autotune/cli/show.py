"""``autotune show``: one trial, what became of it and how to make it again."""

from dataclasses import dataclass

import click

from autotune.cli.searched_source import source_change
from autotune.cli.shared import database_and_json, open_database, print_json
from autotune.domain.codec import to_data
from autotune.domain.errors import UnknownNameError
from autotune.domain.key import Key
from autotune.domain.outcome import CompileFailed, Crashed, Estimate, NotEstimated, WrongResult
from autotune.domain.record import GateState, Record, Trial, gate_state, measured_config
from autotune.domain.store import Store
from autotune.wording.checks import reproduce
from autotune.wording.match import checked
from autotune.wording.measurement import against_others, measured_line
from autotune.wording.outcome import reason_of, trial_data
from autotune.wording.output import echo
from autotune.wording.publication import (
    estimated_baseline,
    in_words,
    record_reason,
    record_verification,
    verified_label,
    who_says,
)
from autotune.wording.units import error_bar, mebibytes, micros, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial with its key and its number in the whole database. ``verification``: what proves it,
    where it is published."""

    id: int
    key: Key
    trial: Trial
    state: GateState
    verification: str

    @property
    def estimate(self) -> Estimate | None:
        """Also of a trial whose result is wrong."""
        return getattr(self.trial.outcome, "estimate", None)

    @property
    def estimate_us(self) -> float | None:
        return self.estimate.time_us if self.estimate else None


@click.command()
@click.argument("trial_id", type=click.IntRange(min=1))
@database_and_json
def show(trial_id: int, database: str | None, as_json: bool) -> None:
    """Print the trial with this number (see the tables of `search` and `history`)."""
    with open_database(database, create=False) as store:
        stored = find_trial(store, trial_id)
        record, asked = (
            store.record(stored.key, claimed=True),
            store.searches.progress(stored.key).asked,
        )
        changed = source_change(store, stored.key)
    if as_json:
        published = record and to_data(in_words(record))
        measured = measured_config(record, stored.trial.config)
        print_json(
            {
                "id": trial_id,
                "key": to_data(stored.key),
                **trial_data(stored.trial, stored.state),
                "measurement": measured and measured.to_data(),
                "record": published,
                "source_changed": bool(changed),
            }
        )
        return
    for line in (
        *heading(stored),
        *_details(stored),
        *_measured(stored, record),
        *_published(stored, record),
        *filter(None, [changed]),
    ):
        echo(line)
    echo(f"reproduce: {reproduce(stored.key, stored.trial, asked)}")


def find_trial(store: Store, trial_id: int) -> StoredTrial:
    """Raises ``UnknownNameError`` when there is none with this number."""
    stored = store.trial(trial_id)
    if stored is None:
        raise UnknownNameError(f"there is no trial {trial_id}: see autotune history --trials")
    key, trial = stored
    record = store.record(key)
    state = gate_state(trial, record)
    proof = record_verification(record) if record and record.proves(trial.config) else ""
    return StoredTrial(id=trial_id, key=key, trial=trial, state=state, verification=proof)


def heading(stored: StoredTrial) -> list[str]:
    """What was tried, what became of it, and when."""
    key, trial = stored.key, stored.trial
    role = " (the default config)" if trial.number == 0 else ""
    return [
        f"trial {stored.id}{role} of {key.kernel} {key.problem}",
        f"  on {key.chip} with {key.toolchain}, kernel {key.fingerprint}",
        f"config: {trial.config}",
        f"outcome: {trial.outcome.kind}, {reason_of(trial.outcome)}"
        + f"; {stored.state}" * (trial.estimate is not None),
        *([f"verified: {stored.verification}"] if stored.verification else []),
        f"took {seconds(trial.seconds)}, finished {trial.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]


def _details(stored: StoredTrial) -> list[str]:
    outcome, e = stored.trial.outcome, stored.estimate
    lines = _wrong(outcome) if isinstance(outcome, WrongResult) else []
    if e is not None:
        return [
            *lines,
            f"estimated {micros(e.time_us)} {error_bar(e.error)}, "
            f"VMEM {mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}",
            f"where the time goes: autotune explain {stored.id}",
        ]
    if isinstance(outcome, NotEstimated) and outcome.vmem_used_bytes:
        return [f"VMEM {mebibytes(outcome.vmem_used_bytes)}"]
    if isinstance(outcome, CompileFailed) and outcome.message:
        return ["the compiler's message:", *_indented(outcome.message)]
    if isinstance(outcome, Crashed) and outcome.log_tail:
        return ["the last lines of its log:", *_indented(outcome.log_tail)]
    return lines


def _wrong(outcome: WrongResult) -> list[str]:
    """Which check of the gate failed, and by how much."""
    if not outcome.check:
        return []
    error = "" if outcome.error is None else f", {outcome.error:.3g} times what is allowed"
    return [f"the check that failed: {outcome.check}{error}{outcome.where and ', '}{outcome.where}"]


def _measured(stored: StoredTrial, record: Record | None) -> list[str]:
    """Where the accelerator was asked: what it said, and of what that can be told apart."""
    measured = measured_config(record, stored.trial.config)
    if record is None or measured is None:
        return []
    line = measured_line(measured, stored.estimate_us)
    count = f"{len(measured.timed.samples_us)} samples"
    lines = [f"measured {line}, {count}"] if line else []
    others = against_others(measured, record.default.config)
    return [*lines, *(f"  {sentence}" for sentence in others)]


def _published(stored: StoredTrial, record: Record | None) -> list[str]:
    """What is published for its key, and plain XLA against this trial, in words."""
    if record is None:
        return ["nothing is published for this problem"]
    is_it = record.config == stored.trial.config
    lines = [
        f"published, {verified_label(record)}: {'this config' if is_it else record.config}; "
        f"{record_reason(record)}"
    ]
    lines.append(who_says(record))
    lines += [f"  {checked(check)}" for check in record.checks]
    if stored.trial.estimate is not None and record.baseline.time_us is not None:
        lines.append(estimated_baseline(stored.trial.estimate, record.baseline))
    return lines


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
