"""`autotune apply --model`: a project's own model is traced with its flags before and after."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

from autotune.cli.step import StepQuestion
from autotune.cli.traced_again import TracedModel, _unreached
from autotune.domain.compilers import Collected
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Evidence
from autotune.domain.workload import WorkloadProblem, workload_problem
from autotune.tables.export import Export, FileChange, TableExport
from autotune_db import open_store
from tests.samples import records
from tests.servers.commands import assert_one_sentence, autotune, autotune_here

BASE = """
attention_type: global
base_num_query_heads: 4
base_num_kv_heads: 4
head_dim: 128
dtype: bfloat16
use_tokamax_splash: false
"""
RUN = "base_config: base.yml\nmax_target_length: 1024\nsa_block_q: 128\nsa_block_kv: 128\n"
MODEL = """
from pathlib import Path
import jax.experimental.pallas.ops.tpu.splash_attention as splash
import maxtext
import yaml

def attend(q, k, v):
    flags = yaml.safe_load(Path(maxtext.__file__).parent.joinpath("configs/run.yml").read_text())
    names = "block_q", "block_kv", "block_kv_compute"
    sizes = splash.BlockSizes(**{name: flags.get(f"sa_{name}", 128) for name in names})
    mask = splash.MultiHeadMask([splash.CausalMask((1024, 1024))] * 4)
    make = splash.make_splash_mha
    return make(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)(q, k, v)
