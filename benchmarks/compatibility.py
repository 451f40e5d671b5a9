"""Which Python, JAX, libtpu and chip work together, and how far?

    AUTOTUNE_ENVIRONMENTS=DIR python -m benchmarks compatibility [--jax VERSION …] [--write]

The default config of a small matrix product, in every environment of ``autotune env`` and on every
chip: is it traced, compiled, estimated (with constants fitted to this libtpu, or borrowed from the
nearest) and verified? ``--write`` puts the table into docs/results/compatibility.md. No TPU
was used.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.compiling.environments.environment import (
    Environment,
    environments,
    environments_folder,
    find_environment,
)
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel
from autotune.domain.key import Chip
from autotune.estimating.simulator.constants import nearest_series
from benchmarks.field import FieldRow, looked_at
from benchmarks.harness.documents import DOCS, markdown_table, write_below_mark

CHIPS = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)
KERNEL, SHAPE = "matmul", "512x512x512"
STEPS = ("traces", "compiles", "estimated", "verified", "measured")
HEAD = ("Python", "jax", "libtpu", "chip", *STEPS)


@dataclass(frozen=True, slots=True)
class CompatibilityRow:
    environment: Environment
    chip: Chip
    row: FieldRow

    def cells(self) -> tuple[str, ...]:
        environment, done = self.environment, self.row.done
        marks = ("yes" if step in done else "no" for step in ("traced", "compiled"))
        estimated = self._constants() if "estimated" in done else "no"
        verified = "yes" if "verified" in done else "no"
        toolchain = (environment.python_version, environment.name, environment.toolchain.libtpu)
        return (*toolchain, self.chip.value, *marks, estimated, verified, "never")

    def _constants(self) -> str:
        libtpu = self.environment.toolchain.libtpu
        series = nearest_series(self.chip.value, libtpu)
        is_series = f"{libtpu}.".startswith(f"{series}.")
        return "own constants" if is_series else f"borrowed: {series}"

    def lacks(self) -> str | None:
        """Why a step failed, in the program's words."""
        if {"traced", "compiled", "estimated", "verified"} <= self.row.done:
            return None
        notes = "; ".join(self.row.notes).replace(f"{DOCS.parent}/", "")
        return f"- jax {self.environment.name} on {self.chip}: {notes}"


def looked_through(environment: Environment) -> Iterator[CompatibilityRow]:
    """One kernel on every chip, under one JAX."""
    ref = find_kernel(KERNEL)
    with CompilerPool(1, python=environment.python) as pool:
        problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(SHAPE, None, ())
        for chip in CHIPS:
            row = looked_at(pool, ref, f"{KERNEL} {SHAPE}", problem, chip)
            yield CompatibilityRow(environment, chip, row)


def report(rows: list[CompatibilityRow]) -> str:
    lacks = "\n".join(filter(None, (row.lacks() for row in rows)))
    return f"{markdown_table(HEAD, *(row.cells() for row in rows))}\n\n{lacks}".strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jax", action="append", default=[], help="only these environments")
    parser.add_argument("--write", action="store_true", help="put it into the document, too")
    options = parser.parse_args()
    folder = environments_folder()
    chosen = [find_environment(folder, version) for version in options.jax] or environments(folder)
    rows = []
    for environment in chosen:
        for row in looked_through(environment):
            print(*row.cells(), *row.row.notes, flush=True)
            rows.append(row)
    page = report(rows)
    print(f"\n{page}")
    if options.write:
        write_below_mark("results/compatibility.md", "compatibility", page)
