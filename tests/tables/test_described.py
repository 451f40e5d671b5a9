"""Descriptions mean what the projects mean: their own lookups are asked."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.declaring.discovery import installed_kernels
from autotune.tables.description import DESCRIPTIONS, Description
from autotune.tables.levels import leaf, path_of, read_python
from autotune.tables.table import TableRow
from benchmarks.tables import compared, counted, is_cut, sources_of

RECORDED = json.loads((Path(__file__).parents[1] / "samples" / "field_tables.json").read_text())
BY_NAME = {table.name: table for table in DESCRIPTIONS}
FOR_REASONS = "asks for another key", "does not look", "Error:", "no argument", "drops the whole"


def test_meanings_are_of_the_catalogue() -> None:
    kernels = {meaning.kernel for table in DESCRIPTIONS for meaning in table.kernels}
    assert kernels <= set(installed_kernels())


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_rows_are_what_the_lookup_returned(name: str) -> None:
    """``python -m benchmarks tables --sample`` has asked the lookups of the field."""
    table, recorded = BY_NAME[name], RECORDED[name]
    rows = list(read_python(table, recorded["text"], "sample"))
    assert len(rows) == len(recorded["asks"])
    for row, asked, taken in zip(rows, recorded["asks"], recorded["taken"], strict=True):
        assert isinstance(row, TableRow), row
        assert {name: str(value) for name, value in table.asks(row)[0].items()} == asked
        assert taken is None or all(is_cut(taken[n], size) for n, size in row.value.items())
        _is_written_as_it_was_read(table, row)


def _is_written_as_it_was_read(table: Description, row: TableRow) -> None:
    ((config,), _) = replace(table, kernels=()).configs(row)
    (pair,) = table.rows_of(config)
    again = TableRow(place=row.place, key=pair[0], value=pair[1])
    assert path_of(table, again.key) == row.path
    assert leaf(table, again) == leaf(table, row)


@pytest.mark.slow
@pytest.mark.parametrize("table", DESCRIPTIONS, ids=lambda table: table.name)
def test_every_row_of_the_field(table: Description) -> None:
    """Under the packages of an interpreter: what a lookup returns for the key of a row is what was
    read, or there is a reason for which it never gets there."""
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python:
        pytest.skip("AUTOTUNE_FIELD_PYTHON names no interpreter with packages of others")
    if not (sources := sources_of(table, python)):
        pytest.skip(f"it does not have {table.name}")
    counts = counted(table, python)
    assert counts is not None
    empty = counts.unread["no config: tokamax takes its own heuristics there"]
    assert counts.read >= 0.9 * (counts.rows - empty)
    for row, why in compared(sources, python):
        assert not why or any(reason in why for reason in FOR_REASONS), (row, why)
    for row in sources[0].table.rows if table.module else ():
        _is_written_as_it_was_read(table, row)
