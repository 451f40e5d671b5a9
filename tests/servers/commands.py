"""Running the installed command as a user does: a process of its own, any current folder."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("autotune")


def autotune(
    *args: str, cwd: Path, env: dict[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run ``autotune`` with a database in ``cwd`` unless the environment names another."""
    surroundings = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        "AUTOTUNE_DATABASE_URL": str(cwd / "test.db"),
        **(env or {}),
    }
    return subprocess.run(
        [str(COMMAND), *args],
        cwd=cwd,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def assert_one_sentence(done: subprocess.CompletedProcess[str], says: str) -> None:
    """Exit code 2, one line on stderr, no traceback."""
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
