"""The guide for a kernel of one's own: its code and its commands are what runs here."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.commands import autotune

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "your-own-kernel.md"
TEXT = GUIDE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))

ASK = """
import logging, sys
logging.basicConfig(stream=sys.stderr)
import jax.numpy as jnp
import {module}
for rows in (4096, 100):
    problem = {module}.TUNED.problem(rows=rows, columns=4096)
    {module}.TUNED._chip = "v6e"
    print({module}.TUNED.answer(problem).match, {module}.TUNED.config(problem))
"""

SERVE = """
import autotune, jax, jax.numpy as jnp
import serving
autotune.configure(source="results.db", chip="v6e")
x = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
print(serving.scale.answer(x).match, jax.eval_shape(serving.model, x).shape)
"""

MOST_ADDED_LINES = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )


def command(start: str) -> list[str]:
    """One of the guide's, with few trials."""
    (found,) = re.findall(rf"^autotune ({start}.*)$", TEXT, re.MULTILINE)
    return shlex.split(found.replace("--trials 30", "--trials 5"))


def test_every_block_of_python_is_a_file_that_is_run_here() -> None:
    assert len(FILES) == TEXT.count("```python") == 6


def test_from_a_bare_function_to_a_served_config_in_a_few_lines() -> None:
    """Beside the function and its import of JAX."""
    added = [
        *re.findall(r"^(?:import autotune|@autotune.*)$", FILES["scaling.py"], re.MULTILINE),
        *re.findall(r"^\s*found = scale\.search.*$", FILES["tuning.py"], re.MULTILINE),
        *re.findall(
            r"^(?:import autotune|autotune\.configure.*)$", FILES["serving.py"], re.MULTILINE
        ),
    ]
    assert len(added) == 5 <= MOST_ADDED_LINES


@pytest.mark.slow
def test_from_a_function_to_a_config_in_the_model(folder: Path) -> None:
    done = autotune(*command("search ./scaling"), "--db", "results.db", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    assert record["verification"].startswith("agrees with the default config")
    code = FILES["tuning.py"].replace("trials=30", "trials=5, db='results.db'")
    (folder / "tuning.py").write_text(code)
    printed = python(folder, "tuning.py").stdout
    assert record["verification"] in printed and "5 trials (5 from earlier runs)" in printed
    assert "block_rows=64 block_columns=128: " in printed and "by estimate" in printed
    assert python(folder, "-c", SERVE).stdout == "exact (512, 1024)\n"


@pytest.mark.slow
def test_from_a_declaration_to_a_config_in_the_model(folder: Path) -> None:
    search = command("search ./scale.py")
    done = autotune(*search, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    assert record["verified"]
    found = autotune("lookup", "./scale.py:KERNEL", *search[2:8], "--json", cwd=folder)
    assert json.loads(found.stdout)["match"] == "exact"
    assert autotune(*command("export"), cwd=folder).returncode == 0
    asked = python(folder, "-c", ASK.format(module="model"))
    first, second = asked.stdout.splitlines()
    rows = record["config"]["axes"]["block_rows"]
    assert first.startswith(f"exact block_rows={rows} ")
    assert second.startswith("default block_rows=8 ")
    assert asked.stderr.count("nothing is published for scale") == 1
    again = autotune(*search, "--db", "results.db", "--json", cwd=folder)
    assert again.returncode == 0, again.stderr
    asked = python(folder, "-c", ASK.format(module="from_database"))
    assert asked.stdout.startswith(f"exact block_rows={rows} ")
