"""``autotune show``: one trial, what became of it and how to make it again. ``autotune lookup``:
answers from the database or a service, without JAX."""

import sys
from dataclasses import dataclass, replace

import click

from autotune.answering.matching import RULE, Match, match_in
from autotune.cli import shared
from autotune.cli.problems import (
    called_problem,
    key_now,
    problem_options,
    searched_problem,
    source_change,
)
from autotune.domain import outcome as outcomes
from autotune.domain import record as records
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.key import Key
from autotune.domain.store import Store
from autotune.measuring.attached import chip_or_attached
from autotune.wording.match import checked, reproduce
from autotune.wording.match import in_words as match_in_words
from autotune.wording.measurement import against_others, measured_line, programs_of
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
from autotune.wording.units import counted, error_bar, mebibytes, micros, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial with its key and its number in the whole database. ``verification``: what proves it,
    where it is published."""

    id: int
    key: Key
    trial: records.Trial
    state: records.GateState
    verification: str

    @property
    def estimate(self) -> outcomes.Estimate | None:
        """Also of a trial whose result is wrong."""
        return getattr(self.trial.outcome, "estimate", None)

    @property
    def estimate_us(self) -> float | None:
        return self.estimate.time_us if self.estimate else None


@click.command()
@click.argument("trial_id", type=click.IntRange(min=1))
@shared.database_and_json
def show(trial_id: int, database: str | None, as_json: bool) -> None:
    """Print the trial with this number (see the tables of `search` and `history`)."""
    with shared.open_database(database, create=False) as store:
        stored = find_trial(store, trial_id)
        record = store.record(stored.key, claimed=True)
        asked = store.searches.progress(stored.key).asked
        changed = source_change(store, stored.key)
    if as_json:
        measured = records.measured_config(record, stored.trial.config)
        shared.print_json(
            {
                "id": trial_id,
                "key": to_data(stored.key),
                **trial_data(stored.trial, stored.state),
                "measurement": measured and measured.to_data(),
                "record": record and to_data(in_words(record)),
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
    if isinstance(trial.outcome, outcomes.Estimated):
        estimate = _in_this_database(store, key, trial.outcome.estimate)
        trial = replace(trial, outcome=replace(trial.outcome, estimate=estimate))
    record = store.record(key)
    state = records.gate_state(trial, record)
    proof = record_verification(record) if record and record.proves(trial.config) else ""
    return StoredTrial(id=trial_id, key=key, trial=trial, state=state, verification=proof)


def _in_this_database(store: Store, key: Key, estimate: outcomes.Estimate) -> outcomes.Estimate:
    """With the error bar that its times ask for, where it has some of the chip and toolchain."""
    if not (rows := store.calibration(key.chip, key.toolchain)):
        return estimate
    from autotune.estimating.cost_model.error_bars import measured_bars, with_measured_bars

    bars = measured_bars(rows)
    wider = with_measured_bars(estimate, bars, key.chip.value)
    if bars is None or wider is estimate:
        return estimate
    return replace(wider, notes=(*wider.notes, f"the error bar is from {programs_of(bars)}"))


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
        *([f"checked: {stored.verification}"] if stored.verification else []),
        f"took {seconds(trial.seconds)}, finished {trial.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]


def _details(stored: StoredTrial) -> list[str]:
    outcome, e = stored.trial.outcome, stored.estimate
    lines = _wrong(outcome) if isinstance(outcome, outcomes.WrongResult) else []
    if e is not None:
        return [
            *lines,
            f"estimated {micros(e.time_us)} {error_bar(e.error)}, "
            f"VMEM {mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}",
            f"where the time goes: autotune explain {stored.id}",
        ]
    if isinstance(outcome, outcomes.NotEstimated) and outcome.vmem_used_bytes:
        return [f"VMEM {mebibytes(outcome.vmem_used_bytes)}"]
    if isinstance(outcome, outcomes.CompileFailed) and outcome.message:
        return ["the compiler's message:", *_indented(outcome.message)]
    if isinstance(outcome, outcomes.Crashed) and outcome.log_tail:
        return ["the last lines of its log:", *_indented(outcome.log_tail)]
    return lines


def _wrong(outcome: outcomes.WrongResult) -> list[str]:
    """Which check of the gate failed, and by how much."""
    if not outcome.check:
        return []
    error = "" if outcome.error is None else f", {outcome.error:.3g} times what is allowed"
    return [f"the check that failed: {outcome.check}{error}{outcome.where and ', '}{outcome.where}"]


def _measured(stored: StoredTrial, record: records.Record | None) -> list[str]:
    """Where the accelerator was asked: what it said, and of what that can be told apart."""
    measured = records.measured_config(record, stored.trial.config)
    if record is None or measured is None:
        return []
    line = measured_line(measured, stored.estimate_us)
    count = f"{len(measured.timed.samples_us)} samples"
    lines = [f"measured {line}, {count}"] if line else []
    others = against_others(measured, record.default.config)
    return [*lines, *(f"  {sentence}" for sentence in others)]


def _published(stored: StoredTrial, record: records.Record | None) -> list[str]:
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


_PATIENCE_S = 10.0  # of a person


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--chip", help="TPU generation; default: the attached TPU.")
@click.option(
    "--toolchain",
    metavar="jax=…,jaxlib=…,libtpu=…",
    help="Versions; default: those installed here.",
)
@click.option("--url", metavar="URL", help="Ask this service, not a database.")
@shared.accept_claimed_option
@shared.database_and_json
def lookup(
    kernel: str,
    words: ProblemWords,
    chip: str | None,
    toolchain: str | None,
    url: str | None,
    accept_claimed: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Print the published config of KERNEL for this problem, chip and toolchain.

    If none is published for exactly these, the answer comes from another toolchain, a rule or a
    near shape, and says so. Exit code 1 when there is nothing. KERNEL is a name, or
    path/to/file.py:NAME. Only a compiler process can read --args of a function, which needs JAX.
    """
    versions, target = shared.parse_toolchain(toolchain), chip_or_attached(chip)
    if url is not None:
        from autotune.answering.client import ServiceAnswers

        if database is not None:
            raise InvalidInputError("give --url or --db, not both")
        client = ServiceAnswers(
            url, timeout_s=_PATIENCE_S, accept_claimed=accept_claimed, strict=True
        )
        if words.call:
            spec, problem = called_problem(kernel, words)
            (match,) = client.lookup([spec.key(problem, target, versions)])
        else:
            match = client.lookup_shape(kernel, words, chip=target, toolchain=versions)
        _print_match(match, client.snapshot, as_json)
        sys.exit(0 if match.record else 1)
    with shared.open_database(database, create=False) as store:
        spec, problem = searched_problem(store, kernel, words)
        key = spec.key(problem, target, versions)
        now = key_now(store, key)
        changed, key = source_change(store, key, now), now
        match = match_in_words(match_in(store, key, claimed=accept_claimed), key)
        if record := match.record:
            estimate = _in_this_database(store, record.key, record.estimate)
            match = replace(match, record=replace(record, estimate=estimate))
        others = [] if match.record else _others(store, key)
    if changed:
        echo(changed, err=True)
    if as_json and not match.record:
        shared.print_json({"match": None, "why": match.why, "nearby": others})
    else:
        _print_match(match, None, as_json)
        for line in () if as_json else others:
            echo(f"  {line}", err=True)
    sys.exit(0 if match.record else 1)


