"""``autotune calibrate``: what measurements say of the estimates, and what would fit better."""

from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from autotune.cli.shared import database_and_json, open_database, print_json
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.wording.output import echo
from autotune.wording.units import counted

if TYPE_CHECKING:
    from autotune.estimating.cost_model.calibration import EstimateErrors, Proposal

_MOST_KEYS = 10_000


@click.command()
@click.option(
    "--from-measurements", is_flag=True, help="Compare the measured times of the database."
)
@click.option(
    "--from-tables",
    is_flag=True,
    help="Compare the times of imported tables, whose toolchain nobody knows.",
)
@database_and_json
def calibrate(
    from_measurements: bool,
    from_tables: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Say how far estimates are from measurements of the same configs, by kind of kernel, and
    propose factors for the chip's constants. Nothing is applied.

    Exit code 1 when nothing was measured.
    """
    from autotune.estimating.cost_model.calibration import (
        errors,
        points,
        points_elsewhere,
        proposals,
    )

    if not (from_measurements or from_tables):
        raise InvalidInputError(
            "say what to calibrate from: --from-measurements, or --from-tables for times of "
            "`autotune import`"
        )
    if find_spec("scipy") is None:
        from autotune.compiling.environments.packages import pip_install

        raise AutotuneError(f"autotune calibrate needs SciPy: {pip_install('search')}")
    with open_database(database, create=False) as store:
        compared = []
        if from_measurements:
            compared += points((record, store.trials(record.key)) for record in store.records())
        if from_tables:
            keys = [searched.key for searched in store.history(limit=_MOST_KEYS)]
            compared += points_elsewhere(store.known_configs(), keys, store.trials)
    group_errors, proposed = errors(compared), proposals(compared)
    if as_json:
        print_json(
            {
                "points": len(compared),
                "errors": [asdict(e) for e in group_errors],
                "proposals": [asdict(p) for p in proposed],
            }
        )
    else:
        _print(group_errors, proposed)
    raise SystemExit(0 if compared else 1)


def _print(group_errors: "list[EstimateErrors]", proposed: "list[Proposal]") -> None:
    if not group_errors:
        echo("no config of this database was measured by device time")
    for e in group_errors:
        echo(
            f"{e.group}: {counted(e.points, 'config')}, estimate {e.bias:+.1%} of the measurement, "
            f"typical error {e.typical:.1%}, worst {e.worst:.1%}"
        )
    for p in proposed:
        factors = ", ".join(f"{name} × {factor:.2f}" for name, factor in p.factors.items())
        echo(
            f"{p.chip}, proposed from {counted(p.points, 'config')}, not applied: {factors}; "
            f"typical error {p.before:.1%} without, {p.after:.1%} with them"
        )
