"""``autotune calibrate``: times programs, or takes times of others, and what error bar they ask
for."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from autotune.cli import shared
from autotune.domain.calibration import MeasuredProgram, calibration_data, calibration_rows
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeToolchain
from autotune.domain.errors import InvalidInputError
from autotune.wording.measurement import programs_of
from autotune.wording.output import echo
from autotune.wording.units import counted, error_bar

_MOST_BYTES = 16 << 20
_say = partial(echo, err=True)


@click.command()
@shared.flag_option("--here", help="Time about fifty configs on the attached TPU.")
@click.option(
    "--from",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Take the times of a file that --here wrote; estimates are made again here.",
)
@shared.output_option(
    "--write",
    "output",
    help="With --here: where the times go; default: autotune-calibration-CHIP.json.",
)
@click.option(
    "--device", default=0, type=click.IntRange(min=0), help="With --here: which attached device."
)
@shared.interpreter_options
@shared.database_and_json
def calibrate(
    here: bool,
    file: Path | None,
    output: Path | None,
    device: int,
    python: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Say how far estimates are from times of the same programs, and keep the times.

    With this database, `explain`, `show` and `lookup` then print a wider error bar where the times
    ask for one, on that chip with that toolchain, and say so. None gets narrower, and nothing that
    is stored or served changes. A file takes the place of earlier ones, never of times of --here.
    Never tried on a real TPU yet. Exit code 1 when nothing was compared.
    """
    from autotune.estimating.cost_model.error_bars import errors_by_kernel, measured_bars
    from autotune.measuring.attached import attached_chips
    from autotune.measuring.session import CannotMeasureError
    from autotune.publishing import calibrating

    if here == (file is not None) or (file and (output or device)):
        raise InvalidInputError(
            "say where the times come from: --here, or --from FILE without --write and --device"
        )
    given = [] if file is None else _read(file)
    attached = [] if given else attached_chips()
    if here and not attached:
        raise InvalidInputError(
            "no TPU is attached to this machine: run this where one is, or give --from FILE"
        )
    chip = given[0].key.chip if given else attached[0]
    problems = calibrating.problems_of(given) if given else calibrating.catalogue()
    if not problems:
        raise InvalidInputError(f"{file} has times of no kernel that --here times")
    with shared.open_database(database, create=True) as store, shared.one_compiler(python) as pool:
        toolchain = pool.ask(DescribeToolchain())
        if given and toolchain not in (theirs := [row.key.toolchain for row in given]):
            raise InvalidInputError(
                f"{file} has times with {theirs[0]}, here is {toolchain}: add --jax {theirs[0].jax}"
            )
        times = calibrating.times_of(given) if given else calibrating.attached(pool, python, device)
        try:
            compared = calibrating.calibrate(pool, store, chip, problems, times, _say)
        except CannotMeasureError as error:
            raise InvalidInputError(f"{error}: give another --device, or wait for this") from error
        except KeyboardInterrupt:
            if given:
                _say(f"interrupted: nothing of {file} is kept, the same command starts anew")
                raise SystemExit(130) from None
            shared.say_interrupted(len(store.calibration(chip, toolchain)), str(store), "time")
        rows = store.calibration(chip, toolchain) if compared else []
    bars = measured_bars(rows)
    if here and not all(row.from_file for row in rows):
        output = output or Path(f"autotune-calibration-{chip}.json")
        shared.write_file(output, json.dumps(calibration_data(rows), indent=1) + "\n")
        _say(
            f"the times are in {output}, which names no machine and no person: another machine "
            f"takes them by `autotune calibrate --from {output}`"
        )
        _say("calibrating was never tried on a real TPU")
    if as_json:
        shared.print_json(
            {
                "points": len(rows),
                "errors": [asdict(each) for each in errors_by_kernel(rows)],
                "proposals": [],  # promised; none are made any more
                "rows": [to_data(row) for row in rows],
                "bars": bars and asdict(bars),
            }
        )
    else:
        for each in errors_by_kernel(rows):
            echo(
                f"{each.group}: {counted(each.points, 'program')}, estimate {each.bias:+.1%} of "
                f"the time, typical error {each.typical:.1%}, worst {each.worst:.1%}"
            )
        of = bars and f"with this toolchain and database, by {programs_of(bars)}"
        echo(f"error bars on {chip} {of}:" if of else "nothing was compared")
        for name, bar in (("kernels", bars.kernels), ("plain XLA", bars.xla)) if bars else ():
            asked = f"{error_bar(bar)} at least" if bar else "as before, too few were compared"
            echo(f"  {name}: {asked}")
    raise SystemExit(0 if compared else 1)


def _read(file: Path) -> "list[MeasuredProgram]":
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InvalidInputError(f"{file} has more than {_MOST_BYTES >> 20} MiB")
        return calibration_rows(json.loads(text), str(file))
    except (OSError, ValueError, RecursionError) as error:
        reason = f"cannot be read, {error.strerror}" if isinstance(error, OSError) else "is no JSON"
        raise InvalidInputError(
            f"{file} {reason}: give a file of times, as `autotune calibrate --here` writes on a TPU"
        ) from error
