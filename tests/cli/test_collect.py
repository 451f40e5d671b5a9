"""``autotune collect``: the file that it writes."""

from unittest import mock

from autotune.domain.workload import Workload, WorkloadProblem, load_workload
from tests.servers.commands import autotune_here


def test_a_workload_names_files_as_tune_looks_for_them_from_its_folder(tmp_path):
    """Whatever folder it was written from: a declaration is named from the current one."""
    (tmp_path / "out").mkdir()
    files = [tmp_path / "out" / "a.py", tmp_path / "out" / "b" / "c.py", tmp_path / "d.py"]
    names = [*(f"{file}:k" for file in files), "out/declared.py:k", "matmul"]
    traced = Workload(problems=tuple(WorkloadProblem(kernel=name) for name in names)), ""
    with mock.patch("autotune.cli.collect._of_model", return_value=traced):
        done = autotune_here("collect", "m:f", "-o", "out/model.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = [each.kernel for each in load_workload(tmp_path / "out" / "model.toml").problems]
    assert written == ["a.py:k", "b/c.py:k", f"{tmp_path / 'd.py'}:k", "declared.py:k", "matmul"]
