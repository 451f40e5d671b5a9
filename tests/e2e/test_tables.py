"""A table of others, from its file to the search that it starts."""

import json

import pytest

from autotune_db import open_store
from tests.servers.commands import assert_one_sentence, autotune, autotune_here

ROW = {"kernel": "vector_add", "chip": "v5e", "problem": "n=1048576", "time_us": 1.0}


def _table(folder, *configs):
    lines = [json.dumps({**ROW, "config": config}) for config in configs]
    (folder / "theirs.jsonl").write_text("\n".join(lines))
    return "theirs.jsonl"


@pytest.mark.slow
def test_the_next_search_starts_from_it(tmp_path):
    theirs = _table(tmp_path, "block_n=65536", "no_axis=1")
    done = autotune("import", theirs, cwd=tmp_path)
    assert "known: 2 configs, 2 new" in done.stdout
    searched = ("search", "vector_add", "--shape", "1048576", "--chip", "v5e", "--trials", "3")
    done = autotune(*searched, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    assert "tuned elsewhere, toolchain unknown: block_n=65536" in printed
    assert "json line 2 has no config of this kernel: the kernel has no axis 'no_axis'" in printed


def test_rows_say_what_they_are_for_and_those_of_no_problem_of_the_kernel_are_left(tmp_path):
    rows = [ROW | {"config": "b=8"}, ROW | {"config": "b=8", "kernel": "vector_ad"}]
    rows += [ROW | {"config": "b=8", "problem": problem} for problem in ("dtype=f32", "n=8,k=8")]
    rows.append(ROW | {"config": "b=8", "problem": "x.0=8,dtype=float32"})  # of another vector_add
    (tmp_path / "theirs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = autotune_here("import", "theirs.jsonl", cwd=tmp_path)
    theirs, mistyped, lacking, unknown = done.stdout.splitlines()[1:5]
    assert theirs.startswith("vector_add: 2 configs") and "declare" not in theirs
    assert (
        mistyped.startswith("vector_ad: 1 config") and "for one of this name that you" in mistyped
    )
    assert lacking == "1 not taken: the shape lacks n: give n=…"
    assert unknown == "1 not taken: unknown dimension 'k': this kernel has n"
    done = autotune_here("import", "theirs.jsonl", "--python", "/no/such", cwd=tmp_path)
    assert_one_sentence(done, "the interpreter /no/such cannot be started")


def test_wrong_tables(tmp_path):
    nowhere = autotune_here("import", "no_such", cwd=tmp_path)
    assert_one_sentence(nowhere, "no_such is neither a file nor a format: give one of jax-rpa")
    nothing = autotune_here("import", "sglang-jax", cwd=tmp_path)
    assert_one_sentence(nothing, "has no sgl_jax with such a table: name another with --python")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_best_of_a_search_is_set_against_a_row(tmp_path):
    audited = ("audit", _table(tmp_path, "block_n=2048"), "--chip", "v5e", "--trials", "3")
    assert "say how many, --limit" in autotune_here(*audited, cwd=tmp_path).stderr
    done = autotune(*audited, "--limit", "1", "--json", cwd=tmp_path)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["contest"] == "faster by search", row
    assert row["searched_us"] == row["best_us"] < row["row_us"]
    again = autotune(*audited, "--limit", "1", cwd=tmp_path)
    assert "1 faster by search" in again.stdout
    assert "3/3" not in again.stderr  # it was searched


@pytest.mark.slow
def test_an_audit_compiles_a_row_once(tmp_path):
    theirs = _table(tmp_path, "block_n=65536", "block_n=1048576", "block_n=77")
    audited = ("audit", theirs, "--chip", "v5e", "--limit", "3", "--markdown", "found.md", "--json")
    done = autotune(*audited, cwd=tmp_path)
    rows = {row["place"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["line 1"]["standing"] == "best that is known", rows
    assert rows["line 1"]["row_us"] < rows["line 1"]["fallback_us"]
    assert rows["line 3"]["standing"] == "does not compile", rows
    assert done.returncode == 1
    assert (tmp_path / "found.md").read_text().count("- json line ") == 3
    with open_store(str(tmp_path / "test.db")) as store:
        ((key, trials),) = [(one.key, store.trials(one.key)) for one in store.history()]
        again = autotune(*audited, cwd=tmp_path)
        assert json.loads(again.stdout) == json.loads(done.stdout)
        assert store.trials(key) == trials
