"""``autotune show``: one trial, and why it takes the time it takes."""

import click

from autotune.cli.asdata import key_data, trial_data
from autotune.cli.parts import database_option, json_option, open_database, print_json
from autotune.cli.units import mebibytes, micros, seconds
from autotune.errors import UnknownNameError
from autotune.key import Key
from autotune.outcome import CompileFailed, Crashed, Estimate
from autotune.trial import Trial


@click.command()
@click.argument("trial_id", type=click.IntRange(min=1))
@database_option
@json_option
def show(trial_id: int, database: str | None, as_json: bool) -> None:
    """Explain the trial with this number (see the tables of `search` and `history`)."""
    with open_database(database, create=False) as store:
        found = store.trial(trial_id)
    if found is None:
        raise UnknownNameError(f"there is no trial {trial_id}: see autotune history")
    key, trial = found
    if as_json:
        print_json({"id": trial_id, "key": key_data(key), **trial_data(trial)})
        return
    for line in (*_heading(trial_id, key, trial), *_explanation(trial)):
        click.echo(line)
    click.echo(f"reproduce: {reproduce(key, trial)}")


def _heading(trial_id: int, key: Key, trial: Trial) -> list[str]:
    role = " (the default config)" if trial.number == 0 else ""
    return [
        f"trial {trial_id}: number {trial.number}{role} of {key.kernel} {key.problem}",
        f"  on {key.chip} with {key.toolchain}, kernel {key.fingerprint}",
        f"config: {trial.config}",
        f"outcome: {trial.outcome.kind}, {trial.outcome.reason}",
        f"took {seconds(trial.seconds)}, finished {trial.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]


def _explanation(trial: Trial) -> list[str]:
    outcome = trial.outcome
    estimate: Estimate | None = getattr(outcome, "estimate", None)
    if estimate is not None:
        return _estimate(estimate)
    if isinstance(outcome, CompileFailed) and outcome.message:
        return ["the compiler's message:", *_indented(outcome.message)]
    if isinstance(outcome, Crashed) and outcome.log_tail:
        return ["the last lines of its log:", *_indented(outcome.log_tail)]
    return []


def _estimate(e: Estimate) -> list[str]:
    """Where the time goes, in the words of the field."""
    rate = e.hbm_bytes / e.time_us / 1e3
    lines = [
        f"estimated {micros(e.time_us)} by {e.model}; the parts overlap:",
        f"  core busy      {micros(e.compute_us):>12}  {e.flops / e.time_us / 1e6:.1f} TFLOP/s",
        f"  HBM            {micros(e.memory_us):>12}  {mebibytes(e.hbm_bytes)}, {rate:.0f} GB/s",
        f"  step overhead  {micros(e.overhead_us):>12}",
        f"  pipeline fill  {micros(e.fill_us):>12}",
        f"  VMEM           {mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}",
    ]
    return lines + [f"  note: {note}" for note in e.notes]


def reproduce(key: Key, trial: Trial) -> str:
    """The command that searches the same key."""
    dims = ",".join(f"{name}={size}" for name, size in key.problem.dims)
    options = "".join(
        f" --option {name}={str(value).lower()}" for name, value in key.problem.options
    )
    return (
        f"autotune search {key.kernel} --shape {dims} --dtype {key.problem.dtype}{options} "
        f"--chip {key.chip} --trials {trial.number + 1}"
    )


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
