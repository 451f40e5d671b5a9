"""The guide for a kernel of one's own: its code is what runs here."""

import json
import re
from pathlib import Path

from commands import autotune

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "your-own-kernel.md"


def test_the_guide_from_code_to_a_published_record(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    command = re.search(r"^autotune (search .*)$", text, re.MULTILINE)
    assert code and command
    (tmp_path / "scale.py").write_text(code.group(1))
    args = command.group(1).replace("--trials 30", "--trials 6").split()
    done = autotune(*args, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["record"]["verified"]
    found = autotune("lookup", "./scale.py:KERNEL", *args[2:8], "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["match"] == "exact"
