"""Whether a library finds its rows is what its own lookup says."""

import sys
from collections import Counter
from os import system
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.catalogue.discovery import named_kernel
from autotune.child.table_lookup import _row
from autotune.domain.chip import Chip
from autotune.errors import CompilerUnavailableError, UnknownNameError
from autotune.tables.audit import Reach, RowAudit, TableAudit
from autotune.tables.formats import find_tables
from tests.samples.tables import FLASH, LIBRARY, QUANTIZED

NAME = "tpu-inference-quantized-matmul"
FLASH_NAME = "tpu-inference-flash-attention"
FILE = "tpu_inference/kernels/quantized_matmul/tuned_block_sizes.py"


def library(folder: Path) -> Path:
    """Where its table is to be; beside it a JAX that has devices and nothing else."""
    (folder / "jax.py").write_text("devices = None")
    file = folder / FILE
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose lookup rounds rows up to a power of two."""
    file = library(tmp_path)
    file.write_text(LIBRARY)
    user = file.parent / "kernel.py"
    user.write_text("from .tuned_block_sizes import get_tuned_block_sizes")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def _audited(name: str, chip: Chip, form: str | None = None) -> dict[str, RowAudit]:
    found = find_tables(name, form, sys.executable)
    ((_, rows),) = TableAudit(python=sys.executable).reaches(found, [chip])
    return {one.audit.place: one.audit for one in rows}


@pytest.mark.usefixtures("site")
def test_each_row_is_asked_for_under_the_named_chip() -> None:
    rows = _audited(NAME, Chip.V6E)
    said = {place: (one.reach, one.why) for place, one in rows.items()}
    assert said == {
        "line 12": (Reach.REACHED, ""),
        "line 13": (Reach.OTHER_ROW, "its lookup asks for n_batch=1024"),
        "line 14": (Reach.FALLBACK, "its lookup asks for n_batch=2048"),
        "line 16": (Reach.REFUSED, "AssertionError: too few rows"),
    }
    assert [one.reach for one in _audited(NAME, Chip.V7X).values()] == [Reach.REACHED]
    assert _audited(NAME, Chip.V5E) == {}


def test_a_table_that_nothing_imports_is_not_found(site: Path) -> None:
    (site / FILE).with_name("kernel.py").write_text("from .other import tuned_block_sizes")
    assert {one.reach for one in _audited(NAME, Chip.V7X).values()} == {Reach.NOT_IMPORTED}


def test_a_file_is_asked_for_without_being_executed(site: Path) -> None:
    proof = site / "executed"
    (site / "theirs.py").write_text(f"open({str(proof)!r}, 'w')\n{QUANTIZED}")
    rows = _audited(str(site / "theirs.py"), Chip.V6E, NAME)
    assert [one.reach for one in rows.values()] == [Reach.REACHED] * 2
    assert not proof.exists()


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(QUANTIZED)
    with pytest.raises(CompilerUnavailableError, match="No module named 'tpu_inference'"):
        _audited(str(tmp_path / "t.py"), Chip.V6E, NAME)


def test_jax_rounds_what_it_asks_for() -> None:
    """Its keys are reached exactly where every size is a power of two."""
    found = find_tables("jax-rpa", None, sys.executable)
    ((_, rows),) = TableAudit(python=sys.executable).reaches(found, [Chip.V6E])
    rounded = ("num_q_heads_per_blk", "num_kv_heads_per_blk", "page_size", "max_model_len")
    for one in rows:
        sizes = [one.row[name] for name in (*rounded, "max_num_batched_tokens")]
        is_power = all(size & (size - 1) == 0 for size in sizes)
        fits = one.row["max_model_len"] >= one.row["page_size"]
        assert (one.audit.reach is Reach.REACHED) == (is_power and fits), one.audit
    assert min(Counter(one.audit.reach for one in rows).values()) > 100


def test_a_table_names_no_function_and_no_file(tmp_path: Path) -> None:
    """A library calls what stands in its table: only its own classes, with their own fields."""
    proof = tmp_path / "executed"
    own = "TunableParams(block_q=640, block_k_major=2560, block_k=512, block_b=1)"
    calls = (f"(system(command='touch {proof}'), 1, 1, 1)", f"system(command='touch {proof}')")
    for call in (*calls, own.replace("640", calls[1]), own.replace("block_b", "command")):
        (tmp_path / "t.py").write_text(FLASH.replace(own, call))
        (found,) = find_tables(str(tmp_path / "t.py"), FLASH_NAME, sys.executable)
        assert (len(found.table.rows), len(found.table.unread)) == (0, 1)
    module = SimpleNamespace(T={}, system=system, ask=lambda: None)
    request = {"classes": [], "variable": "T", "function": "ask", "file": None}
    made = {"made": "system", "fields": {"command": f"touch {proof}"}}
    with pytest.raises(KeyError):
        _row(module, request, {"value": made, "asks": [{}], "depth": 1})  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        named_kernel(f"{tmp_path / 't.py'}:KERNEL")
    assert not proof.exists()