"""
CALL = ",".join(f"{name}=bf16[4,1024,128]" for name in "qkv")
SHAPE = {"heads": 4, "kv_heads": 4, "seq": 1024, "qk_dim": 128, "v_dim": 128}
OPTIONS = {"mask": "causal", "window": 1024, "stored": False, "segments": False}


@pytest.fixture
def project(tmp_path):
    """A checkout, with other packages of its name in it, and on the path."""
    places = "project/src", "project/.venv/site-packages", "project/build/lib", "installed"
    for place in places:
        configs = tmp_path / place / "maxtext" / "configs"
        configs.mkdir(parents=True)
        (configs / "base.yml").write_text(BASE)
        (configs / "run.yml").write_text(RUN)
        (configs / "short.yml").write_text(RUN.replace("1024", "512"))
        code = "" if place == places[0] else "raise ValueError('another one')"
        (configs.parent / "__init__.py").write_text(code)
    (tmp_path / "project" / "model.py").write_text(MODEL)
    return tmp_path / "project"


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """A checkout, and its dry run where every trace says the same."""
    project = tmp_path / "project"
    project.mkdir()
    ref = KernelRef(path=str(project / "model.py"), attribute="f")
    question = StepQuestion(ref=ref, chips=[Chip.V6E, Chip.V7X], bounds=(), budget_s=0)
    model = TracedModel(question, sys.executable, project, [project])

    def with_trace(collected):
        monkeypatch.setattr("autotune.cli.traced_again.calls_of", lambda *_, **__: collected)
        return project, lambda changes: model.patch(changes, [], dry_run=True)

    return with_trace


def _record(kernel, seq, **axes):
    dims = {**SHAPE, "seq": seq}
    problem = Problem(dims=tuple(dims.items()), dtype="bfloat16", options=tuple(OPTIONS.items()))
    key = replace(records.key(), kernel=kernel, problem=problem, chip=Chip.V6E)
    config = Config(axes=tuple(axes.items()))
    return replace(records.record(key), config=config, default=Evidence(config=config, time_us=9))


def _applied(project, blocks, *options):
    with open_store(str(project.parent / "test.db"), create=True) as store:
        for seq in (512, 1024):
            store.save_record(_record("jax_splash_attention", seq, **blocks))
        store.save_record(_record("jax_splash_attention_dq", 1024, block_q_dq=256, block_kv_dq=512))
    path = {"PYTHONPATH": str(project.parent / "installed")}
    where = ("--db", str(project.parent / "test.db"), "--python", sys.executable)
    return autotune("apply", ".", *options, *where, cwd=project, env=path)


def test_a_model_is_traced_before_and_after(project):
    """In a copy: nothing is changed."""
    blocks = {"block_q": 256, "block_kv": 512, "block_kv_compute": 256}
    model = "--model", "model.py:attend", "--args", CALL, "--chip", "v6e", "--dry-run", "--json"
    done = _applied(project, blocks, *model)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["model"]
    (call,) = found["calls"]
    assert call["before"] == "block_q=128,block_kv=128,block_kv_compute=128"
    assert call["after"] == "block_q=256,block_kv=512,block_kv_compute=256"
    assert (call["configs_before"], call["configs_after"]) == ([call["before"]], [call["after"]])
    assert (call["weight"], found["error"]) == (1, "")
    dead = {" ".join(row["record"].split(",")[:3]): row["has_call"] for row in found["unreached"]}
    shapes = "jax_splash_attention heads=4 kv_heads=4 seq=512", "heads=4 kv_heads=4 seq=1024"
    assert dead == {shapes[0]: False, f"jax_splash_attention_dq {shapes[1]}": False}
    assert [file.read_text() for file in project.rglob("run.yml")] == [RUN] * 3


@pytest.mark.slow
def test_a_model_that_is_not_traced_any_more_keeps_its_patch(project):
    """512 keys are no whole number of blocks of 384. Environments and builds stay as they are."""
    step = f'chips = ["v6e"]\nstep = "model.py:attend"\nstep_args = "{CALL}"\n[[problem]]\n'
    (project / "model.toml").write_text(f'{step}kernel = "jax_splash_attention"\n')
    blocks = {"block_q": 256, "block_kv": 512, "block_kv_compute": 384}
    done = _applied(project, blocks, "--workload", "model.toml")
    assert done.returncode == 1, done.stderr
    assert "the model cannot be traced with the patch: " in done.stdout
    runs = {file for file in project.rglob("run.yml") if file.read_text() != RUN}
    assert runs == {project / "src/maxtext/configs/run.yml"}


def _linked_file(project, out):
    (project / "run.yml").symlink_to(out / "run.yml")


def _linked_folder(project, out):
    (project / "configs").symlink_to(out)


def _pipe(project, out):
    (project / "run.yml").write_text("as it was")
    os.mkfifo(project / "pipe")


@pytest.mark.parametrize(
    ("make", "file", "said"),
    [
        (_linked_file, "run.yml", "run.yml is a link out of a copy of the project: leave out"),
        (_linked_folder, "configs/run.yml", "configs/run.yml is a link out of a copy of"),
        (_pipe, "run.yml", "is a named pipe: leave out --dry-run, or --model"),
    ],
)
@pytest.mark.parametrize("error", ["", "no such function"])
def test_a_dry_run_writes_into_its_copy_alone(make, file, said, error, traced):
    """Nor does it copy what it would not trace."""
    project, again = traced(Collected([], [], error))
    out = project.parent / "out"
    out.mkdir()
    (out / "run.yml").write_text("as it was")
    make(project, out)
    changes = [FileChange(file=file, before="as it was", after="changed")]
    with nullcontext() if error else pytest.raises(InvalidInputError, match=said):
        assert again(changes)["error"] == f"before the patch: {error}"
    assert (project / file).read_text() == "as it was"
    assert again([])["error"] == (error and f"before the patch: {error}")


def test_a_copy_without_the_hidden_folder_is_traced_from_its_root(traced, monkeypatch):
    project, again = traced(Collected([], []))
    (project / ".github").mkdir()
    (project / "run.yml").touch()
    monkeypatch.chdir(project / ".github")
    assert not again([FileChange(file="run.yml", before="", after="changed")])["error"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["b=2", "a=3"], ["b=9", "a=3"], "b=2 and a=3 → b=9 and a=3"),
        (["a=3,b=2"], ["a=3,b=9"], "b=2 → b=9"),
        (["b=2"], ["b=2", "b=9"], "b=2 → b=2 and b=9"),
        (["b=2"], [], "b=2 → nothing"),
        (["b=2", "a=3"], ["b=2", "a=3"], "b=2 and a=3, as before"),
    ],
)
def test_configs_of_a_call_are_told_apart_and_so_is_the_chip(
    project, before, after, said, monkeypatch
):
    """Of several chips the first is traced."""
    step = 'chips = ["v6e", "v7x"]\nstep = "model.py:attend"\n[[problem]]\n'
    (project / "model.toml").write_text(f'{step}kernel = "k"\n')
    changes = [FileChange(file="a.txt", before="", after="changed\n")]
    export = Export(text="", records=[], refused=[], changes=changes)
    traces = [
        Collected([WorkloadProblem(kernel="k", config=config) for config in configs], [])
        for configs in (before, after)
    ]
    with open_store(str(project / "test.db"), create=True) as store:
        for libtpu in ("0.0.42.1", "0.0.50"):  # the newest is told, once
            made = _record("k", 1024, b=7)
            toolchain = replace(made.key.toolchain, libtpu=libtpu)
            store.save_record(replace(made, key=replace(made.key, toolchain=toolchain)))
    monkeypatch.setattr(TableExport, "of", lambda *_, **__: export)
    monkeypatch.setattr("autotune.cli.traced_again.calls_of", lambda *_, **__: traces.pop(0))
    done = autotune_here("apply", ".", "--workload", "model.toml", cwd=project)
    assert f"traced for v6e\n{len(after)} × k: {said}\n" in done.stdout, done.stderr
    assert done.stdout.count("no call is seen to run k ") == bool(after)


def test_a_record_of_a_called_kernel_without_a_table_is_told():
    """As that of a kernel which computes its blocks; what no call is of is no matter here."""
    rows = [(None, _record(kernel, 1024, b=2)) for kernel in ("k", "other")]
    (told,) = _unreached(rows, [WorkloadProblem(kernel="k", config="b=2")])
    assert told["record"].startswith("k ") and not told["has_table"]
    same = workload_problem("k", rows[0][1].key.problem)
    assert _unreached(rows, [replace(same, config="b=2")]) == []
    (other,) = _unreached(rows, [replace(same, config="b=3")])
    assert (other["has_call"], other["has_table"]) == (True, False)


def test_where_there_is_nothing_to_change_nothing_is_written(project):
    open_store(str(project / "test.db"), create=True).close()
    done = autotune_here("apply", ".", "--json", cwd=project)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"changed": [], "refused": [], "written": False}


@pytest.mark.parametrize("asked", [("--args", "x"), ("--model", "m.py:f", "--workload", "run.yml")])
def test_a_model_is_asked_for_by_the_options_of_apply(asked, project):
    (project / "run.yml").touch()
    done = autotune_here("apply", ".", *asked, cwd=project)
    assert_one_sentence(done, "give --model FILE.py:FUNCTION, or a --workload")
