"""``autotune collect``: the file that it writes."""

from unittest import mock

import pytest

from autotune.domain.compilers import Collected, DeclaredCall
from autotune.domain.key import KernelRef
from autotune.domain.workload import UndeclaredKernel, Workload, WorkloadProblem, load_workload
from tests.servers.commands import autotune_here


def test_a_workload_names_files_as_tune_looks_for_them_from_its_folder(tmp_path):
    """Whatever folder it was written from: a declaration is named from the current one."""
    (tmp_path / "out").mkdir()
    files = [tmp_path / "out" / "a.py", tmp_path / "out" / "b" / "c.py", tmp_path / "d.py"]
    names = [*(f"{file}:k" for file in files), "out/declared.py:k", "matmul"]
    traced = Workload(problems=tuple(WorkloadProblem(kernel=name) for name in names)), ""
    with mock.patch("autotune.cli.collect._of_model", return_value=traced):
        asked = "m.py:f", "--args", "x=f32[8]", "--python", "py", "--chip", "v6e"
        done = autotune_here("collect", *asked, "-o", "out/model.toml", cwd=tmp_path)
        sized = autotune_here("collect", "m.py:f", "--shape", "8", "-o", "x.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(": autotune step m.py:f --args 'x=f32[8]' --python py --chip v6e\n")
    assert "autotune step" not in sized.stderr  # which takes no --shape
    written = [each.kernel for each in load_workload(tmp_path / "out" / "model.toml").problems]
    assert written == ["a.py:k", "b/c.py:k", f"{tmp_path / 'd.py'}:k", "declared.py:k", "matmul"]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("out/net.py", ""),
        ("net.py", "out/k.py imports net from {0}: write it there, or set PYTHONPATH={0}"),
        ("my-net.py", "no kernel of my-net.py can be declared: no module has such a name"),
    ],
)
def test_who_declares_kernels_hears_which_modules_are_not_found(model, told, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / model).touch()
    ref = KernelRef(path=str(tmp_path / model), attribute="step")
    made = [DeclaredCall("k", ("autotune", "net"), "def {name}(x): ...\n", "x=f32[8,128]")]
    undeclared = [UndeclaredKernel(name="body", source=f"{tmp_path}/my-net.py:3")]
    answers = [ref, Collected([], undeclared, "", made)]
    with mock.patch("autotune.cli.shared.new_pool") as pool:
        pool.return_value.__enter__.return_value.ask.side_effect = answers
        done = autotune_here("collect", f"{model}:step", "--declare", "out/k.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.strip() == told.format(tmp_path)
