"""Descriptions mean what the projects mean: their own lookups are asked."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from autotune.declaring.discovery import installed_kernels
from autotune.domain.key import Chip
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Evidence
from autotune.tables.description import descriptions
from autotune.tables.export import TableExport
from autotune.tables.levels import leaf, path_of, read_python
from autotune.tables.table import TableRow
from benchmarks.harness.field_lookups import compared, counted, is_cut, sources_of
from tests.samples import records

RECORDED = json.loads((Path(__file__).parents[1] / "samples" / "field_tables.json").read_text())
BY_NAME = {table.name: table for table in descriptions()}
FOR_REASONS = "asks for another key", "does not look", "Error:", "no argument", "drops the whole"


def test_meanings_are_of_the_catalogue():
    kernels = {meaning.kernel for table in descriptions() for meaning in table.kernels}
    assert kernels <= set(installed_kernels())


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_rows_are_what_the_lookup_returned(name):
    """``python -m benchmarks tables --sample`` has asked the lookups of the field."""
    table, recorded = BY_NAME[name], RECORDED[name]
    rows = list(read_python(table, recorded["text"], "sample"))
    assert len(rows) == len(recorded["asks"])
    for row, asked, taken in zip(rows, recorded["asks"], recorded["taken"], strict=True):
        assert isinstance(row, TableRow), row
        assert {name: str(value) for name, value in table.asks(row)[0].items()} == asked
        assert taken is None or all(is_cut(taken[n], size) for n, size in row.value.items())
        _is_written_as_it_was_read(table, row)


def _is_written_as_it_was_read(table, row):
    ((config,), _) = replace(table, kernels=()).configs(row)
    (pair,) = table.rows_of(config)
    again = TableRow(place=row.place, key=pair[0], value=pair[1])
    assert path_of(table, again.key) == row.path
    assert leaf(table, again) == leaf(table, row)


@pytest.mark.parametrize("name", ["sglang-jax-rpa-v3", "tpu-inference-rpa-hd64"])
def test_a_row_with_a_window_is_of_a_problem_with_that_window(name):
    table, windows = BY_NAME[name], set()
    for row in read_python(table, RECORDED[name]["text"], "sample"):
        assert isinstance(row, TableRow)
        ((known,), why) = table.configs(row)
        ((key, _),) = table.rows_of(known)
        windows.add(dict(known.problem)["window"])
        assert not why and dict(known.problem)["window"] == (row.key["sliding_window"] or 0)
        assert key["sliding_window"] == row.key["sliding_window"]
    assert len(windows) > 1


@pytest.mark.slow
@pytest.mark.parametrize("table", descriptions(), ids=lambda table: table.name)
def test_every_row_of_the_field(table):
    """Under the packages of an interpreter: what a lookup returns for the key of a row is what was
    read, or there is a reason for which it never gets there."""
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python:
        pytest.skip("AUTOTUNE_FIELD_PYTHON names no interpreter with packages of others")
    if not (sources := sources_of(table, python)):
        pytest.skip(f"it does not have {table.name}")
    counts = counted(table, python)
    empty = counts.unread["no config: tokamax takes its own heuristics there"]
    assert counts.read >= 0.9 * (counts.rows - empty)
    for row, why in compared(sources, python):
        assert not why or any(reason in why for reason in FOR_REASONS), (row, why)
    for row in sources[0].rows if table.module else ():
        _is_written_as_it_was_read(table, row)


WRITTEN = [table for table in descriptions() if table.kernels and table.syntax != "flags"]


@pytest.mark.slow
@pytest.mark.parametrize("table", WRITTEN, ids=lambda table: table.name)
def test_a_package_of_the_field_takes_our_blocks(table, tmp_path):
    """On the contents of its wheel under ``git init``: the patch is applied, and what the library
    then returns for the key is what we published."""
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python or not (sources := sources_of(table, python)):
        pytest.skip(f"AUTOTUNE_FIELD_PYTHON names no interpreter with {table.name}")
    catalogued = ((s, r) for s in sources for r in s.rows if not table.configs(r)[1])
    source, row = next(catalogued, (None, None))
    if source is None or row is None:
        pytest.skip(f"the catalogue has no row of {table.name}")
    package = table.file.partition("/")[0]
    assert source.folder is not None
    shutil.copytree(source.folder / package, tmp_path / package, symlinks=True)
    record = _record_of(table.configs(row)[0][0])
    export = TableExport(name=table.name, python=python, repository=tmp_path)
    exported = export.of([record], exact=True)
    assert (len(exported.records), exported.refused) == (1, [])
    git = partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True, text=True)
    git(["git", "init", "-q"])
    git(["git", "apply", "-"], input=exported.text)
    for change in exported.changes:
        assert (tmp_path / change.file).read_text() == change.after
    again = TableExport(name=table.name, python=python, repository=tmp_path)
    assert again.of([record], exact=True).text == ""


def _record_of(known):
    """With another first block than the table has."""
    (first, size), *others = known.axes
    config = Config(axes=((first, int(size) // 2), *others))
    options = {name: value for name, value in known.problem if name != "dtype"}
    dims = {n: v for n, v in options.items() if type(v) is int and n != "window"}
    rest = tuple((n, v) for n, v in options.items() if n not in dims)
    dtype = dict(known.problem).get("dtype", "bfloat16")
    problem = Problem(dims=tuple(dims.items()), dtype=str(dtype), options=rest)
    key = replace(records.key(), kernel=known.kernel, problem=problem)
    key = replace(key, chip=next(iter(known.chips), Chip.V7X))
    default = Evidence(config=config, time_us=9)
    return replace(records.record(key), config=config, default=default)
