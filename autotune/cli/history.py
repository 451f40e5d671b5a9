"""``autotune history``: what has been searched."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from autotune.cli import shared
from autotune.cli.problems import problem_options, wanted_problem
from autotune.domain.arguments import ProblemWords
from autotune.domain.browsing import SearchedKey
from autotune.domain.key import Key
from autotune.domain.record import GateState, Trial, gate_state
from autotune.wording.outcome import best_time, summary_data, trial_data
from autotune.wording.output import echo
from autotune.wording.units import micros, ratio

if TYPE_CHECKING:
    from autotune_db import SqlStore


@click.command()
@click.argument("kernel", required=False)
@click.option("--chip", help="Only this TPU generation.")
@shared.limit_option
@shared.flag_option("--trials", help="List every trial of each key.")
@problem_options
@shared.database_and_json
def history(
    kernel: str | None,
    chip: str | None,
    limit: int,
    trials: bool,
    words: ProblemWords,
    database: str | None,
    as_json: bool,
) -> None:
    """List the problems that have been searched, the latest first; only those of KERNEL, or the one
    that is named."""
    only = shared.chip_named(chip)
    with shared.open_database(database, create=False) as store:
        named, problem = wanted_problem(store, kernel, words)
        summaries = store.history(named, only, limit, problem)
        listed = [_trials(store, s.key) if trials else [] for s in summaries]
    listed_keys = list(zip(summaries, listed, strict=True))
    if as_json:
        shared.print_json(
            [
                {
                    **summary_data(summary),
                    "trials": [{"id": n, **trial_data(trial, state)} for n, trial, state in rows],
                }
                for summary, rows in listed_keys
            ]
        )
        return
    if not summaries:
        echo("nothing like that has been searched" if kernel else "nothing has been searched yet")
    for summary, rows in listed_keys:
        echo(_line(summary))
        for number, trial, state in rows:
            kind = f"{trial.outcome.kind}, {state}" if trial.estimate else trial.outcome.kind
            echo(f"  {number:>6} {micros(trial.time_us):>12}  {trial.config}  {kind}")


def _trials(store: "SqlStore", key: Key) -> list[tuple[int, Trial, GateState]]:
    ids, record = store.trial_ids(key), store.record(key)
    return [(ids[t.number], t, gate_state(t, record)) for t in store.trials(key, pushed=True)]


def _line(summary: SearchedKey) -> str:
    key, last_at = summary.key, summary.last_at or datetime.min
    best = best_time(summary.best_us, verified=summary.best_verified)
    counts = ", ".join(f"{n} {kind}" for kind, n in summary.outcomes)
    return (
        f"{last_at:%Y-%m-%d %H:%M}  {key.kernel}  {key.problem}  {key.chip}  "
        f"{key.toolchain.label}  best {best} "
        f"({ratio(summary.default_us, summary.best_us)} default)  [{counts}]"
        + f"  {summary.standing or 'nothing published'}"
    )
