"""``autotune explain --trace`` with the real TPU compiler."""

import json
import shutil
from dataclasses import replace

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.key import installed_toolchain
from autotune.domain.outcome import Estimated
from autotune_db.store import open_store
from tests.samples import records as dbsamples
from tests.samples.estimates import estimate, parts
from tests.samples.records import save_trial
from tests.servers.commands import autotune

SEARCH = ("search", "matmul", "--shape", "m=512,k=512,n=512", "--chip", "v5e", "--trials", "3")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A folder with a database of three trials."""
    folder = tmp_path_factory.mktemp("searched")
    done = autotune(*SEARCH, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def first_trial(folder):
    with open_store(str(folder / "test.db"), create=False) as store:
        return store.trial(1)


def test_the_trace_shows_both_programs_and_lasts_as_long_as_estimated(searched):
    done = autotune("explain", "1", "2", "--trace", "trace.json", cwd=searched)
    assert done.returncode == 0, done.stderr
    assert "written to trace.json" in done.stderr
    trace = json.loads((searched / "trace.json").read_text())
    named = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {"grid steps", "core", "MXU 0", "HBM reads 1"} <= named
    _, trial = first_trial(searched)
    ends = [e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    assert max(ends) == pytest.approx(trial.estimate.kernel_us, rel=0.001)
    assert [path.name for path in searched.iterdir() if ".new" in path.name] == []


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.0.1", "trial 1 was compiled with jax 0.0.1"),
        (None, "trial 1 cannot be profiled: it now compiles to another program"),
    ],
)
def test_another_compiler_or_program_is_not_shown(version, says, searched, tmp_path):
    toolchain = installed_toolchain()
    assert toolchain is not None
    key, trial = first_trial(searched)
    assert key.fingerprint == fingerprint(find_kernel("matmul"))
    other = replace(toolchain, jax=version) if version else toolchain
    outcome = Estimated(estimate=estimate(parts(issue=1)), program="another")
    with open_store(str(tmp_path / "test.db"), create=True) as store:
        store.save_kernel(dbsamples.spec("matmul", key.fingerprint))
        save_trial(store, replace(key, toolchain=other), replace(trial, outcome=outcome))
    done = autotune("explain", "1", "--trace", "t.json", cwd=tmp_path)
    *_, progress, sentence = done.stderr.strip().splitlines()
    assert progress.startswith("1/1 compiling trial 1 again")
    assert (done.returncode, says in sentence) == (2, True), done.stderr
    assert not (tmp_path / "t.json").exists()


def test_what_no_trial_changes_alone_is_compiled(searched, tmp_path):
    """As trials of the problem, once; each axis has an effect then, or did not compile."""
    shutil.copy(searched / "test.db", tmp_path)
    before = autotune("explain", "1", cwd=tmp_path)
    assert "block_k: not known yet" in before.stdout and "explain 1 --around" in before.stdout
    done = autotune("explain", "1", "--around", cwd=tmp_path)
    assert done.returncode == 0 and "not known yet" not in done.stdout, done.stderr
    again = autotune("explain", "1", "--around", cwd=tmp_path)
    assert again.stdout == done.stdout
    assert "0 trials are new" in again.stderr
    effects = json.loads(autotune("explain", "1", "--json", cwd=tmp_path).stdout)["effects"]
    assert effects and all(effect["changes"] for effect in effects)
    both = autotune("explain", "1", "2", "--around", cwd=tmp_path)
    assert (both.returncode, both.stderr[:6]) == (2, "error:")