def _print_match(match: Match, snapshot: int | None, as_json: bool) -> None:
    """``snapshot``: of the service; None for the newest of a database."""
    of = "" if snapshot is None else f" (snapshot {snapshot})"
    if as_json:
        record = to_data(replace(in_words(match.record), rule=None)) if match.record else {}
        if match.config is not None:
            record["config"] = to_data(match.config)
        said = {"match": match.kind, "why": match.why, "snapshot": snapshot}
        shared.print_json({**said, "standing": match.record and match.record.standing, **record})
    elif match.config is not None and match.kind == RULE:
        echo(str(match.config))
        echo(f"  {match.kind}: {match.why}{of}")
    elif match.record:
        _print(in_words(match.record))
        echo(f"  {match.kind}: {match.why}{of}")
    else:
        echo(f"{match.kind}: {match.why}{of}", err=True)


def _others(store: "Store", key: Key) -> list[str]:
    """What is published for the same kernel: so that a miss tells where it missed."""
    lines = []
    for record in store.records(key.kernel):
        other = record.key
        same = {
            "another fingerprint of the kernel": other.fingerprint == key.fingerprint,
            f"chip {other.chip}": other.chip == key.chip,
            str(other.toolchain): other.toolchain == key.toolchain,
            str(other.problem): other.problem == key.problem,
        }
        different = [what for what, is_same in same.items() if not is_same]
        if len(different) == 1:
            lines.append(f"published for {different[0]}, otherwise the same")
    return lines[:5]


def _print(record: records.Record) -> None:
    echo(str(record.config))
    bar = f" {error_bar(e.error)}" if (e := record.estimate).time_us == record.time_us else ""
    echo(f"  {record.method} {micros(record.time_us)}{bar}; {record.reason}")
    for note in e.notes:
        echo(f"  {note}")
    if record.method == records.Method.MEASURED and record.measurement is not None:
        echo(
            f"  {record.measurement.method} on {record.measurement.device}; estimated "
            f"{micros(record.estimate.time_us)}"
        )
    echo(f"  {record.verification}")
    echo(f"  {who_says(record)}")
    if record.baseline.note:
        echo(f"  {record.baseline.note}")
    echo(f"  {record.key}")
    echo(f"  {counted(record.trials, 'trial')}, published {record.created_at:%Y-%m-%d %H:%M} UTC")
    for check in record.checks:
        echo(f"  {checked(check)}")
