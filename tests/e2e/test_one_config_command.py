"""``autotune estimate``, and searches that start from a config or look at a part of the space."""

import json
import shlex
from pathlib import Path

import pytest

from tests.samples import faulty_kernel
from tests.servers.commands import assert_one_sentence, autotune

KERNEL = f"{Path(faulty_kernel.__file__)}:MANY"
PROBLEM = ("--shape", "n=8192", "--chip", "v5e")

pytestmark = pytest.mark.slow


def test_configs_are_estimated_side_by_side_and_nothing_is_kept(tmp_path):
    configs = ("--config", "rows=64", "--config", "rows=1024", "--config", "rows=9")
    done = autotune("estimate", KERNEL, *PROBLEM, *configs, "--json", cwd=tmp_path)
    assert done.returncode == 1  # one of them is illegal
    found = json.loads(done.stdout)
    kinds = [one["outcome"]["kind"] for one in found["configs"]]
    assert kinds == ["estimated", "estimated", "illegal"]
    assert "config 2 is" in found["compared"][0].lower()
    assert not list(tmp_path.rglob("*.db"))
    text = autotune("estimate", KERNEL, *PROBLEM, *configs[:4], cwd=tmp_path).stdout
    for words in ("where the time goes", "difference", "times as fast", "Nothing is kept"):
        assert words in text
    wrong = autotune("estimate", KERNEL, *PROBLEM, "--config", "row=64", cwd=tmp_path)
    assert wrong.returncode == 2
    assert_one_sentence(wrong, "error: the kernel has no axis 'row': it has rows")


def test_a_search_starts_from_a_config_looks_at_a_part_and_is_reproduced(tmp_path):
    own = ("--start-from", "rows=136", "--only", "rows=256,512", "--trials", "4")
    done = autotune("search", KERNEL, *PROBLEM, *own, "--db", "own.db", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["space"]["raw_points"] == 2
    assert [one["config"]["axes"] for one in report["given"]] == [{"rows": 136}]
    (sentence,) = report["compared_with_given"]
    assert f"the config you gave (trial {report['given'][0]['id']})" in sentence
    assert report["winner"] is not None

    shown = autotune("show", str(report["given"][0]["id"]), "--db", "own.db", cwd=tmp_path).stdout
    assert "number" not in shown.splitlines()[0]
    line = next(one for one in shown.splitlines() if one.startswith("reproduce: "))
    command = shlex.split(line.removeprefix("reproduce: "))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = autotune(*command[1:], "--json", cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    (config,) = json.loads(again.stdout)["configs"]
    assert config["config"] == report["given"][0]["config"]
    assert config["outcome"] == report["given"][0]["outcome"]


BIG = ("matmul", "--shape", "2048x2048x2048", "--dtype", "f32", "--chip", "v5e")
LARGE = ("--config", "block_m=1024,block_k=1024,block_n=1024")
LIMIT = "xla_tpu_scoped_vmem_limit_kib"


def test_the_compiler_has_the_options_of_the_process(tmp_path):
    """Also one that libtpu takes only as it is loaded, and another that changes nothing."""
    with_flag = {"LIBTPU_INIT_ARGS": f"--{LIMIT}=65536 --xla_jf_no_such=1"}
    refused = autotune("estimate", *BIG, *LARGE, cwd=tmp_path, env=with_flag)
    assert refused.returncode == 2 and "xla_jf_no_such" in refused.stderr
    flags = {"LIBTPU_INIT_ARGS": f"--{LIMIT}=65536 --xla_dump_to={tmp_path / 'dump'}"}
    once = ("--compiler-option", "xla_sc_disjoint_spmem=true", "--json")
    done = autotune("estimate", *BIG, *LARGE, *once, cwd=tmp_path, env=flags)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    options = f"xla_sc_disjoint_spmem=true {LIMIT}=65536"
    assert found["key"]["toolchain"]["options"] == options
    outcome = found["configs"][0]["outcome"]
    assert outcome["estimate"]["vmem_allowed_bytes"] == 64 << 20
    without = autotune("estimate", *BIG, *LARGE, "--json", cwd=tmp_path)
    found = json.loads(without.stdout)
    assert (without.returncode, found["configs"][0]["outcome"]["kind"]) == (1, "out of VMEM")
    assert "options" not in found["key"]["toolchain"]
