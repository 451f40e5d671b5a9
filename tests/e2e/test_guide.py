"""The guide for a kernel of one's own: its code and its commands are what runs here."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.servers.commands import autotune

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "your-own-kernel.md"

ASK = """
import logging, sys
logging.basicConfig(stream=sys.stderr)
import jax.numpy as jnp
import model
model.TUNED._chip = "v6e"
for rows in (4096, 100):
    problem = model.TUNED.problem(rows=rows, columns=4096)
    print(model.TUNED.answer(problem).match, model.TUNED.config(problem))
print(model.scale.__name__)
"""


def test_the_guide_from_code_to_a_config_in_the_model(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL)
    commands = re.findall(r"^autotune (.*)$", text, re.MULTILINE)
    assert [name for name, _ in files] == ["scale.py", "model.py"]
    for name, code in files:
        (tmp_path / name).write_text(code)
    search, _, export = (
        command.replace("--trials 30", "--trials 6").split() for command in commands
    )
    done = autotune(*search, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    assert record["verified"]
    found = autotune("lookup", "./scale.py:KERNEL", *search[2:8], "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["match"] == "exact"
    assert autotune(*export, cwd=tmp_path).returncode == 0
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, second, _ = asked.stdout.splitlines()
    rows = record["config"]["axes"]["block_rows"]
    assert first.startswith(f"exact block_rows={rows} ")
    assert second.startswith("default block_rows=8 ")
    assert asked.stderr.count("nothing is published for scale") == 1
