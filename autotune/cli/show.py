"""``autotune show``: one trial, what became of it and how to make it again."""

from dataclasses import dataclass

import click

from autotune.cli.options import database_and_json, open_database, print_json
from autotune.cli.searched_source import source_change
from autotune.domain.codec import to_data
from autotune.domain.errors import UnknownNameError
from autotune.domain.key import Key
from autotune.domain.outcome import CompileFailed, Crashed, Estimate, NotEstimated, WrongResult
from autotune.domain.record import Record, measured_config
from autotune.domain.store import Store
from autotune.domain.trial import Trial
from autotune.wording.baseline import estimated_baseline
from autotune.wording.command import reproduce
from autotune.wording.json_output import trial_data
from autotune.wording.match import checked
from autotune.wording.measurement import against_others, measured_line
from autotune.wording.outcome import reason_of
from autotune.wording.output import echo
from autotune.wording.publication import in_words, record_reason, verified_label, who_says
from autotune.wording.units import error_bar, mebibytes, micros, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial with its key and its number in the whole database."""

    id: int
    key: Key
    trial: Trial

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
        found = find_trial(store, trial_id)
        record, asked = store.record(found.key), store.searches.progress(found.key).asked
        changed = source_change(store, found.key)
    if as_json:
        published = record and to_data(in_words(record))
        measured = measured_config(record, found.trial.config)
        print_json(
            {
                "id": trial_id,
                "key": to_data(found.key),
                **trial_data(found.trial),
                "measurement": measured and measured.to_data(),
                "record": published,
                "source_changed": bool(changed),
            }
        )
        return
    for line in (
        *heading(found),
        *_details(found),
        *_measured(found, record),
        *_published(found, record),
        *filter(None, [changed]),
    ):
        echo(line)
    echo(f"reproduce: {reproduce(found.key, found.trial, asked)}")


def find_trial(store: Store, trial_id: int) -> StoredTrial:
    """Raises ``UnknownNameError`` when there is none with this number."""
    found = store.trial(trial_id)
    if found is None:
        raise UnknownNameError(f"there is no trial {trial_id}: see autotune history --trials")
    return StoredTrial(id=trial_id, key=found[0], trial=found[1])


def heading(found: StoredTrial) -> list[str]:
    """What was tried, what became of it, and when."""
    key, trial = found.key, found.trial
    role = " (the default config)" if trial.number == 0 else ""
    return [
        f"trial {found.id}{role} of {key.kernel} {key.problem}",
        f"  on {key.chip} with {key.toolchain}, kernel {key.fingerprint}",
        f"config: {trial.config}",
        f"outcome: {trial.outcome.kind}, {reason_of(trial.outcome)}",
        f"took {seconds(trial.seconds)}, finished {trial.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]


def _details(found: StoredTrial) -> list[str]:
    outcome, e = found.trial.outcome, found.estimate
    lines = _wrong(outcome) if isinstance(outcome, WrongResult) else []
    if e is not None:
        return [
            *lines,
            f"estimated {micros(e.time_us)} {error_bar(e.error)}, "
            f"VMEM {mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}",
            f"where the time goes: autotune explain {found.id}",
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


def _measured(found: StoredTrial, record: Record | None) -> list[str]:
    """Where the accelerator was asked: what it said, and of what that can be told apart."""
    measured = measured_config(record, found.trial.config)
    if record is None or measured is None:
        return []
    line = measured_line(measured, found.estimate_us)
    count = f"{len(measured.timed.samples_us)} samples"
    lines = [f"measured {line}, {count}"] if line else []
    others = against_others(measured, record.default.config)
    return [*lines, *(f"  {sentence}" for sentence in others)]


def _published(found: StoredTrial, record: Record | None) -> list[str]:
    """What is published for its key, and plain XLA against this trial, in words."""
    if record is None:
        return ["nothing is published for this problem"]
    is_it = record.config == found.trial.config
    lines = [
        f"published, {verified_label(record)}: {'this config' if is_it else record.config}; "
        f"{record_reason(record)}"
    ]
    if record.pushed_by:
        lines.append(who_says(record))
    lines += [f"  {checked(check)}" for check in record.checks]
    if found.trial.estimate is not None and record.baseline.time_us is not None:
        lines.append(estimated_baseline(found.trial.estimate, record.baseline))
    return lines


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
