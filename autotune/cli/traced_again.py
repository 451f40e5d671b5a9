"""``autotune apply --model``: which blocks the calls of a model run before a patch, and after."""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import chdir, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from autotune.cli.collect import calls_of
from autotune.cli.shared import write_file
from autotune.cli.step import StepQuestion
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import Collected
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.known_config import named
from autotune.domain.problem import Config, parsed_parts
from autotune.domain.record import Record
from autotune.domain.workload import WorkloadProblem, workload_problem
from autotune.tables.description import Description, NotInCatalogueError
from autotune.tables.export import FileChange, known_config
from autotune.tables.table import Named

Rows = Sequence[tuple[Description | None, Record]]
"""Records, each with a table that has it, or None: there is none of its kernel."""


class TracedModel(NamedTuple):
    """A function, with the packages in ``folders`` of a ``repository``."""

    question: StepQuestion
    python: str
    repository: Path
    folders: Sequence[Path]

    def patch(self, changes: Sequence[FileChange], rows: Rows, *, dry_run: bool) -> Named:
        """Changes the repository, or a copy; each call then, and which rows none runs. ``error``:
        why that is not known."""
        chip = self.question.chips[0]
        of_chip = [(table, record) for table, record in rows if record.key.chip == chip]
        likely = tuple(dict.fromkeys(record.config for _, record in of_chip))
        before = after = self._calls(self.repository, likely)
        with tempfile.TemporaryDirectory(prefix="autotune-patched-") as folder:
            project = self.repository
            if dry_run:
                changes = [] if before.error else changes
                project = self._copied(Path(folder).resolve(), changes) if changes else project
            for change in changes:
                write_file(project / change.file, change.after)
            if changes and not before.error:
                after = self._calls(project, likely)
        error = after.error and f"{'before' if before.error else 'with'} the patch: {after.error}"
        return {
            "chip": chip,
            "calls": [] if error else _compared(before, after),
            "unreached": [] if error else _unreached(of_chip, after.problems),
            "error": error,
        }

    def _copied(self, folder: Path, changes: Sequence[FileChange]) -> Path:
        """Without its history and its environments. Raises ``InvalidInputError`` where a change of
        the copy would be one of another file."""
        project, remedy = folder / self.repository.name, "leave out --dry-run, or --model"
        hidden = shutil.ignore_patterns(".*", "__pycache__", "site-packages")
        try:
            shutil.copytree(self.repository, project, symlinks=True, ignore=hidden)
        except OSError as error:
            why = error.args[0][0][2] if isinstance(error, shutil.Error) else error
            raise InvalidInputError(f"the project cannot be copied: {why}: {remedy}") from error
        for file in (change.file for change in changes):
            if not (project / file).resolve().is_relative_to(project):
                raise InvalidInputError(f"{file} is a link out of a copy of the project: {remedy}")
        return project

    def _calls(self, project: Path, likely: tuple[Config, ...]) -> Collected:
        """With ``project`` wherever the repository is named."""

        def moved(text: object) -> str:
            place = rf"(?<![\w./-]){re.escape(str(self.repository))}(?![\w.-])"
            return re.sub(place, str(project), str(text))

        given, chip = self.question.ref, self.question.chips[0]
        ref, words = replace(given, path=moved(given.path)), ProblemWords(call=moved(given.call))
        paths = [*map(moved, self.folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        python = str(Path(shutil.which(self.python) or self.python).absolute())
        try:
            here = Path(moved(Path.cwd()))
            here = here if here.is_dir() else project  # a copy has no hidden folders
            surroundings = {"PYTHONPATH": os.pathsep.join(paths)}
            with patch.dict(os.environ, surroundings), chdir(here):
                return calls_of(ref, words, chip, python, likely=likely)
        except AutotuneError as error:
            return Collected([], [], str(error))


def _compared(before: Collected, after: Collected) -> list[Named]:
    """No configs: a call is not made, or asks for tuned ones itself."""
    calls: dict[str, dict[str, Any]] = {}
    for when, collected in (("before", before), ("after", after)):
        made = [(str(p), p.config, p.weight) for p in collected.problems]
        for kernel in collected.undeclared:
            of_each = ((p.grid, *p.blocks) for p in kernel.pipelines)
            grids = [(kernel.grid, *kernel.blocks), *of_each]
            texts = [["x".join(map(str, sizes)) for sizes in each] for each in grids]
            cut = " ".join(f"grid={grid},blocks={' '.join(cuts)}" for grid, *cuts in texts)
            made.append((" ".join((kernel.name, *kernel.operands)), cut, kernel.weight))
        for name, blocks, weight in made:
            new = {"call": name, "weight": 0.0, "configs_before": [], "configs_after": []}
            call = calls.setdefault(name, new)
            call[f"configs_{when}"] += [blocks] * (blocks not in ("", *call[f"configs_{when}"]))
            call["weight"] += weight * (when == "after")
    for call in calls.values():
        call |= {when: " and ".join(call[f"configs_{when}"]) for when in ("before", "after")}
    return list(calls.values())


def _unreached(rows: Rows, calls: Sequence[WorkloadProblem]) -> list[Named]:
    """A lookup may round to a row: any whose blocks a call runs may be its, if it has none else."""
    called = {call.kernel for call in calls}
    rows = [(t, record) for t, record in rows if t or record.key.kernel in called]
    of_rows = [[call for call in calls if _has_row(call, *row)] for row in rows]
    others = [call for call in calls if not any(call in of_row for of_row in of_rows)]
    return [
        {"record": known_config(record).source, "has_call": bool(of_row), "has_table": bool(table)}
        for (table, record), of_row in zip(rows, of_rows, strict=True)
        if (record.key.kernel, named(record.config.axes))
        not in [(call.kernel, call.config) for call in of_row or (others if table else ())]
    ]


def _has_row(call: WorkloadProblem, table: Description | None, record: Record) -> bool:
    """Whether one row of a table is for both; without a table, whether their problem is one."""
    if table is None:
        return str(call) == str(workload_problem(record.key.kernel, record.key.problem))
    if call.kernel != record.key.kernel or call.args:
        return False
    known, parts = known_config(record), ",".join([call.shape, *call.options])
    asked = {**parsed_parts(parts, "problem"), "dtype": call.dtype or ""}
    with suppress(NotInCatalogueError, KeyError):
        return table.rows_of(replace(known, problem=tuple(asked.items()))) == table.rows_of(known)
    return False
