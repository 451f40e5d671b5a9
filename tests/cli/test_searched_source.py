"""Every command says that the source of what it shows changed, and offers what was found for it."""

import json
from dataclasses import replace

import pytest

from autotune.cli.checks import find_refs
from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.job import Progress
from autotune.domain.key import Chip, KernelSpec
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Option, ProblemSpec
from autotune_db import open_store
from tests.samples import estimates, records
from tests.samples.records import save_trial
from tests.servers.commands import autotune_here

SOURCE = """
import autotune

@autotune.tunable(block=[8, 16])
def scale(x, *, factor=2, block=8):
    return x * factor
"""
FORM = "{'x': ['x.0'], 'factor': ''} ['factor']"
ARGS = "--args 'x=float32[512], factor=2'"
SAYS = "the source changed"
LOOKUP = ("--shape", "x.0=512", "--option", "factor=2", "--chip", "v6e")


@pytest.fixture
def searched(tmp_path):
    """A decorated function in ``own.py`` that was searched; in ``test.db``."""
    file = tmp_path / "own.py"
    file.write_text(SOURCE)
    spec = KernelSpec(
        name="scale",
        fingerprint=fingerprint(find_kernel(f"{file}:scale"), FORM),
        problems=ProblemSpec(
            dims=("x.0",),
            dtypes=("float32",),
            options=(Option(name="factor", choices=(), default=2),),
        ),
        axes=("block",),
        grid=(),
        form=FORM,
    )
    key = records.key_here(spec, "x.0=512", Chip.V6E)
    estimate = estimates.estimate(estimates.parts(issue=3.0, latency=5.0))
    trial = records.trial(0, Estimated(estimate=estimate, program="p"))
    with open_store(str(tmp_path / "test.db"), create=True) as store:
        store.save_kernel(spec)
        save_trial(store, key, trial)
        store.save_record(replace(records.record(key), config=trial.config, estimate=estimate))
        asked = Progress(asked=f"{file}:scale {ARGS} --chip v6e")
        store.searches.report(key, "", asked, over=True)
    return key


@pytest.mark.usefixtures("searched")
@pytest.mark.parametrize(
    "command",
    [
        ("show", "1"),
        ("explain", "1"),
        ("export", "own.bundle"),
        ("lookup", "scale", *LOOKUP),
        ("lookup", "./own.py:scale", *LOOKUP),
    ],
)
def test_it_is_said_once_the_source_changed(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = autotune_here(*command, cwd=tmp_path)
    assert (done.returncode, SAYS in done.stdout + done.stderr) == (0, False), done.stderr
    own = tmp_path / "own.py"
    own.write_text(own.read_text().replace("x * factor", "x * factor + 1"))
    done = autotune_here(*command, cwd=tmp_path)
    said = done.stdout + done.stderr
    is_answer = command[0] == "lookup"  # to a question about the kernel as it is now
    assert done.returncode == is_answer, done.stderr
    assert not (is_answer and done.stdout)
    assert SAYS in said and f"autotune search {own}:scale {ARGS} --chip v6e" in said
    if command[0] == "show":
        assert json.loads(autotune_here(*command, "--json", cwd=tmp_path).stdout)["source_changed"]


@pytest.mark.usefixtures("searched")
@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("history ./own.py:scale", 0, "scale  x.0=512"),
        ("history ./own.py:scale --shape 512", 0, "scale  x.0=512"),
        ("history scale --shape x.0=512 --option factor=2", 0, "scale  x.0=512"),
        ("history scale --shape 513", 0, "nothing like that has been searched"),
        ("history scale --shape 512 --dtype bf16", 2, "choose one of float32"),
        ("history --shape 512", 2, "name the kernel as well"),
        ("history scale --shape 512 --args x=f32[512]", 2, "say all of it there, or none"),
        ("explain scale --shape 512", 0, "where the time goes"),
        ("explain ./own.py:scale --shape 512 --chip v5e", 2, "has an estimate: search it first"),
        ("lookup scale --shape 512 --chip v6e", 0, "exact: published for exactly this"),
        ("history scale --dtype bf16", 2, "add --args 'x=float32[512], factor=2', as your call is"),
        pytest.param(
            *("explain scale --args x=f32[512],factor=2", 0, "where the time goes"),
            marks=pytest.mark.slow,
        ),
        ("lookup scale --chip v6e", 2, "add --args 'x=float32[512], factor=2', as your call is"),
    ],
)
def test_every_command_names_a_problem_alike(command, code, says, tmp_path):
    done = autotune_here(*command.split(), cwd=tmp_path)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stderr


def test_where_a_kernel_was_searched_comes_before_one_of_the_catalogue_with_its_name(
    searched, tmp_path
):
    key = replace(searched, kernel="vector_add")
    compilers = None  # nobody is asked
    with open_store(str(tmp_path / "test.db"), create=False) as store:
        before = find_refs(compilers, store, (), [records.record(key)])
        asked = Progress(asked=f"{tmp_path / 'own.py'}:scale {ARGS} --chip v6e")
        store.searches.report(key, "", asked, over=True)
        after = find_refs(compilers, store, (), [records.record(key)])
    assert before["vector_add"].module == "autotune_kernels.vector_add"
    assert after["vector_add"].path == str(tmp_path / "own.py")
