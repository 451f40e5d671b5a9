"""A record that a kernel's own rules refuse is not used: the next one is, and who asks is told."""

from collections.abc import Collection
from dataclasses import fields, replace

import jax
import pytest
from jax.experimental import pallas as pl

import autotune
from autotune.answering.matching import DEFAULT, Index
from autotune.compiling.child.devices import known_info
from autotune.compiling.child.static_rules import refusal
from autotune.domain.compilers import DescribeChip
from autotune.domain.key import Chip
from autotune.domain.outcome import Illegal, OutOfVmem
from autotune.domain.problem import Config, make_config
from autotune.python import verdicts
from autotune_kernels.from_jax import megablox
from tests.samples import meshed
from tests.samples.records import record

X = jax.ShapeDtypeStruct((8192, 8192), "float32")
FITS, MISALIGNED, TOO_LARGE = 64, 100, 4096


@autotune.tunable(rows=[FITS, MISALIGNED, TOO_LARGE, 256, 24, 8])
def doubled(x, *, rows=8):
    if rows == 24:
        raise ValueError("24 rows\nare too odd")

    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    call = pl.pallas_call(
        body, grid=(pl.cdiv(x.shape[0], rows),), in_specs=[spec], out_specs=spec, out_shape=x
    )
    return call(x)


@autotune.tunable(rows=[16, 8])
def nowhere(x, *, rows=8):
    raise ValueError(f"{rows} rows: nothing runs here")


class Ranked:
    """A source of these rows, one after another where some cannot be taken."""

    keeps_proofs = False

    def __init__(self, *rows, **changes):
        self.configs, self.changes = [make_config({"rows": n}) for n in rows], changes
        self.refused: Collection[Config] = ()

    def match(self, key, accept=(), without=()):
        self.refused = without
        made = replace(record(key), **self.changes)
        left = [replace(made, config=c) for c in self.configs if c not in without]
        return Index(left[:1]).match(key, accept)

    def miss(self, key, kind=DEFAULT):
        """Nobody counts."""


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield
    autotune.configure()
    verdicts._known.cache_clear()


def rows_of(*published, function=doubled, chip="v5e"):
    """Those that are taken, the source, and why."""
    source = Ranked(*published)
    autotune.configure(source=source, chip=chip)
    answer = function.answer(X)
    rows = answer.config["rows"]
    assert isinstance(rows, int)
    return rows, source, answer.why


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (MISALIGNED, "100 is not a multiple of 8"),
        (TOO_LARGE, "MiB of VMEM"),
        (24, "is refused by the kernel (ValueError: 24 rows are too odd)"),
    ],
)
def test_the_next_record_is_taken_and_the_source_is_told(refused, why, caplog):
    rows, source, _ = rows_of(refused, FITS)
    assert rows == FITS and [config["rows"] for config in source.refused] == [refused]
    assert why in caplog.text


def test_where_nothing_else_is_published_the_default_says_why():
    rows, _, why = rows_of(MISALIGNED)
    assert rows == 8 and "cannot run: block (100, 8192)" in why


def test_a_verdict_is_kept(monkeypatch):
    for published in (MISALIGNED, FITS):
        rows_of(published)
    verdicts._known.cache_clear()  # as another process

    def judged_again(*_):
        raise AssertionError("it is traced once more")

    monkeypatch.setattr(verdicts, "_judge", judged_again)
    assert [rows_of(published)[0] for published in (MISALIGNED, FITS)] == [8, FITS]


def taken_from_database(**changes):
    """Of one that says what it has proven."""
    source = Ranked(MISALIGNED, **changes)
    source.keeps_proofs = True
    autotune.configure(source=source, chip="v5e")
    return doubled.answer(X).config["rows"]


def test_what_is_proven_for_exactly_this_is_not_traced_again():
    assert taken_from_database() == MISALIGNED  # which no search proves


@pytest.mark.parametrize("changes", [{"pushed_by": "who"}, {"verified": False}])
def test_what_is_only_said_is_traced(changes):
    assert taken_from_database(**changes) == 8


def test_what_was_proven_with_another_jax_is_traced(monkeypatch):
    monkeypatch.setattr(jax, "__version__", "0.9.0")
    assert taken_from_database() == 8


def test_a_model_waits_once_for_what_takes_too_long(monkeypatch):
    asked = []
    monkeypatch.setattr(verdicts, "_judge", lambda *given: asked.append(given))  # no verdict
    assert [rows_of(FITS)[0] for _ in range(2)] == [FITS, FITS]
    assert len(asked) == 1
    verdicts._known.cache_clear()  # another process asks again: nothing was shown
    assert rows_of(FITS)[0] == FITS and len(asked) == 2


def test_what_runs_nowhere_here_is_no_fault_of_a_record():
    assert rows_of(16, function=nowhere)[0] == 16


GROUPED = megablox.GMM.problem_spec.parse("m=8192,k=8192,n=8192,groups=4", "float32")
MESHED = meshed.KERNEL.problem_spec.parse("rows=4096,devices=4")


@pytest.mark.parametrize(
    ("kernel", "problem", "axes", "refused"),
    [
        (megablox.GMM, GROUPED, {}, None),  # its grid is dynamic
        (megablox.GMM, GROUPED, {"tile_k": 100}, Illegal),
        (megablox.GMM, GROUPED, dict.fromkeys(("tile_m", "tile_k", "tile_n"), 4096), OutOfVmem),
        (meshed.KERNEL, MESHED, {"block": 256}, None),
        (meshed.KERNEL, MESHED, {"block": 4}, Illegal),
    ],
)
def test_what_is_known_of_dynamic_grids_and_meshes(kernel, problem, axes, refused):
    default = make_config(kernel.default_axes(problem, "v5e"), grid_order=kernel.grid)
    config = make_config({**default, **axes}, grid_order=kernel.grid)
    said = refusal(kernel, problem, config, default, Chip.V5E, "")
    assert said is None if refused is None else isinstance(said, refused)


@pytest.mark.slow
@pytest.mark.parametrize("chip", Chip)
def test_what_is_known_of_a_chip_is_what_its_compiler_says(pool, chip):
    asked = pool.ask(DescribeChip(chip=chip))
    known = known_info(chip, jax.__version__, "")
    assert {
        f.name for f in fields(known) if getattr(known, f.name) != getattr(asked, f.name)
    } == set()
