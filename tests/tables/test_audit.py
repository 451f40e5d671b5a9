"""Whether a library finds its rows is what its own lookup says."""

import json
import sys
from collections import Counter
from os import system
from types import SimpleNamespace

import pytest

from autotune.cli.audit import _write
from autotune.compiling.child.table_lookup import _row
from autotune.declaring.discovery import named_kernel
from autotune.domain.errors import CompilerUnavailableError, InvalidInputError, UnknownNameError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig
from autotune.domain.problem import ProblemSpec
from autotune.tables.audit import Reach, RowStanding, TableAudit, _Judge
from autotune.tables.formats import find_tables
from tests.samples.tables import FLASH, LIBRARY, QUANTIZED

NAME = "tpu-inference-quantized-matmul"
FLASH_NAME = "tpu-inference-flash-attention"
FILE = "tpu_inference/kernels/quantized_matmul/tuned_block_sizes.py"


def library(folder):
    """Where its table is to be; beside it a JAX that has devices and nothing else."""
    (folder / "jax.py").write_text("devices = None")
    file = folder / FILE
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A package whose lookup rounds rows up to a power of two."""
    file = library(tmp_path)
    file.write_text(LIBRARY)
    kernel = file.with_name("kernel.py")
    kernel.write_text("from .tuned_block_sizes import get_tuned_block_sizes")
    layer = tmp_path / "tpu_inference" / "layers" / "linear.py"
    layer.parent.mkdir()
    layer.write_text("from ..kernels.quantized_matmul.kernel import matmul")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def _audited(name, chip, form=None):
    tables = find_tables(name, form, sys.executable)
    ((_, rows),) = TableAudit(python=sys.executable).reaches(tables, [chip])
    return {row.audit.place: row.audit for row in rows}


@pytest.mark.usefixtures("site")
def test_each_row_is_asked_for_under_the_named_chip():
    rows = _audited(NAME, Chip.V6E)
    said = {place: (row.reach, row.why) for place, row in rows.items()}
    assert said == {
        "line 12": (Reach.REACHED, ""),
        "line 13": (Reach.OTHER_ROW, "its lookup asks for n_batch=1024"),
        "line 14": (Reach.FALLBACK, "its lookup asks for n_batch=2048"),
        "line 16": (Reach.REFUSED, "AssertionError: too few rows"),
    }
    assert [row.reach for row in _audited(NAME, Chip.V7X).values()] == [Reach.REACHED]
    assert _audited(NAME, Chip.V5E) == {}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/quantized_matmul/kernel.py", "from .other import get_tuned_block_sizes"),
        ("kernels/quantized_matmul/kernel.py", "from .tuned_block_sizes import TunedValue"),
        ("layers/linear.py", "from ..kernels.quantized_matmul import util"),
    ],
)
def test_a_table_that_no_layer_uses(site, file, source):
    (site / "tpu_inference" / file).write_text(source)
    assert {row.reach for row in _audited(NAME, Chip.V7X).values()} == {Reach.NOT_USED}


def test_a_file_is_asked_for_without_being_executed(site):
    proof = site / "executed"
    (site / "theirs.py").write_text(f"open({str(proof)!r}, 'w')\n{QUANTIZED}")
    rows = _audited(str(site / "theirs.py"), Chip.V6E, NAME)
    assert [row.reach for row in rows.values()] == [Reach.REACHED] * 2
    assert not proof.exists()


def test_a_library_that_is_not_there(tmp_path):
    (tmp_path / "t.py").write_text(QUANTIZED)
    with pytest.raises(CompilerUnavailableError, match="No module named 'tpu_inference'"):
        _audited(str(tmp_path / "t.py"), Chip.V6E, NAME)


def test_jax_rounds_what_it_asks_for():
    """Its keys are reached exactly where every size is a power of two."""
    tables = find_tables("jax-rpa", None, sys.executable)
    ((_, rows),) = TableAudit(python=sys.executable).reaches(tables, [Chip.V6E])
    rounded = ("num_q_heads_per_blk", "num_kv_heads_per_blk", "page_size", "max_model_len")
    for audited in rows:
        sizes = [audited.row.key[name] for name in (*rounded, "max_num_batched_tokens")]
        is_power = all(size & (size - 1) == 0 for size in sizes)
        fits = audited.row.key["max_model_len"] >= audited.row.key["page_size"]
        assert (audited.audit.reach is Reach.REACHED) == (is_power and fits), audited.audit
    assert min(Counter(audited.audit.reach for audited in rows).values()) > 100


def test_a_table_names_no_function_and_no_file(tmp_path):
    """A library calls what stands in its table: only its own classes, with their own fields."""
    proof = tmp_path / "executed"
    params = "TunableParams(block_q=640, block_k_major=2560, block_k=512, block_b=1)"
    calls = (f"(system(command='touch {proof}'), 1, 1, 1)", f"system(command='touch {proof}')")
    for call in (*calls, params.replace("640", calls[1]), params.replace("block_b", "command")):
        (tmp_path / "t.py").write_text(FLASH.replace(params, call))
        (source,) = find_tables(str(tmp_path / "t.py"), FLASH_NAME, sys.executable)
        assert (len(source.rows), len(source.unread)) == (0, 1)
    module = SimpleNamespace(T={}, system=system, ask=lambda: None)
    request = {"classes": [], "variable": "T", "function": "ask"}
    made = {"made": "system", "fields": {"command": f"touch {proof}"}}
    with pytest.raises(KeyError):
        _row(module, request, {"value": made, "asks": [{}], "path": [1]})
    with pytest.raises(UnknownNameError):
        named_kernel(f"{tmp_path / 't.py'}:KERNEL")
    assert not proof.exists()


def _rows(tmp_path, *rows):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tables = find_tables(str(tmp_path / "t.jsonl"), None, sys.executable)
    ((_, reached),) = TableAudit(python=sys.executable).reaches(tables, [Chip.V6E])
    return reached


def test_a_kernel_that_is_not_there_costs_its_row_only(tmp_path):
    (tmp_path / "evil.py").write_text("KERNEL = None")
    given = {"problem": "m=8", "config": "block_m=8"}
    names = (f"{tmp_path / 'evil.py'}:KERNEL", "no_such")
    rows = _rows(tmp_path, *({**given, "kernel": name} for name in names))
    work = TableAudit(python=sys.executable, limit=2)
    nothing = SimpleNamespace(size=1)
    audits = work.compiled(rows, Chip.V6E, nothing, nothing, nothing, lambda _: None)
    assert [audit.standing for audit in audits] == [RowStanding.NO_PROBLEM] * 2
    assert all(audit.why.startswith("unknown kernel") for audit in audits)


@pytest.mark.parametrize(
    ("said", "why"),
    [("m=8,splits=2", "unknown option 'splits'"), ("m=x", "m=x is not a whole number")],
)
def test_a_row_has_to_mean_all_that_it_says(tmp_path, said, why):
    spec = ProblemSpec(dims=("m",), dtypes=("bfloat16",))
    nothing = None
    for problem, assumed in ((said, {}), ("m=8", {"seqs": "64"})):
        given = {"kernel": "matmul", "problem": problem, "config": "a=1"}
        (row,) = _rows(tmp_path, given)
        judge = _Judge(nothing, nothing, row, Chip.V6E, assumed)
        assert isinstance(row.known, KnownConfig)
        if assumed:
            assert str(judge._problem(spec, row.known)) == "m=8,dtype=bfloat16"
        else:
            with pytest.raises(InvalidInputError, match=why):
                judge._problem(spec, row.known)


def test_markdown_has_what_was_not_read(tmp_path):
    (tmp_path / "t.jsonl").write_text("{")
    tables = find_tables(str(tmp_path / "t.jsonl"), None, sys.executable)
    _write(tmp_path / "found.md", tables, [])
    lines = (tmp_path / "found.md").read_text().splitlines()
    assert lines[0].endswith("t.jsonl: 0 rows") and lines[0].startswith("- json /")
    assert lines[1].startswith("- json line 1: not read: it is no JSON")
