"""``autotune kernels`` and ``autotune chips``."""

import click

from autotune.cli.shared import interpreter_options, json_option, one_compiler, print_json
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeKernel
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, aliases
from autotune.wording.output import echo


@click.command()
@click.argument("name", required=False)
@interpreter_options
@json_option
def kernels(name: str | None, python: str, as_json: bool) -> None:
    """List the installed kernels, or describe the one called NAME (or path/to/file.py:NAME).

    Of the packages that kernels are of: which release --python has, and with which they were tried.
    """
    from autotune.compiling.environments.environment import releases
    from autotune.declaring.discovery import catalogue
    from autotune.tables.hooks import PACKAGES

    if name is not None:
        _describe(name, python, as_json)
        return
    refs = catalogue()
    if as_json:
        print_json({kernel: str(ref) for kernel, ref in refs.items()})
        return
    if (installed := releases(python, PACKAGES)) is None:
        raise InvalidInputError(f"{python} does not answer as a Python does: choose another")
    for kernel, ref in refs.items():
        echo(f"{kernel:<{max(map(len, refs))}} {ref}")
    for package in PACKAGES.values():
        has = installed.get(package.name, "none")
        tried = " and ".join(package.releases)
        echo(f"{package.name}: installed {has}, kernels were tried with {tried}", err=True)


def _describe(name: str, python: str, as_json: bool) -> None:
    """Dimensions, dtypes, options and axes: asks a compiler process, which needs JAX."""
    from autotune.declaring.discovery import find_kernel

    ref = find_kernel(name)
    with one_compiler(python) as pool:
        spec = pool.ask(DescribeKernel(ref=ref))
    if as_json:
        print_json(to_data(spec))
        return
    echo(f"{spec.name} ({spec.fingerprint}): {' '.join(spec.doc.split())}")
    echo(f"  --shape   {'x'.join(spec.problems.dims)}")
    echo(f"  --dtype   {', '.join(spec.problems.dtypes)}")
    for option in spec.problems.options:
        values = "|".join(str(value).lower() for value in option.choices)
        default = str(option.default).lower()
        echo(f"  --option  {option.name}={values} (default {default})")
    echo(f"  tunes     {', '.join(spec.axes)}; grid order of {', '.join(spec.grid) or 'none'}")


@click.command()
@json_option
def chips(as_json: bool) -> None:
    """List the TPU generations, their core mode, and the names they are known by."""
    from autotune.estimating.simulator.constants import CHIPS

    if as_json:
        known = {
            c.value: {
                "cores_per_device": c.cores_per_device,
                "timed": c in CHIPS,
                "aliases": aliases(c),
            }
            for c in Chip
        }
        print_json(known)
        return
    for chip in Chip:
        mode = "megacore, 2 cores" if chip.is_megacore else "1 core"
        also = ", ".join(aliases(chip))
        timed = "" if chip in CHIPS else "compiled and checked, not timed; "
        echo(f"{chip:<4} one device = {mode:<18} {timed}also: {also}")
